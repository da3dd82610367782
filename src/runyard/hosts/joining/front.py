"""Serves what hosts on other machines need, on one TLS socket, and refuses everything else.

    GET  /hosts/authority    the certificate of this machine's authority; open, and worth nothing without a pin
    GET  /hosts/terms        what a machine must have to join; open
    POST /hosts/join         a join token for a credential
    POST /hosts/renew        a host's credential for a newer one
    /api/v1, /apis           the Kubernetes API, for the credential of a host only
    POST  the dispatch path  the poll of a runner, with the Pod's token, which the dispatch server checks
    the practice runner's    requests to the practice GitHub, with the keys of that runner, if there is one

The dashboard, the REST API, webhooks, metrics and the practice GitHub's own API have no path here.

Invariants:
- Of a request only the listed headers are passed on: no client can act for another user through this server, or
  claim to have shown a certificate.
- The API gets a token only if its claims name a host. The claims are not verified here: the API verifies the same
  token, so a forged one gets its 401, and an administrator's token, which has no claims, never leaves this process.
- Answers are passed on as they arrive; a client that disconnects ends its request at the API or the server as well.
- The memory and the connections are bounded by the socket that this handler is served on.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.clock import Clock
from runyard.hosts.joining import accounts
from runyard.hosts.joining.failures import Failures
from runyard.hosts.joining.passing import Answer, Upstream, passed
from runyard.hosts.joining.tokens import JoinTokens, TokenRefused
from runyard.http.errors import OutcomeUnknown, TransportError
from runyard.http.messages import Request, Response, Stream, Transport, json_response
from runyard.http.problems import problem
from runyard.http.server import PEER
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.telemetry.log import Logger
from runyard.wire import joining
from runyard.wire.joining import Credential, JoinRequest, Terms
from runyard.wire.paths import DISPATCH
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import render

_LARGEST_JOIN = 4096
_API_WITHIN = 30.0
_NEW_TOKEN = "On the main machine: runyard host token"
_JOIN_AGAIN = f"If this host was not removed on purpose, join again. {_NEW_TOKEN}"


class Upstreams(msgspec.Struct, frozen=True, kw_only=True):
    """The servers behind this one; `practice` are the requests that a practice GitHub takes from runners."""

    api: Transport
    server: Transport
    github: Transport | None = None
    practice: tuple[tuple[str, str], ...] = ()


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a new host is told beside its credential."""

    fleet: str
    practice_url: str = ""


class _Interrupted(Exception):
    """The API failed after the token was used, or may have been."""


class Front:
    """The handler of the listener for hosts."""

    def __init__(
        self,
        kube: Kube,
        upstreams: Upstreams,
        *,
        authority: Callable[[], bytes],
        offer: Offer,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._tokens = JoinTokens(kube)
        self._authority = authority
        self._offer = offer
        self._clock = clock
        self._log = log
        self._failures = Failures()
        self._api = Upstream(what="Kubernetes API", transport=upstreams.api, within=_API_WITHIN)
        server = Upstream(what="dispatch server", transport=upstreams.server)
        self._fixed = {("POST", DISPATCH): server}
        if upstreams.github is not None:
            github = Upstream(what="practice GitHub", transport=upstreams.github)
            self._fixed |= dict.fromkeys(upstreams.practice, github)
        self._own: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            ("GET", joining.HEALTH): self._healthy,
            ("GET", joining.AUTHORITY): self._show_authority,
            ("GET", joining.TERMS): self._show_terms,
            ("POST", joining.JOIN): self._join,
            ("POST", joining.RENEW): self._renew,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer one request."""
        what = (request.method, request.path)
        if (own := self._own.get(what)) is not None:
            return await self._answered(own, request)
        if (upstream := self._fixed.get(what)) is not None:
            return await passed(request, upstream)
        if _is_api(request.path):
            if not host_claimed(_bearer(request)):
                return _not_a_host()
            answer = await passed(request, self._api)
            return _log_in_again(answer) if answer.status == 401 else answer
        return problem(404, ProblemCode.PATH_UNKNOWN)

    async def _answered(
        self, own: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        try:
            return await own(request)
        except (KubeError, TransportError) as error:
            self._log.warning("cannot answer a host", path=request.path, error=str(error))
            return problem(503, ProblemCode.CONTROL_PLANE_AWAY, what=self._api.what)

    async def _healthy(self, request: Request) -> Response:
        return Response(status=200, headers=(("content-type", "text/plain"),), body=b"ok\n")

    async def _show_authority(self, request: Request) -> Response:
        pem = (("content-type", "application/x-pem-file"),)
        return Response(status=200, headers=pem, body=self._authority())

    async def _show_terms(self, request: Request) -> Response:
        return json_response(200, Terms(practice=bool(self._offer.practice_url)))

    # ── joining ─────────────────────────────────────────────────────────────────────────────────

    async def _join(self, request: Request) -> Response:
        address, now = request.header(PEER), self._clock.monotonic()
        if wait := self._failures.wait(address, now=now):
            retry = (("retry-after", str(int(wait) + 1)),)
            fix = f"Try again in {int(wait) + 1} s"
            return problem(429, ProblemCode.JOIN_TOO_MANY_FAILURES, fix=fix, headers=retry)
        if len(request.body) > _LARGEST_JOIN:
            return problem(413, ProblemCode.BODY_TOO_LARGE)
        wanted = _join_request(request.body)
        if wanted is None:
            self._failures.failed(address, now=now)
            return problem(400, ProblemCode.BODY_UNEXPECTED)
        try:
            given = await self._admit(wanted)
        except TokenRefused as refused:
            self._failures.failed(address, now=now)
            self._log.warning("refused to join", host=wanted.name, code=refused.code.value)
            return _token_refused(refused)
        except (accounts.NameTaken, accounts.AccountReplaced):
            return _name_taken(wanted.name)
        except _Interrupted as error:
            self._log.warning("a join was interrupted", host=wanted.name, error=str(error))
            fix = f"Join again with another token. {_NEW_TOKEN}"
            return problem(503, ProblemCode.JOIN_INTERRUPTED, fix=fix, what=self._api.what)
        self._log.info("host joined", host=wanted.name, token=wanted.id)
        return json_response(201, given)

    async def _admit(self, wanted: JoinRequest) -> Credential:
        """Check everything first: a refusal that its sender can correct does not use the token up."""
        now = self._clock.now()
        token = await self._tokens.check(wanted.id, wanted.secret, name=wanted.name, now=now)
        if not joining.is_host_name(wanted.name):
            raise TokenRefused(ProblemCode.JOIN_NAME_INVALID)
        if joining.is_reserved_name(wanted.name):
            raise accounts.NameTaken(wanted.name)
        await accounts.check_name(self._kube, wanted.name, wanted.machine)
        try:
            await self._tokens.use(token, host=wanted.name)
        except OutcomeUnknown as error:
            raise _Interrupted(str(error)) from error
        try:
            uid = await accounts.grant(self._kube, wanted.name, wanted.machine)
            return await self._credential(wanted.name, uid)
        except (KubeError, TransportError) as error:
            raise _Interrupted(str(error)) from error

    async def _renew(self, request: Request) -> Response:
        token = _bearer(request)
        if not host_claimed(token):
            return _not_a_host()
        review = await self._kube.review_token(token, audiences=())
        host = accounts.host_of(review.username) if review.authenticated else ""
        if not host:
            return _revoked()
        try:
            # The API has verified the claims: the account that is renewed is the one that asked.
            return json_response(200, await self._credential(host, accounts.claimed(token).uid))
        except accounts.AccountReplaced:
            return _revoked()

    async def _credential(self, host: str, uid: str) -> Credential:
        now = self._clock.now()
        return Credential(
            name=host,
            token=await accounts.credential(self._kube, host, uid=uid),
            expires=now + accounts.CREDENTIAL_SECONDS,
            fleet=self._offer.fleet,
            practice_url=self._offer.practice_url,
        )


def host_claimed(token: str) -> str:
    """The host that a token claims to be of, without a proof; empty if it claims none."""
    return accounts.host_of(accounts.claimed(token).user)


def _join_request(body: bytes) -> JoinRequest | None:
    """The request; None if it is not one. Without the identifier of a machine no name can belong to its sender."""
    try:
        wanted = msgspec.json.decode(body, type=JoinRequest)
    except msgspec.MsgspecError:
        return None
    return wanted if joining.is_machine_id(wanted.machine) else None


def _bearer(request: Request) -> str:
    scheme, _, token = request.header("authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_api(path: str) -> bool:
    return path in ("/api", "/apis", "/version") or path.startswith(("/api/v1/", "/apis/"))


def _not_a_host() -> Response:
    fix = f"Use the credential that 'runyard host join' wrote. {_NEW_TOKEN}"
    return problem(401, ProblemCode.HOST_CREDENTIAL_NEEDED, fix=fix)


def _revoked() -> Response:
    return problem(401, ProblemCode.HOST_CREDENTIAL_REVOKED, fix=_JOIN_AGAIN)


def _log_in_again(refusal: Answer) -> Response:
    """The same refusal in the form of the API, with what its reader can do: it is all that the agent logs."""
    if isinstance(refusal, Stream):
        refusal.close()
    reason = ProblemCode.HOST_CREDENTIAL_REVOKED.because()
    message = f"{render(reason)}. {_JOIN_AGAIN} [{reason.slug}]"
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Unauthorized",
        "code": 401,
    }
    return json_response(401, body)


def _name_taken(name: str) -> Response:
    fix = "Choose another name with --name"
    if joining.is_reserved_name(name):
        fix += "; host-1, host-2 and so on are for the main machine's own hosts"
    else:
        fix += f"; or, if that machine is gone, on the main machine: runyard host remove {name}"
    return problem(409, ProblemCode.JOIN_NAME_TAKEN, fix=fix, name=name)


def _token_refused(refused: TokenRefused) -> Response:
    another = f"Get another one. {_NEW_TOKEN}"
    match refused.code:
        case ProblemCode.JOIN_NAME_INVALID:
            fix = "Use at most 40 lower-case letters, digits and '-', with --name"
            return problem(422, ProblemCode.JOIN_NAME_INVALID, fix=fix)
        case ProblemCode.JOIN_TOKEN_OTHER_NAME:
            name = refused.detail["name"]
            fix = f"Join with --name {name}"
            return problem(403, ProblemCode.JOIN_TOKEN_OTHER_NAME, fix=fix, name=name)
        case ProblemCode.JOIN_TOKEN_USED:
            return problem(403, ProblemCode.JOIN_TOKEN_USED, fix=another)
        case ProblemCode.JOIN_TOKEN_EXPIRED:
            return problem(403, ProblemCode.JOIN_TOKEN_EXPIRED, fix=another)
    return problem(403, ProblemCode.JOIN_TOKEN_WRONG, fix=another)
