"""A main machine for tests of joining: the embedded API with roles, and the listener for hosts in front of it."""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.trust import HostsCertificate
from runyard.hosts.joining.front import Front, Offer, Upstreams
from runyard.hosts.joining.tokens import JoinTokens
from runyard.http.connection_limits import ConnectionLimits
from runyard.http.loopback import Loopback
from runyard.http.messages import Handler, Request, Response, Stream, Transport, json_response
from runyard.http.server import PEER, listen
from runyard.http.tls import Pair, make_authority, public_key_hash
from runyard.kube.client import Kube
from runyard.kube.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from runyard.telemetry.log import get_logger
from runyard.wire import rights
from runyard.wire.joining import JOIN, RENEW, Credential, JoinRequest, JoinToken

T = TypeVar("T")
ADMIN = "the-administrator-of-this-test"
PRACTICE = (("POST", "/practice/runner/session"),)
NODES = "/api/v1/nodes"
MACHINE = "6d61636869" + "0" * 22  # the form of what `MembershipFiles.machine` makes
OTHER_MACHINE = "0" * 31 + "1"
_KINDS = {each.kind: each for each in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)}


class ShiftedClock(RealClock):
    """Real time, which a test moves on."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Recorder:
    """A server behind the listener that stores what reaches it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return json_response(200, {"path": request.path}, (("set-cookie", "session=1"),))


class Main:
    """The main machine."""

    def __init__(
        self, authority: Pair | None = None, *, practice: str = "http://127.0.0.1:9"
    ) -> None:
        self.practice = practice
        self.clock = ShiftedClock()
        self.authority = authority or make_authority(now=self.clock.now())
        self.core = KubeCore(
            clock=self.clock,
            rng=random.Random(7),
            security=Security(rbac=True, authority=self.authority),
        )
        self.core.guard(authenticator((ADMIN,), self.core.tokens, certificates=True))
        api = Loopback(self.core.handle)
        self.server, self.github = Recorder(), Recorder()
        self.kube = Kube(api, token=lambda: ADMIN)
        self.tokens = JoinTokens(self.kube)
        self.front = self.front_with(api)

    def front_with(self, api: Transport) -> Front:
        """The listener's handler, with this way to the API."""
        return Front(
            Kube(api, token=lambda: ADMIN),
            Upstreams(
                api=api,
                server=Loopback(self.server.handle),
                github=Loopback(self.github.handle),
                practice=PRACTICE,
            ),
            authority=lambda: self.authority.certificate,
            offer=Offer(fleet="local", practice_url=self.practice),
            clock=self.clock,
            log=get_logger("test"),
        )

    async def prepare(self) -> None:
        """Creates the roles, and the accounts of the machine's own components."""
        holders = {rights.SERVER_ACCOUNT: rights.SERVER, rights.host_account("host-1"): rights.HOST}
        for obj in rights.granted(holders):
            meta = obj["metadata"]
            await self.kube.apply(
                _KINDS[obj["kind"]],
                meta["name"],
                obj,
                manager="test",
                namespace=meta.get("namespace", ""),
                force=True,
            )

    async def token(self, *, seconds: float = 3600.0, name: str = "") -> JoinToken:
        pin = public_key_hash(self.authority.certificate)
        return await self.tokens.create(
            pin, now=self.clock.now(), seconds=seconds, rng=random.Random(), name=name
        )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        body: Any = None,
        headers: tuple[tuple[str, str], ...] = (),
        peer: str = "192.0.2.7",
        query: tuple[tuple[str, str], ...] = (),
        front: Front | None = None,
    ) -> Response | Stream:
        given = ((PEER, peer), *headers)
        if token:
            given += (("authorization", f"Bearer {token}"),)
        if body is not None:
            given += (("content-type", "application/json"),)
        raw = b"" if body is None else msgspec.json.encode(body)
        return await (front or self.front).handle(
            Request(method=method, path=path, query=query, headers=given, body=raw)
        )

    async def try_join(
        self, token: JoinToken, *, name: str = "mini-2", machine: str = MACHINE, **more: Any
    ) -> Response:
        body = JoinRequest(id=token.id, secret=token.secret, name=name, machine=machine)
        answer = await self.ask("POST", JOIN, body=body, **more)
        assert isinstance(answer, Response)
        return answer

    async def join(self, *, name: str = "mini-2", machine: str = MACHINE) -> Credential:
        answer = await self.try_join(await self.token(), name=name, machine=machine)
        assert answer.status == 201, answer.body
        return msgspec.json.decode(answer.body, type=Credential)

    async def renew(self, token: str, *, front: Front | None = None) -> Response:
        answer = await self.ask("POST", RENEW, token=token, front=front)
        assert isinstance(answer, Response)
        return answer


def code_of(answer: Response | Stream) -> str:
    """The reason code of a refusal."""
    assert isinstance(answer, Response)
    return str(answer.json().get("code", ""))


def on_main(test: Callable[[Main], Awaitable[T]]) -> T:
    """Runs a test with a prepared main machine."""

    async def run() -> T:
        main = Main()
        await main.prepare()
        return await test(main)

    return asyncio.run(run())


class Served:
    """A main machine whose listener serves in a thread, for commands that run a loop of their own."""

    def __init__(self, folder: Path, *, practice: str = "http://127.0.0.1:9") -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.main = self.run(self._made(practice))
        self.url, _ = self.run(self._stack.enter_async_context(listening(self.main, folder)))

    async def _made(self, practice: str) -> Main:
        main = Main(practice=practice)
        await main.prepare()
        return main

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in that thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def token(self) -> str:
        return self.run(self.main.token()).text

    def states(self) -> list[str]:
        """The state of each token."""
        found = self.run(self.main.tokens.all())
        return [each.state(self.main.clock.now()) for each in found]

    def works(self, credential: str) -> bool:
        """Whether this is the credential of a host."""
        return self.run(self.main.renew(credential)).status == 200

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.asynccontextmanager
async def listening(
    main: Main,
    folder: Path,
    *,
    handler: Handler | None = None,
    limits: ConnectionLimits | None = None,
    port: int = 0,
) -> AsyncIterator[tuple[str, HostsCertificate]]:
    """The listener for hosts on a socket, with the main machine's own authority; gives the URL and the certificate."""
    tls = folder / "tls"
    tls.mkdir(mode=0o700, parents=True, exist_ok=True)
    (tls / "ca.crt").write_bytes(main.authority.certificate)
    (tls / "ca.key").write_bytes(main.authority.key)
    certificate = HostsCertificate(Layout(folder), "127.0.0.1", now=main.clock.now())
    serving = await listen(
        handler or main.front.handle,
        port=port,
        tls=certificate.context,
        limits=limits or ConnectionLimits(),
        clock=main.clock,
    )
    try:
        yield serving.url, certificate
    finally:
        await serving.close()
