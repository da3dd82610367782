"""Access control of the dashboard, the REST API and the metrics.

Every request needs the token, on every address: as `Authorization: Bearer …`, or as the session cookie that the login
form or a login link sets. Loopback is no exception, because jobs run there, too: their code can reach every port of
the machine. `runyard` reads the token from a private file, which jobs cannot read.

Metrics name no tenant. They are open to this machine. On other addresses they need a token of their own, which gives
access to nothing else; the dashboard's is refused there, so that none that can change something is given to Prometheus.
Components without a dashboard have that token alone (`http.metrics_access`).

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
from runyard.http.messages import Request, Response
from runyard.http.metrics_access import (
    AccessError,
    MetricsAccess,
    TokenCheck,
    bearer,
    misdirected,
    require_length,
)
from runyard.http.problems import problem
from runyard.web.settings import Settings
from runyard.wire.problem_codes import ProblemCode

_FORM_LIMIT = 4096
_READ_METHODS = ("GET", "HEAD")


class Access:
    """Decides which requests may read or change something."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._check = TokenCheck(clock)
        self._key = _key(settings.token)
        self.cookie = f"{'__Host-' if settings.secure else ''}runyard-{self._key.hex()[:8]}"
        require_length("dashboard", settings.token)
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
        given = bearer(request)
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


def _token_needed() -> Response:
    return problem(
        401,
        ProblemCode.DASHBOARD_TOKEN_NEEDED,
        fix="send Authorization: Bearer with the dashboard's token; runyard's own commands take --token-file,"
        " and on the machine of 'runyard up' its --data",
        headers=(("www-authenticate", "Bearer"),),
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
