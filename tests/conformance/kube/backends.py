"""The three servers that the conformance scripts run on, each opened as a context that gives an `Api`.

    loopback    the embedded API, called as a function
    http        the embedded API behind a socket, with TLS
    real        a kube-apiserver with etcd, controllers and scheduler

The embedded ones are created for each script; the real one runs as long as the test process, and each script
has its own namespace there.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import controlplane
from tests.conformance.kube import usage
from tests.conformance.kube.kit import ROOT_CA, Api

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.nodeproxy.passing import HttpNodes
from runyard.embedded.kube.settings import Settings
from runyard.http.client import HttpTransport
from runyard.http.loopback import Loopback
from runyard.http.messages import Transport
from runyard.http.server import listen
from runyard.http.tls import (
    Pair,
    client_context,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)

ADMIN = "an-administrator-of-scripts"
EMBEDDED = "embedded"
NAMES = ("loopback", "http", "real")
ASKED: dict[str, None] = {}  # the requests that the scripts of this process sent to the loopback
SECRETLESS = (1, 24)  # earlier versions: an account needs a Secret with its token
NEWEST = (99, 0, 0)  # the embedded API counts as the newest version

Open = Callable[[str], contextlib.AbstractAsyncContextManager[Api]]


def make_core(authority: Pair | None = None, *, node_grace: float = 10.0) -> KubeCore:
    """An embedded API with roles enforced and with the timeouts of the real one in `controlplane`."""
    settings = Settings(tick=0.2, node_grace=node_grace)
    nodes = HttpNodes(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    core = KubeCore(
        clock=RealClock(),
        rng=random.Random(7),
        security=Security(rbac=True, authority=authority),
        settings=settings,
        proxy=nodes,
    )
    core.guard(authenticator([ADMIN], core.tokens))
    return core


@cache
def _authority() -> Pair:
    return make_authority(now=RealClock().now())


@contextlib.asynccontextmanager
async def ticking(core: KubeCore) -> AsyncIterator[None]:
    """Ticks the controllers of an embedded API while the block runs."""
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(core.run_controllers())
        try:
            yield
        except BaseException as error:  # noqa: BLE001  raised again, as it is and not in a group
            failure = error
        task.cancel()
    if failure is not None:
        raise failure


@contextlib.asynccontextmanager
async def loopback(space: str) -> AsyncIterator[Api]:
    core = make_core(_authority())
    async with (
        ticking(core),
        _settled(Loopback(usage.recording(core.handle, ASKED)), space) as api,
    ):
        yield api
    assert not core.failures


def http(folder: Path) -> Open:
    """A way to open the embedded API over HTTPS; certificates lie in `folder`."""

    @contextlib.asynccontextmanager
    async def opened(space: str) -> AsyncIterator[Api]:
        authority = _authority()
        core = make_core(authority)
        server = issue_server(authority, ["127.0.0.1"], now=RealClock().now())
        files = write_pair(folder, "server", server)
        listening = await listen(core.handle, tls=server_context(files))
        transport = HttpTransport(listening.url, tls=client_context(authority.certificate))
        try:
            async with ticking(core), _settled(transport, space) as api:
                yield api
        finally:
            await transport.close()
            await listening.close()
        assert not core.failures

    return opened


def real(plane: controlplane.ControlPlane) -> Open:
    """A way to open a real control plane that runs already."""

    @contextlib.asynccontextmanager
    async def opened(space: str) -> AsyncIterator[Api]:
        transport = HttpTransport(plane.url, tls=plane.tls())
        settled = _settled(transport, space, token=controlplane.ADMIN, version=plane.version)
        try:
            async with settled as api:
                yield api
        finally:
            await transport.close()

    return opened


@contextlib.asynccontextmanager
async def _settled(
    transport: Transport,
    space: str,
    *,
    token: str = ADMIN,
    version: tuple[int, int, int] = NEWEST,
) -> AsyncIterator[Api]:
    """Creates a namespace and waits for its default objects; deletes it afterwards, without waiting."""
    api = Api(transport, space=space, token=token, version=version)
    await api.create("/api/v1/namespaces", {"metadata": {"name": space}})

    async def begun() -> bool | None:
        account = await api.call("GET", api.path("serviceaccounts", "default"))
        useful = version[:2] >= SECRETLESS or "secrets" in account.json()
        trusted = await api.call("GET", api.maps(ROOT_CA))
        return (account.status == trusted.status == 200 and useful) or None

    await api.eventually(begun)
    try:
        yield api
    finally:
        await api.call("DELETE", f"/api/v1/namespaces/{space}")
