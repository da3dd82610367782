"""Access control of the dashboard, the REST API and the metrics.

Every request needs the token, on every address: as `Authorization: Bearer …`, or as the session cookie that the login
form or a login link sets. Loopback is no exception, because jobs run there, too: their code can reach every port of
the machine. `runyard` reads the token from a private file, which jobs cannot read.

Metrics name no tenant. They are open to this machine. On other addresses they need a token of their own, which gives
access to nothing else; the dashboard's is refused there, so that none that can change something is given to Prometheus.
Components without a dashboard have this token alone (`MetricsAccess`).

Invariants:
- The cookie is a keyed hash of its own expiry, with a key derived from the token: it does not reveal the token, cannot
  be made without it, is valid at every replica with the same token, and becomes invalid when the token changes.
- Tokens are compared in constant time. Responses to wrong tokens are delayed, and the delay is shared by all
  connections, so more connections do not make guessing faster. A correct token is never delayed.
- The name of the cookie is derived from the token: browsers send a cookie to every port of a machine, so two servers
  on one machine would otherwise overwrite each other's.
- A cookie changes something only if the request comes from the dashboard's own page: pages of other ports of this
  machine are the same site to a browser, so `SameSite` does not stop them.
- On loopback the Host header must be loopback or a configured name. This prevents DNS rebinding: a web page cannot
  point its own name at this address and use the dashboard through a visitor's browser. Under a configured name the
  metrics need a token, because such requests come through a proxy.
"""

import hashlib
import hmac
from urllib.parse import parse_qs

from runyard.clock import Clock
from runyard.http.addresses import is_loopback
from runyard.http.messages import Request, Response
from runyard.http.problems import problem
from runyard.web.settings import Settings
from runyard.wire.problem_codes import ProblemCode

MIN_TOKEN_LENGTH = 16
_DELAY_STEP = 0.25
_MAX_DELAY = 3.0
_FORM_LIMIT = 4096
_READ_METHODS = ("GET", "HEAD")


class AccessError(ValueError):
    """The settings would leave the dashboard unprotected; the message says what to change."""


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
            _require_length("metrics", token)

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
        given = _bearer(request)
        if not self._token or not given or not await self._check.equal(given, self._token):
            return _metrics_token_needed()
        return None


class Access:
    """Decides which requests may read or change something."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._check = TokenCheck(clock)
        self._key = _key(settings.token)
        self.cookie = f"{'__Host-' if settings.secure else ''}runyard-{self._key.hex()[:8]}"
        _require_length("dashboard", settings.token)
        self._metrics = MetricsAccess(
            listen=settings.listen,
            token=settings.metrics_token,
            check=self._check,
            names=settings.names,
        )
        if settings.metrics_token == settings.token:
            raise AccessError(
                "the token of the metrics is the dashboard's, which can change things"
            )

    def accepts_host(self, request: Request) -> bool:
        """Return whether the Host header is one of this server's names; checked on loopback only."""
        return self._metrics.accepts_host(request)

    async def refusal(self, request: Request) -> Response | None:
        """Return the error response for a request that is not allowed, or None; the guard of the route table."""
        if not self.accepts_host(request):
            return misdirected()
        return None if await self.allows(request) else _token_needed()

    async def metrics_refusal(self, request: Request) -> Response | None:
        """Return the error response for a request that may not read the metrics, or None."""
        return await self._metrics.refusal(request)

    async def allows(self, request: Request) -> bool:
        """Return whether the request is allowed. The result for a wrong bearer token is delayed."""
        given = _bearer(request)
        if given:
            return await self.check_token(given)
        if request.method not in _READ_METHODS and not same_origin(request):
            return False
        return self._session_is_valid(_cookie(request, self.cookie))

    async def check_token(self, token: str) -> bool:
        """Return whether this is the token. A negative result is delayed."""
        return await self._check.equal(token, self._settings.token)

    def session_cookie(self) -> str:
        """Return the `set-cookie` header of a new session."""
        expires = int(self._clock.now() + self._settings.session)
        return self._set_cookie(f"{expires}.{self._sign(expires)}", int(self._settings.session))

    def expired_cookie(self) -> str:
        """Return the `set-cookie` header that ends the session in this browser."""
        return self._set_cookie("", 0)

    def _session_is_valid(self, value: str) -> bool:
        expires, _, signature = value.partition(".")
        if not (expires.isascii() and expires.isdecimal() and len(expires) < 16 and signature):
            return False
        genuine = hmac.compare_digest(signature.encode(), self._sign(int(expires)).encode())
        return genuine and int(expires) > self._clock.now()

    def _sign(self, expires: int) -> str:
        return hmac.new(self._key, f"session until {expires}".encode(), hashlib.sha256).hexdigest()

    def _set_cookie(self, value: str, max_age: int) -> str:
        secure = "; Secure" if self._settings.secure else ""
        return (
            f"{self.cookie}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
        )


def _require_length(name: str, token: str) -> None:
    if len(token) < MIN_TOKEN_LENGTH:
        raise AccessError(f"the token of the {name} is shorter than {MIN_TOKEN_LENGTH} characters")


def _token_needed() -> Response:
    return problem(
        401,
        ProblemCode.DASHBOARD_TOKEN_NEEDED,
        fix="send Authorization: Bearer with the dashboard's token; runyard's own commands take --token-file,"
        " and on the machine of 'runyard up' its --data",
        headers=(("www-authenticate", "Bearer"),),
    )


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


def token_of_form(request: Request) -> str:
    """Return the token in a posted login form, or an empty text."""
    if len(request.body) > _FORM_LIMIT:
        return ""
    try:
        fields = parse_qs(request.body.decode(), max_num_fields=8)
    except ValueError:
        return ""
    return fields.get("token", [""])[0]


def same_origin(request: Request) -> bool:
    """Return whether a form was sent by the dashboard's own page, or by a client that is no browser."""
    site = request.header("sec-fetch-site")
    if site:
        return site in {"same-origin", "none"}
    origin = request.header("origin")
    return not origin or origin.partition("://")[2].lower() == request.header("host").lower()


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port, in lower case."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _bearer(request: Request) -> str:
    scheme, _, given = request.header("authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _cookie(request: Request, name: str) -> str:
    for header, value in request.headers:
        if header != "cookie":
            continue
        for pair in value.split(";"):
            key, _, text = pair.strip().partition("=")
            if key == name:
                return text
    return ""


def _key(token: str) -> bytes:
    return hmac.new(token.encode(), b"runyard dashboard session", hashlib.sha256).digest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
