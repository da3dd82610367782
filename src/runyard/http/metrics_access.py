"""Guards metrics with a token of their own.

Metrics are open to the machine itself. On other addresses they need a token that gives access to nothing else.

Invariants:
- Tokens are compared in constant time. Responses to wrong tokens are delayed, and the delay is shared by all
  connections, so more connections do not make guessing faster. A correct token is never delayed.
- On loopback the Host header must be loopback or a configured name. This prevents DNS rebinding: a web page cannot
  point its own name at this address and read through a visitor's browser. Under a configured name a token is needed,
  because such requests come through a proxy.
"""

import hashlib
import hmac

from runyard.clock import Clock
from runyard.http.addresses import is_loopback
from runyard.http.messages import Request, Response
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode

MIN_TOKEN_LENGTH = 16
_DELAY_STEP = 0.25
_MAX_DELAY = 3.0


class AccessError(ValueError):
    """The settings would leave something unprotected; the message says what to change."""


class TokenCheck:
    """Compares tokens; the delay of wrong ones is shared by all that it compares."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delayed_until = float("-inf")

    async def equal(self, given: str, wanted: str) -> bool:
        """Return whether the tokens are equal. A negative result is delayed."""
        if hmac.compare_digest(_digest(given), _digest(wanted)):
            return True
        now = self._clock.monotonic()
        self._delayed_until = min(max(self._delayed_until, now) + _DELAY_STEP, now + _MAX_DELAY)
        await self._clock.sleep(self._delayed_until - now)
        return False


class MetricsAccess:
    """Decides which requests may read the metrics; `token` may be empty, then there is none."""

    def __init__(
        self, *, listen: str, token: str, check: TokenCheck, names: tuple[str, ...] = ()
    ) -> None:
        self._local = is_loopback(listen)
        self._token = token
        self._check = check
        self._names = tuple(name.lower() for name in names)
        if token:
            require_length("metrics", token)

    def accepts_host(self, request: Request) -> bool:
        """Return whether the Host header is one of this server's names; checked on loopback only."""
        if not self._local:
            return True
        host = host_of(request.header("host"))
        return is_loopback(host) or host in self._names

    async def refusal(self, request: Request) -> Response | None:
        """Return the error response for a request that may not read the metrics, or None."""
        if not self.accepts_host(request):
            return misdirected()
        if self._local and is_loopback(host_of(request.header("host"))):
            return None
        given = bearer(request)
        if not self._token or not given or not await self._check.equal(given, self._token):
            return _metrics_token_needed()
        return None


def require_length(name: str, token: str) -> None:
    """Raise `AccessError` if a token is so short that it could be guessed."""
    if len(token) < MIN_TOKEN_LENGTH:
        raise AccessError(f"the token of the {name} is shorter than {MIN_TOKEN_LENGTH} characters")


def _metrics_token_needed() -> Response:
    return problem(
        401,
        ProblemCode.METRICS_TOKEN_NEEDED,
        fix="send Authorization: Bearer with the token of --metrics-token-file, or of metrics.token in the data"
        " directory of 'runyard up'; the dashboard's token does not read metrics",
        headers=(("www-authenticate", "Bearer"),),
    )


def misdirected() -> Response:
    """Return the 421 for a Host header that is not one of this server's names."""
    return problem(
        421,
        ProblemCode.HOST_UNKNOWN,
        fix="open it as 127.0.0.1 or localhost, or add the name to the dashboard's settings",
    )


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port, in lower case."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def bearer(request: Request) -> str:
    """Return the token in the Authorization header, or an empty text."""
    scheme, _, given = request.header("authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
