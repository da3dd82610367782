"""Runs `tart-kubelet` as a process, with the stand-in of tart, against a Kubernetes API behind a socket.

The agent has the shipped account of one host and nothing else. It can be killed and started again on the same data.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.conformance.kube import clusters
from tests.conformance.kube.clusters import Cluster
from tests.standins.tart.helper import StandIn

from runyard.clock import RealClock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.up.layout import Layout
from runyard.http.client import HttpTransport
from runyard.http.messages import Request
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import NODES, PODS, SERVICE_ACCOUNTS
from runyard.wire import names

NODE = "mini-1"
SPACE = names.RUNNERS_NAMESPACE
IMAGE = "registry.test/mac/runner:1"
SOON = 60.0  # generous: the machine may be busy
SELECTS = {names.NODE_RUNTIME: names.NODE_RUNTIME_TART}
TAINT = {"key": names.NODE_TAINT, "operator": "Exists", "effect": "NoSchedule"}


class TartHost:
    """One Mac: its tart, its agent, and the cluster that it belongs to."""

    def __init__(self, folder: Path, cluster: Cluster, transport: HttpTransport) -> None:
        self.folder = folder
        self.tart = StandIn(folder)
        self.cluster = cluster
        self.kube = Kube(transport, token=lambda: cluster.admin)
        self.clock = RealClock()
        self.agent: asyncio.subprocess.Process | None = None
        self.log = folder / "agent.log"
        self.layout = Layout(folder / "data")

    async def start(self, *flags: str) -> None:
        """Start the agent and wait until it serves."""
        token = (self.layout.root / "tokens" / NODE).read_text().strip()
        config = self.folder / "kubeconfig"
        config.write_text(
            render(self.cluster.url, token=token, ca=self.cluster.authority.certificate)
        )
        argv = [
            *(sys.executable, "-m", "runyard.cli.tart_kubelet"),
            *(f"-node-name={NODE}", f"--kubeconfig={config}", f"--data={self.folder / 'agent'}"),
            *(f"--tart-binary={self.tart.program}", "--node-labels=tuist.dev/fleet=macs,a=b"),
            *("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
            *flags,
        ]
        with self.log.open("ab") as log:
            self.agent = await asyncio.create_subprocess_exec(
                *argv,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self.tart.environment,
            )
        assert self.agent.stdout is not None
        async with asyncio.timeout(SOON):
            line = await self.agent.stdout.readline()
        assert line, self.log.read_text()
        self.urls = msgspec.json.decode(line)["urls"]

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """End the agent."""
        assert self.agent is not None
        if self.agent.returncode is None:
            self.agent.send_signal(number)
        async with asyncio.timeout(SOON):
            return await self.agent.wait()

    async def get(self, url: str, path: str) -> tuple[int, str]:
        """Ask the agent's own server."""
        way = HttpTransport(url)
        try:
            answer = await way.send(Request(method="GET", path=path), timeout=10.0)
            assert not hasattr(answer, "pieces")
            return answer.status, answer.body.decode()
        finally:
            await way.close()

    async def add_pod(
        self, name: str, *, image: str, grace: int = 5, space: str = SPACE, **container: Any
    ) -> None:
        """Add a Pod that is no runner and bound to this host."""
        await self.kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=space)
        body = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": NODE,
                "nodeSelector": SELECTS,
                "tolerations": [TAINT],
                "serviceAccountName": name,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "main", "image": image, **container}],
            },
        }
        await self.kube.create(PODS, body, namespace=space)

    async def pod(self, name: str, *, space: str = SPACE) -> dict[str, Any] | None:
        try:
            return await self.kube.get(PODS, name, namespace=space)
        except NotFound:
            return None

    async def phase(self, name: str, *, space: str = SPACE) -> str:
        found = await self.pod(name, space=space)
        return "gone" if found is None else str(found.get("status", {}).get("phase", ""))

    async def node(self) -> dict[str, Any] | None:
        try:
            return await self.kube.get(NODES, NODE)
        except NotFound:
            return None

    async def until(self, holds: Callable[[], Awaitable[object]], *, what: str) -> None:
        """Wait until it holds; the agent's log is shown if it never does."""
        try:
            async with asyncio.timeout(SOON):
                while not await holds():
                    await self.clock.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{what}\n{self.log.read_text()[-4000:]}") from None

    async def until_phase(self, name: str, phase: str, *, space: str = SPACE) -> None:
        async def reached() -> bool:
            return await self.phase(name, space=space) == phase

        await self.until(reached, what=f"{name} did not become {phase}")

    @property
    def vms(self) -> list[str]:
        """Every VM that tart lists, golden ones excepted."""
        listed = msgspec.json.decode(
            self.tart.call("list", "--source", "local", "--format", "json").out
        )
        return [vm["Name"] for vm in listed if not vm["Name"].startswith("runyard-golden-")]


@contextlib.asynccontextmanager
async def tart_host(cluster: Cluster, folder: Path) -> AsyncIterator[TartHost]:
    """A host whose account exists in the cluster; its VMs and its agent end with it."""
    transport = cluster.transport()
    host = TartHost(folder, cluster, transport)
    host.layout.root.mkdir(parents=True, exist_ok=True)
    (host.layout.root / "tokens").mkdir(exist_ok=True)
    try:
        await clusters.prepare(cluster, transport, host.layout, (NODE,))
        yield host
    finally:
        if host.agent is not None:
            await host.kill()
        for vm in host.vms:
            host.tart.call("stop", vm, "--timeout", "0")
        await transport.close()
