"""Sends the requests of one lookup to a registry: authorization, redirects, bounds.

A registry that refuses an anonymous request says how it wants to be asked. With `Basic` the credentials go to it; with
`Bearer` they go to the token server that it names, and the token goes to the registry. Credentials are looked up only
then, so a public image opens no Keychain. A lookup without credentials asks for an anonymous token.

Invariants:
- Credentials and tokens go to the registry and to the token server that the registry itself named, over TLS unless the
  registry is `insecure`. A redirect to another host, another port or without TLS carries none, and what is found there
  cannot ask for any.
- A request is answered at most once with authorization; redirects are followed a few times.
- A body is read up to its bound and no further. Nothing of a body is shown, except an error code in capitals.
"""

import re
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import msgspec

from runyard.http.addresses import decode_target, is_loopback
from runyard.http.errors import OutcomeUnknown, TransportError
from runyard.http.exchange import Fault, NotConnected, Peer, exchange
from runyard.http.messages import Pairs, Request, Response, Stream
from runyard.vm.oci.challenges import Challenge, challenges, pull_scope
from runyard.vm.oci.credentials import Credentials, Found
from runyard.vm.oci.reference import Reference

REDIRECTS = 5
LARGEST_TOKEN = 256 << 10  # bytes of a token server's answer

_MOVED = frozenset((301, 302, 303, 307, 308))
_TOKEN = re.compile(r"[\x21-\x7e]+")
_CODE = re.compile(r"[A-Z][A-Z_]{0,39}")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,253}")
_PORTS = {"https": 443, "http": 80}


class Refused(Exception):
    """The registry cannot be asked this way; the message is the cause."""


class NoToken(Exception):
    """The token server gave no token."""

    def __init__(self, status: int, host: str, headers: Pairs) -> None:
        super().__init__(f"the token server {host} answered {status}")
        self.status = status
        self.headers = headers


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer of a registry."""

    status: int
    headers: Pairs
    body: bytes
    url: str  # of the last redirect

    def header(self, name: str) -> str:
        """The first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def code(self) -> str:
        """The registry's own error code, such as MANIFEST_UNKNOWN; empty if there is none."""
        try:
            code = msgspec.json.decode(self.body, type=_Errors).errors[0].code
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return ""
        return code if _CODE.fullmatch(code) else ""


class _Error(msgspec.Struct):
    code: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class Session:
    """The requests of one lookup."""

    def __init__(
        self,
        reference: Reference,
        find: Callable[[str], Awaitable[Found]],
        *,
        insecure: bool,
        only_loopback: bool = False,
        tls: Callable[[], ssl.SSLContext],
        connect: float,
        answer: float,
    ) -> None:
        self._reference = reference
        self._find = find
        self._tls = tls
        self.insecure = insecure
        self._only_loopback = only_loopback  # `insecure` was found out, not declared
        self._connect = connect
        self._answer = answer
        self._base = f"{'http' if insecure else 'https'}://{reference.host}"
        self._authorization = ""
        self._challenged = False
        self.found = Found()  # filled when the registry asks for credentials

    @property
    def credentials(self) -> Credentials | None:
        """The credentials that were used; None if none were needed, or none found."""
        return self.found.credentials

    async def manifest(self, method: str, target: str, *, accept: str, limit: int) -> Answer:
        """Request a manifest by tag or digest."""
        url = f"{self._base}/v2/{self._reference.namespace}/manifests/{target}"
        answer = await self._follow(method, url, accept=accept, limit=limit)
        if answer.status != 401 or self._challenged or not _same_origin(answer.url, self._base):
            return answer
        self._challenged = True
        if not await self._authorize(answer):
            return answer
        return await self._follow(method, url, accept=accept, limit=limit)

    # ── requests ────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self, method: str, url: str, *, accept: str, limit: int) -> Answer:
        for _ in range(REDIRECTS + 1):
            trusted = _same_origin(url, self._base)
            headers: Pairs = (("accept", accept),)
            if trusted and self._authorization:
                headers = (*headers, ("authorization", self._authorization))
            answer = await self._send(method, url, headers, limit=limit)
            if answer.status not in _MOVED:
                return answer
            url = self._target(answer)
        raise Refused(f"it redirects more than {REDIRECTS} times")

    def _target(self, answer: Answer) -> str:
        location = answer.header("location")
        try:
            url = urljoin(answer.url, location)
            scheme, host, _ = _origin(url)
        except ValueError:
            scheme = host = url = ""
        if not location or not host or scheme not in _PORTS:
            raise Refused("it redirects to no valid address")
        if scheme == "http" and not self._may_be_plain(host):
            raise Refused("it redirects to an address without TLS")
        return url

    async def _send(self, method: str, url: str, headers: Pairs, *, limit: int) -> Answer:
        path, query = _target_of(url)
        headers = (("user-agent", "runyard"), *headers)
        request = Request(method=method, path=path, query=query, headers=headers)
        answer = await exchange(request, self._peer(url))
        if isinstance(answer, Response):
            return Answer(status=answer.status, headers=answer.headers, body=answer.body, url=url)
        body = await _bounded(answer, limit)
        return Answer(status=answer.status, headers=answer.headers, body=body, url=url)

    def _peer(self, url: str) -> Peer:
        scheme, host, port = _origin(url)
        tls = self._tls() if scheme == "https" else None
        return Peer(host=host, port=port, tls=tls, connect=self._connect, answer=self._answer)

    # ── authorization ───────────────────────────────────────────────────────────────────────────────

    async def _authorize(self, refusal: Answer) -> bool:
        """Get what the registry asks for; false if there is nothing to send."""
        offered = challenges(value for key, value in refusal.headers if key == "www-authenticate")
        wanted = {each.scheme: each for each in reversed(offered)}
        bearer, basic = wanted.get("bearer"), wanted.get("basic")
        if bearer is None and basic is None:
            raise Refused("it asks for authorization, but neither by 'Bearer' nor by 'Basic'")
        self.found = await self._find(self._reference.host)
        if bearer is not None:
            self._authorization = f"Bearer {await self._token(bearer)}"
        elif self.found.credentials is not None:
            self._authorization = self.found.credentials.basic
        return bool(self._authorization)

    async def _token(self, challenge: Challenge) -> str:
        url = self._token_url(challenge)
        headers: Pairs = (("accept", "application/json"),)
        if self.found.credentials is not None:
            headers = (*headers, ("authorization", self.found.credentials.basic))
        try:
            answer = await self._send("GET", url, headers, limit=LARGEST_TOKEN)
        except TransportError as error:
            raise OutcomeUnknown(f"its token server {_origin(url)[1]}: {why(error)}") from None
        if answer.status != 200:
            raise NoToken(answer.status, _origin(url)[1], answer.headers)
        try:
            found = msgspec.json.decode(answer.body, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Refused("its token server answered something else than a token") from None
        token = found.token or found.access_token
        if not _TOKEN.fullmatch(token):
            raise Refused("its token server answered something else than a token")
        return token

    def _may_be_plain(self, host: str) -> bool:
        """Whether this host may be asked without TLS, credentials included."""
        return self.insecure and (not self._only_loopback or is_loopback(host))

    def _token_url(self, challenge: Challenge) -> str:
        realm = challenge.params.get("realm", "")
        try:
            scheme, host, _ = _origin(realm)
        except ValueError:
            scheme = host = ""
        if scheme not in _PORTS or not _HOST.fullmatch(host):
            raise Refused("it names no valid token server")
        if scheme == "http" and not self._may_be_plain(host):
            raise Refused("it names a token server without TLS, which gets no credentials")
        query = [
            ("scope", pull_scope(challenge.params.get("scope", ""), self._reference.namespace))
        ]
        if service := challenge.params.get("service", ""):
            query.append(("service", service))
        return _with_query(realm, query)


def why(error: TransportError) -> str:
    """The cause of a failed request, without what the peer wrote."""
    cause = error.__cause__
    if cause is None or isinstance(cause, (OSError, EOFError)):
        return str(error)
    return "its answer is not HTTP"


def is_tls(error: TransportError) -> bool:
    """Whether the connection failed because of TLS."""
    return isinstance(error, NotConnected) and error.fault is Fault.TLS


def _with_query(url: str, query: list[tuple[str, str]]) -> str:
    parts = urlsplit(url)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *query]
    return parts._replace(query=urlencode(pairs), fragment="").geturl()


async def _bounded(stream: Stream, limit: int) -> bytes:
    body = bytearray()
    try:
        async for part in stream:
            body += part
            if len(body) > limit:
                raise Refused(f"its answer is larger than {limit >> 10} KiB")
    finally:
        stream.close()
    return bytes(body)


def _target_of(url: str) -> tuple[str, Pairs]:
    parts = urlsplit(url)
    try:
        return decode_target(f"{parts.path or '/'}?{parts.query}")
    except ValueError:
        raise Refused("it names an address that is no text") from None


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port; `ValueError` for what is no address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def _same_origin(one: str, other: str) -> bool:
    return _origin(one) == _origin(other)
