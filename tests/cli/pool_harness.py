"""The embedded Kubernetes API over HTTP with hosts and runners made by hand, and commands against it."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.cli.server_harness import run_here

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.kubeconfig import render
from runyard.http.loopback import Loopback
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.kube.kinds import NAMESPACES, NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

SPACE = names.RUNNERS_NAMESPACE
ADMIN = "admin-token-of-the-test"
MAC = {
    names.NODE_OS: "darwin",
    names.NODE_ARCH: "arm64",
    names.NODE_RUNTIME: "tart",
    names.NODE_FLEET: "minis",
}
BOX = {
    names.NODE_OS: "linux",
    names.NODE_ARCH: "amd64",
    names.NODE_RUNTIME: "process",
    names.NODE_FLEET: "local",
}


class Fleet:
    """The API, and what a test puts into it."""

    def __init__(self, kube: Kube, kubeconfig: Path) -> None:
        self.kube = kube
        self.kubeconfig = kubeconfig

    async def command(self, *argv: str) -> tuple[int, str, str]:
        """A command against this API: its exit code, its output, its complaints."""
        return await asyncio.to_thread(run_here, *argv, "--kubeconfig", str(self.kubeconfig))

    async def host(
        self, name: str, labels: dict[str, str], *, ready: str = "True", **more: Any
    ) -> None:
        await self.kube.create(NODES, {"metadata": {"name": name, "labels": labels}, **more})
        beat = to_rfc3339(RealClock().now())
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": beat}
        size = {"cpu": "10", "memory": "16Gi", "pods": "2"}
        status = {"conditions": [condition], "allocatable": size, "capacity": size}
        await self.kube.patch(NODES, name, {"status": status}, subresource="status")

    async def runner(
        self, pool: str, name: str, *, busy: bool = False, host: str = "", image: str = "vm:1"
    ) -> None:
        """One runner that runs, idle or with an owner."""
        labels = {names.RUNNER: "true", names.RUNNER_POOL: pool}
        labels |= {names.POOL_OWNER: "acme"} if busy else {}
        spec: dict[str, Any] = {"containers": [{"name": "runner", "image": image}]}
        spec |= {"nodeName": host} if host else {}
        await self.kube.create(
            PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec}, namespace=SPACE
        )
        await self.kube.patch(
            PODS, name, {"status": {"phase": "Running"}}, namespace=SPACE, subresource="status"
        )

    async def spec(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.kube.get(RUNNER_POOLS, name, namespace=SPACE))["spec"]
        return found


@contextlib.asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    core = KubeCore(clock=RealClock(), rng=random.Random(1), security=Security(rbac=True))
    core.guard(authenticator((ADMIN,), core.tokens))
    listening = await listen(core.handle)
    try:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(render(listening.url, token=ADMIN, namespace=SPACE))
        yield Fleet(Kube(Loopback(core.handle), token=lambda: ADMIN), kubeconfig)
    finally:
        await listening.close()


def play(scenario: Callable[[Fleet], Awaitable[None]], folder: Path) -> None:
    """Run a scenario against a fresh API."""

    async def main() -> None:
        async with asyncio.timeout(60), fleet(folder) as made:
            await scenario(made)

    asyncio.run(main())


async def stranger(made: Fleet) -> str:
    """The token of an account without any right."""
    with contextlib.suppress(Exception):
        await made.kube.create(NAMESPACES, {"metadata": {"name": SPACE}})
    await made.kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "guest"}}, namespace=SPACE)
    return await made.kube.create_token("guest", namespace=SPACE, audience="", seconds=3600)
