"""Runs the operator on the embedded Kubernetes API in virtual time, with hosts that boot and stop Pods.

A host does only what the operator can see: a bound Pod runs after a while, and a Pod that is being deleted
disappears after a while.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from tests.pools.pool_builders import NEW

from runyard.embedded.kube.core import KubeCore
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS, Kind
from runyard.pools.deps import Deps
from runyard.pools.operator import Operator
from runyard.pools.settings import Settings
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

NS = names.RUNNERS_NAMESPACE
Hook = Callable[[Request], Awaitable[Response | None]]


class Gate:
    """A transport with hooks, in which a test may act before a request, respond to it or fail it."""

    def __init__(self, inner: Loopback) -> None:
        self._inner = inner
        self.before: Hook | None = None
        self.after: Hook | None = None
        self.garbled: tuple[bytes, bytes] | None = None  # bytes of responses, and their replacement
        self.log: list[tuple[str, str]] = []

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.log.append((request.method, request.path))
        if self.before is not None and (answer := await self.before(request)) is not None:
            return answer
        result = await self._inner.send(request, timeout=timeout)
        if self.after is not None and (answer := await self.after(request)) is not None:
            return answer
        return self._garble(result)

    def _garble(self, answer: Response | Stream) -> Response | Stream:
        def received(part: bytes) -> bytes:
            return part.replace(*self.garbled) if self.garbled else part

        if isinstance(answer, Response):
            return msgspec.structs.replace(answer, body=received(answer.body))

        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in answer:
                yield received(chunk)

        return Stream(chunks(), status=answer.status, headers=answer.headers, on_close=answer.close)


RUNTIMES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)


class PoolHarness:
    """A cluster with one operator."""

    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.core = KubeCore(clock=self.clock, rng=random.Random(1))
        self.kube = Kube(Loopback(self.core.handle))
        self.gate = Gate(Loopback(self.core.handle))
        self.meter = Meter()
        self.reports: list[str] = []
        self.boot = 20.0
        self.boots_to = "Running"
        self.hosts_work = True
        self.settings = Settings(**settings)
        self.operator = self.new_operator(2)

    def new_operator(self, seed: int) -> Operator:
        return Operator(
            Deps(
                kube=Kube(self.gate),
                server=Loopback(self._serve),
                clock=self.clock,
                rng=random.Random(seed),
                meter=self.meter,
                log=get_logger("test"),
                settings=self.settings,
                health=Health(self.clock, conditions.ALL),
                freshness=Freshness(self.clock),
            )
        )

    async def run_until_crash(self, at: int, *, sent: bool) -> bool:
        """Run the operator until its write of that number and end it there; False if there were fewer writes."""
        crash = asyncio.Event()
        count = 0

        async def die(request: Request) -> Response | None:
            nonlocal count
            if request.method != "GET":
                count += 1
                if count == at:
                    crash.set()
                    await asyncio.Event().wait()  # no response ever arrives
            return None

        self.gate.before, self.gate.after = (None, die) if sent else (die, None)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.operator.run())
            with contextlib.suppress(TimeoutError):
                async with self.clock.timeout(60):
                    await crash.wait()
            task.cancel()
        self.gate.before = self.gate.after = None
        self.operator = self.new_operator(3)
        return crash.is_set()

    async def _serve(self, request: Request) -> Response:
        self.reports.append(str(Response(status=200, body=request.body).json()["pod_name"]))
        return Response(status=204)

    async def host(self, name: str, *, slots: int = 1, os: str = "darwin") -> None:
        labels = {
            names.NODE_OS: "darwin",
            names.NODE_RUNTIME: names.NODE_RUNTIME_TART,
            names.NODE_FLEET: "minis",
        }
        if os == "linux":
            labels = {
                names.NODE_OS: "linux",
                names.NODE_ARCH: "amd64",
                names.NODE_LINUX_POOL: "minis",
            }
        body = {"metadata": {"name": name, "labels": labels}, "spec": {}}
        await self.kube.create(NODES, body)
        size = {"cpu": str(8 * slots), "memory": f"{14336 * slots}Mi", "pods": str(slots)}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": size, "allocatable": size, "conditions": [ready]}
        await self.kube.patch(NODES, name, {"status": status}, subresource="status")

    async def runtime(self, name: str) -> None:
        """A RuntimeClass, without which no Pod may name it."""
        await self.kube.create(RUNTIMES, {"metadata": {"name": name}, "handler": name})

    async def pool(self, replicas: int, *, name: str = "mac", **more: Any) -> None:
        spec = {
            "image": NEW,
            "fleetSelector": "minis",
            "dispatchLabel": "shape-macos",
            "runnerLabels": ["self-hosted"],
            "replicas": replicas,
            **more,
        }
        body = {"metadata": {"name": name}, "spec": spec}
        await self.kube.create(RUNNER_POOLS, body, namespace=NS)

    async def set(self, **spec: Any) -> None:
        await self.kube.patch(RUNNER_POOLS, "mac", {"spec": spec}, namespace=NS)

    async def stamp(self, name: str) -> None:
        body = {"metadata": {"labels": {names.POOL_OWNER: "acme"}}}
        await self.kube.patch(PODS, name, body, namespace=NS)

    async def finish(self, name: str, phase: str = "Succeeded") -> None:
        await self.kube.patch(
            PODS, name, {"status": {"phase": phase}}, namespace=NS, subresource="status"
        )

    def pods(self) -> list[dict[str, Any]]:
        return list(self.core.objects("pods"))

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods()]

    def running(self) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.pods()
            if pod.get("status", {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def accounts(self) -> list[str]:
        found = [account["metadata"] for account in self.core.objects("serviceaccounts")]
        return [meta["name"] for meta in found if names.RUNNER_POOL in meta.get("labels", {})]

    def status(self) -> dict[str, Any]:
        pool = self.core.find("runnerpools", NS, "mac")
        assert pool is not None
        return dict(pool.get("status", {}))

    async def run_hosts(self) -> None:
        while True:
            await self.clock.sleep(1.0)
            for pod in self.pods() if self.hosts_work else ():
                await self._host_step(pod)

    async def _host_step(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            await self.kube.delete(PODS, meta["name"], namespace=NS, uid=meta["uid"], grace=0)
            return
        age = self.clock.now() - from_rfc3339(meta["creationTimestamp"])
        status = pod.get("status", {})
        if age < self.boot or status.get("phase", "Pending") != "Pending":
            return
        if "initContainers" not in pod["spec"]:
            await self.finish(meta["name"], self.boots_to)
        elif not status.get("initContainerStatuses"):
            await self._start_poller(meta["name"])

    async def _start_poller(self, name: str) -> None:
        poller = {"name": "poller", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        status = {"initContainerStatuses": [poller]}
        await self.kube.patch(PODS, name, {"status": status}, namespace=NS, subresource="status")

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.operator.run()), group.create_task(self.run_hosts())]
            yield
            for task in tasks:
                task.cancel()


def play(
    scenario: Callable[[PoolHarness], Awaitable[None]], *, seed: int = 0, **settings: Any
) -> None:
    """Run a scenario with a new harness."""

    async def main() -> None:
        harness = PoolHarness(**settings)
        await scenario(harness)
        assert not harness.core.failures

    run_virtual(main(), seed=seed)
