"""Three `runyard operator` processes on a real API server: killed, cut off and stopped, one at most writes."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import controlplane
import msgspec
import pytest
from tests.conformance.kube.clusters import KUBECTL, kubectl, manifests
from tests.conftest import Absent

from runyard.embedded.kube.kubeconfig import render
from runyard.http.client import HttpTransport
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError, NotFound
from runyard.kube.kinds import LEASES, NODES, PODS, RUNNER_POOLS
from runyard.wire import names

NS = names.RUNNERS_NAMESPACE
REPLICAS = 4
USERS = tuple(f"operator-{number}" for number in (1, 2, 3))
RESET = 7  # the state of a TCP connection that was reset; one that was closed in order is in 8
TIMEOUT = 90.0  # a busy machine; an idle one needs 18 s


@pytest.fixture
def plane(absent: Absent) -> Iterator[controlplane.ControlPlane]:
    assets = controlplane.find_assets(os.environ)
    if assets is None:
        absent("a real kube-apiserver", controlplane.HOW)
    if not KUBECTL.exists():
        absent("kubectl", "make .venv/ready installs it")
    folder = Path(tempfile.mkdtemp(prefix="runyard-kube-"))
    users = tuple((f"token-of-{user}", user, "system:masters") for user in USERS)
    try:
        with controlplane.ControlPlane(
            assets, folder, controllers=False, scheduler=False, users=users, audited=True
        ) as started:
            if not started.modern:
                pytest.skip(f"the manifests need Kubernetes 1.30, not {started.git_version}")
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Line:
    """A relay between one operator and the API server that can be cut without closing connections.

    A cut holds what the operator sends, and still brings it the events of its watches: it writes as long as it may.
    What was held goes on when the line is restored, as a kernel would send it again, unless the operator's kernel has
    reset the connection meanwhile: then it has nothing left to send.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._whole = asyncio.Event()
        self._whole.set()
        self.held = 0  # pieces that a cut held
        self.discarded = 0  # of them, those whose connection was reset
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self._whole.clear()

    def restore(self) -> None:
        self._whole.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    sender = writer.get_extra_info("socket")
                    group.create_task(self._pump(reader, there[1], sender))
                    group.create_task(self._pump(there[0], writer, None))
            finally:
                there[1].close()
        except* (OSError, EOFError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        sender: socket.socket | None,
    ) -> None:
        while chunk := await source.read(65536):
            if sender is not None and not self._whole.is_set():
                self.held += 1
                await self._whole.wait()
                if sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == RESET:
                    self.discarded += 1
                    raise EOFError
            sink.write(chunk)
            await sink.drain()
        raise EOFError


class Replica:
    """One `runyard operator` process."""

    def __init__(self, user: str, folder: Path, line: Line) -> None:
        self.user = user
        self.line = line
        self._config = folder / f"{user}.kubeconfig"
        self._log = folder / f"{user}.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, plane: controlplane.ControlPlane, port: int) -> None:
        ca = plane.authority.certificate
        url = f"https://127.0.0.1:{port}"
        self._config.write_text(render(url, token=f"token-of-{self.user}", ca=ca))
        argv = (
            "-m",
            "runyard.cli.main",
            "operator",
            "--listen",
            "127.0.0.1:0",
            "--name",
            self.user,
        )
        argv += ("--kubeconfig", str(self._config), "--dispatch-url", "http://127.0.0.1:1/dispatch")
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *argv, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def noticed(self) -> None:
        """Waits until the process logs that it no longer leads: by then its last writes were sent."""
        async with asyncio.timeout(TIMEOUT):
            while b"not leading any more" not in self._log.read_bytes():
                await asyncio.sleep(0.1)

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


class ChurningCluster:
    """A cluster whose Pods are deleted continually, and three operators that replace them."""

    def __init__(self, plane: controlplane.ControlPlane, folder: Path) -> None:
        self.plane = plane
        transport = HttpTransport(plane.url, tls=plane.tls())
        self.transport = transport
        self.kube = Kube(transport, token=lambda: controlplane.ADMIN)
        self.replicas = [Replica(user, folder, Line(plane.port)) for user in USERS]
        self.alive: set[str] = set()
        self.most = 0
        self.created = 0

    async def holder(self) -> str:
        try:
            lease = await self.kube.get(
                LEASES, names.CONTROLLER_LEASE, namespace=names.CONTROLLER_NAMESPACE
            )
        except NotFound:
            return ""
        return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]

    async def leader(self, *, other_than: str = "") -> Replica:
        """Waits until a leader has replaced another Pod; returns it."""
        async with asyncio.timeout(TIMEOUT):
            while (held := await self.holder()) in ("", other_than):
                await asyncio.sleep(0.2)
            before = self.created
            while self.created == before:
                await asyncio.sleep(0.2)
        return next(each for each in self.replicas if each.user == held)

    async def watch(self) -> None:
        """Counts the Pods after every watch event."""
        while True:
            listing = await self.kube.list(PODS, namespace=NS)
            self.alive = {pod["metadata"]["name"] for pod in listing.items}
            self._counted()
            stream = await self.kube.watch(
                PODS, resource_version=listing.resource_version, namespace=NS
            )
            rest = b""
            try:
                async for chunk in stream:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._event(msgspec.json.decode(line))
            finally:
                await stream.aclose()

    def _event(self, event: dict[str, Any]) -> None:
        name = event["object"]["metadata"].get("name", "")
        if event["type"] == "ADDED":
            self.created += 1
            self.alive.add(name)
        elif event["type"] == "DELETED":
            self.alive.discard(name)
        self._counted()

    def _counted(self) -> None:
        self.most = max(self.most, len(self.alive))
        assert len(self.alive) <= REPLICAS, sorted(self.alive)

    async def churn(self) -> None:
        rng = random.Random(4)
        while True:
            await asyncio.sleep(rng.uniform(0.1, 0.6))
            if self.alive:
                with contextlib.suppress(KubeError):
                    name = rng.choice(sorted(self.alive))
                    await self.kube.delete(PODS, name, namespace=NS, grace=0)

    async def prepare(self, config: Path) -> None:
        text = await asyncio.to_thread(manifests)
        await asyncio.to_thread(kubectl, config, "apply", "-f", "-", stdin=text)
        established = ("wait", "--for=condition=established", "crd/runnerpools.tuist.dev")
        await asyncio.to_thread(kubectl, config, *established)
        labels = {
            names.NODE_OS: "linux",
            names.NODE_RUNTIME: names.NODE_RUNTIME_PROCESS,
            names.NODE_FLEET: "local",
        }
        await self.kube.create(NODES, {"metadata": {"name": "mini-1", "labels": labels}})
        capacity = {"cpu": "64", "memory": "64Gi", "pods": "64"}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await self.kube.patch(NODES, "mini-1", {"status": status}, subresource="status")
        spec = {
            "image": "runner:1",
            "fleetSelector": "local",
            "dispatchLabel": "runyard",
            "runnerLabels": ["self-hosted"],
            "replicas": REPLICAS,
            "os": "linux",
            "runtimeClass": "runyard-process",
        }
        body = {"metadata": {"name": "practice"}, "spec": spec}
        await self.kube.create(RUNNER_POOLS, body, namespace=NS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.watch()), group.create_task(self.churn())]
                for replica in self.replicas:
                    await replica.start(self.plane, await replica.line.open())
                yield
                for task in tasks:
                    task.cancel()
        finally:
            for replica in self.replicas:
                await replica.end()
                await replica.line.close()
            await self.transport.close()


def writes_without_lease(plane: controlplane.ControlPlane) -> list[str]:
    """Writes by an operator that did not hold the lease, in the order of the API server's audit log."""
    found, leader = [], ""
    for request in plane.audit():
        if (
            request.user not in USERS
            or request.verb in ("get", "list", "watch")
            or request.code >= 300
        ):
            continue
        if "/leases" in request.path:
            leader = request.user
        elif request.user != leader:
            found.append(f"{request.user} {request.verb} {request.path} while {leader} led")
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_fault_of_the_leader_makes_two_writers_or_one_pod_too_many(
    plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    async def main() -> None:
        cluster = ChurningCluster(plane, tmp_path)
        await cluster.prepare(plane.write_kubeconfig(tmp_path / "admin.kubeconfig"))
        async with cluster.running():
            killed = await cluster.leader()
            killed.signal(signal.SIGKILL)
            cut = await cluster.leader(other_than=killed.user)
            cut.line.cut()
            stopped = await cluster.leader(other_than=cut.user)
            cut.line.restore()
            assert cut.line.held > 0
            stopped.signal(signal.SIGSTOP)
            last = await cluster.leader(other_than=stopped.user)
            stopped.signal(signal.SIGCONT)
            await stopped.noticed()
            assert await cluster.holder() == last.user
            last.signal(signal.SIGTERM)  # in order: the next one need not wait for fifteen seconds
            assert last.process is not None and await last.process.wait() == 0
            await cluster.leader(other_than=last.user)
        assert cluster.most == REPLICAS

    asyncio.run(main())
    assert writes_without_lease(plane) == []
