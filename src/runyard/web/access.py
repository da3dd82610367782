"""Who may look.

The listening address decides, and nothing that a client can write into a header. On loopback the dashboard is open to
whoever is on this machine; everywhere else it asks for the token, as `Authorization: Bearer …` or once in a form that
leaves a cookie behind.

Invariants:
- The cookie is a keyed hash of its own expiry, with a key derived from the token: it does not reveal the token, it
  cannot be made without it, every replica with the same token accepts it, and another token ends it.
- Tokens are compared in constant time. Wrong ones are answered slowly, all of them together, so that guessing does not
  get faster with more connections; the right one is never kept waiting, so nobody can be locked out.
- On loopback the Host header must name loopback or a configured name. Otherwise any web page could make its own name
  point here and read the dashboard through its visitor's browser. Under a configured name the token is asked for if
  there is one: that is how a proxy in front is told from a person on this machine.
- A proxy may also send the address that it was given as Host, and then it looks like this machine. So whoever wants to
  change something shows the token wherever there is one, under every name.
"""

import hashlib
import hmac
from urllib.parse import parse_qs

from runyard.clock import Clock
from runyard.http.addresses import is_loopback
from runyard.http.messages import Request, Response
from runyard.http.problems import problem
from runyard.web.settings import Settings

SHORTEST = 16
_SLOWER = 0.25
_SLOWEST = 3.0
_FORM_LIMIT = 4096
_LOOKING = ("GET", "HEAD")


class AccessError(ValueError):
    """The dashboard cannot be guarded as it is set up; the message says what to change."""


class Access:
    """Judges requests."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._next_answer = float("-inf")
        self.local = is_loopback(settings.listen)
        self._names = tuple(name.lower() for name in settings.names)
        self._key = _key(settings.token)
        self.cookie = "__Host-runyard" if settings.secure else "runyard"
        if not self.local and not settings.token:
            raise AccessError(
                f"the dashboard listens on {settings.listen or 'every address'}, which is not loopback:"
                " give it a token or let it listen on 127.0.0.1"
            )
        if settings.token and len(settings.token) < SHORTEST:
            raise AccessError(f"the dashboard's token is shorter than {SHORTEST} characters")

    def names_us(self, request: Request) -> bool:
        """Is the request addressed to a name that is ours? Matters on loopback only."""
        if not self.local:
            return True
        host = host_of(request.header("host"))
        return is_loopback(host) or host in self._names

    def needs_token(self, request: Request) -> bool:
        """Must this request prove itself?"""
        if not self.local:
            return True
        if not self._settings.token:
            return False
        return request.method not in _LOOKING or not is_loopback(host_of(request.header("host")))

    async def refusal(self, request: Request) -> Response | None:
        """Why this request may not look, as an answer; None if it may. What a table of routes asks as its guard."""
        if not self.names_us(request):
            return misdirected()
        if await self.admits(request):
            return None
        return problem(
            401,
            "this needs the dashboard's token",
            fix="send Authorization: Bearer with the dashboard's token; runyard's own commands take --token-file",
            headers=(("www-authenticate", "Bearer"),),
        )

    async def admits(self, request: Request) -> bool:
        """May this request look? A wrong bearer token is answered slowly."""
        if not self.needs_token(request):
            return True
        scheme, _, given = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer" and given:
            return await self.accepts(given.strip())
        return self._session_holds(_cookie(request, self.cookie))

    async def accepts(self, token: str) -> bool:
        """Is this the token? If not, the answer takes its time."""
        if self._settings.token and hmac.compare_digest(
            _digest(token), _digest(self._settings.token)
        ):
            return True
        now = self._clock.monotonic()
        self._next_answer = min(max(self._next_answer, now) + _SLOWER, now + _SLOWEST)
        await self._clock.sleep(self._next_answer - now)
        return False

    def session(self) -> str:
        """The `set-cookie` of somebody who has shown the token."""
        expires = int(self._clock.now() + self._settings.session)
        return self._set_cookie(f"{expires}.{self._sign(expires)}", int(self._settings.session))

    def farewell(self) -> str:
        """The `set-cookie` that ends a session in this browser."""
        return self._set_cookie("", 0)

    def _session_holds(self, value: str) -> bool:
        expires, _, signature = value.partition(".")
        if not (expires.isascii() and expires.isdecimal() and len(expires) < 16 and signature):
            return False
        genuine = hmac.compare_digest(signature.encode(), self._sign(int(expires)).encode())
        return genuine and int(expires) > self._clock.now()

    def _sign(self, expires: int) -> str:
        return hmac.new(self._key, f"session until {expires}".encode(), hashlib.sha256).hexdigest()

    def _set_cookie(self, value: str, lasts: int) -> str:
        secure = "; Secure" if self._settings.secure else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}"


def misdirected() -> Response:
    """Somebody's name points to this machine: whoever asks under it is not answered."""
    return problem(
        421,
        "this server does not go by that name",
        fix="open it as 127.0.0.1 or localhost, or add the name to the dashboard's settings",
    )


def token_of_form(request: Request) -> str:
    """The token in a posted login form; empty if there is none."""
    if len(request.body) > _FORM_LIMIT:
        return ""
    try:
        fields = parse_qs(request.body.decode(), max_num_fields=8)
    except ValueError:
        return ""
    return fields.get("token", [""])[0]


def same_origin(request: Request) -> bool:
    """Was a form sent from our own page? Browsers say so; a client that says nothing is no browser."""
    site = request.header("sec-fetch-site")
    if site:
        return site in {"same-origin", "none"}
    origin = request.header("origin")
    return not origin or origin.partition("://")[2].lower() == request.header("host").lower()


def host_of(header: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


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
