"""Tests readiness of operator and agent: a component whose loops fail is not ready."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runyard.components import agent, operator
from runyard.embedded.kube.core import KubeCore
from runyard.http.errors import NotSent
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.kube.client import Kube
from runyard.kube.kinds import RUNNER_POOLS
from runyard.node.deps import Deps as AgentDeps
from runyard.node.records import Records
from runyard.node.settings import Settings as NodeSettings
from runyard.pools.deps import Deps as OperatorDeps
from runyard.pools.settings import Settings as PoolSettings
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmError, VmSpec, VmView
from runyard.wire import names

LONG = 2000.0  # longer than every loop may be silent
Fails = Callable[[Request], bool]


class Line:
    """A transport to the API; requests for which `fails` is true are not sent."""

    def __init__(self, core: KubeCore) -> None:
        self._onward = Loopback(core.handle)
        self.fails: Fails = lambda _: False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if self.fails(request):
            raise NotSent("connection refused")
        return await self._onward.send(request, timeout=timeout)


class Driver(SimDriver):
    """A driver whose list of VMs can fail."""

    broken = False

    async def list(self) -> tuple[VmView, ...]:
        if self.broken:
            raise VmError("no such program")
        return await super().list()


async def _job(_: VmSpec, __: str) -> int:
    return 0


class Harness:
    """A cluster, and one component with its probes."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.core = KubeCore(clock=self.clock, rng=random.Random(1))
        self.admin = Kube(Loopback(self.core.handle))
        self.line = Line(self.core)
        self.driver = Driver(self.clock, host=Host(), guest=_job)
        self.health = Health(self.clock, conditions.ALL)
        self.freshness = Freshness(self.clock)
        self.meter = Meter()
        self.probes = Routes(
            "component", "1", probe_routes(self.health, self.freshness, self.meter)
        )
        self._directory = directory

    def common(self) -> dict[str, Any]:
        return {
            "clock": self.clock,
            "rng": random.Random(2),
            "kube": Kube(self.line),
            "meter": self.meter,
            "log": get_logger("test"),
            "health": self.health,
            "freshness": self.freshness,
        }

    def operator(self) -> Awaitable[None]:
        deps = OperatorDeps(server=None, settings=PoolSettings(), **self.common())
        return operator.run(deps)

    def agent(self) -> Awaitable[None]:
        deps = AgentDeps(
            driver=self.driver,
            records=Records(self._directory, durable=False),
            settings=NodeSettings(node_name="mini-1", fleet="macs"),
            **self.common(),
        )
        return agent.run(deps)

    @contextlib.asynccontextmanager
    async def running(self, component: str) -> AsyncIterator[None]:
        async def run() -> None:
            await (self.operator() if component == "operator" else self.agent())

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            yield
            task.cancel()

    async def pool(self, name: str) -> None:
        spec: dict[str, Any] = {"image": "vm:1", "fleetSelector": "f", "dispatchLabel": "x"}
        spec |= {"runnerLabels": ["self-hosted"], "replicas": 1}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.admin.create(RUNNER_POOLS, body, namespace=names.RUNNERS_NAMESPACE)

    async def ready(self) -> tuple[int, list[str], list[str]]:
        """The status, the stale loops and the failing conditions."""
        got = await self.probes.handle(Request(method="GET", path="/readyz"))
        assert isinstance(got, Response)
        body = got.json()
        assert body["ready"] == (got.status == 200)
        stale = [loop["loop"] for loop in body["stale"]]
        return got.status, stale, [condition["code"] for condition in body["conditions"]]


def play(scenario: Callable[[Harness], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        await scenario(Harness(directory))

    run_virtual(main())


WATCHES = [
    "node-reflector",
    "service-account-reflector",
    "pod-reflector",
    "runner-pool-reflector",
]
EVERY_LOOP = {
    "operator": [*WATCHES, "runner-pool-controller"],
    "agent": [
        "garbage-collection",
        "image-inventory",
        "node-lease",
        "guest-probes",
        "node-status",
        "vm-list",
        "pod-reflector",
    ],
}
OF_THE_API = {"operator": WATCHES, "agent": ["node-lease", "node-status", "pod-reflector"]}


@pytest.mark.parametrize("component", EVERY_LOOP)
def test_a_component_that_cannot_reach_the_api_is_never_ready(
    component: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.line.fails = lambda _: True
        async with harness.running(component):
            await harness.clock.sleep(20)
            status, stale, codes = await harness.ready()
            assert (status, codes) == (503, ["kubernetes-unreachable"])
            assert set(OF_THE_API[component]) <= set(stale)

    play(scenario, tmp_path)


@pytest.mark.parametrize("component", EVERY_LOOP)
def test_every_loop_is_announced_and_a_working_component_stays_ready(
    component: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool("mac")
        async with harness.running(component):
            await harness.clock.sleep(1)
            assert await harness.ready() == (200, [], [])
            for _ in range(40):
                await harness.clock.sleep(50)
                assert await harness.ready() == (200, [], [])
        await harness.clock.sleep(LONG)  # a component whose loops have ended is not ready
        status, stale, _ = await harness.ready()
        assert (status, sorted(stale)) == (503, sorted(EVERY_LOOP[component]))

    play(scenario, tmp_path)


def of(what: str) -> Fails:
    return lambda request: what in request.path


BROKEN: dict[str, tuple[str, Fails, list[str]]] = {
    "the operator's watches": ("operator", of("/api"), [*WATCHES, "runner-pool-controller"]),
    "the operator's writes": (
        "operator",
        lambda request: request.method != "GET",
        ["runner-pool-controller"],
    ),
    "one watch of four": ("operator", of("/nodes"), ["node-reflector"]),
    "the agent's heartbeat": ("agent", of("/leases/"), ["node-lease"]),
    "the agent's node": ("agent", of("/nodes/"), ["node-status"]),
    "the agent's watch": ("agent", of("/pods"), ["pod-reflector"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_failing_loop_is_named_until_it_succeeds_again(name: str, tmp_path: Path) -> None:
    component, fails, loops = BROKEN[name]

    async def scenario(harness: Harness) -> None:
        await harness.pool("mac")
        async with harness.running(component):
            await harness.clock.sleep(10)
            assert (await harness.ready())[0] == 200
            harness.line.fails = fails
            harness.core.close_watches()
            await harness.clock.sleep(LONG)
            status, stale, _ = await harness.ready()
            assert (status, stale) == (503, loops)
            harness.line.fails = lambda _: False
            await harness.clock.sleep(120)
            assert await harness.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_a_failing_driver_makes_the_agent_unready_and_the_heartbeat_continues(
    tmp_path: Path,
) -> None:
    async def scenario(harness: Harness) -> None:
        async with harness.running("agent"):
            await harness.clock.sleep(10)
            harness.driver.broken = True
            await harness.clock.sleep(LONG)
            status, stale, _ = await harness.ready()
            assert (status, stale) == (503, ["vm-list"])
            harness.driver.broken = False
            await harness.clock.sleep(120)
            assert await harness.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_one_pool_that_fails_is_not_hidden_by_one_that_works(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool("good")
        async with harness.running("operator"):
            await harness.clock.sleep(10)
            assert (await harness.ready())[0] == 200
            harness.line.fails = of("/runnerpools/bad")
            await harness.pool("bad")
            await harness.clock.sleep(LONG)
            assert (await harness.ready())[:2] == (503, ["runner-pool-controller"])

    play(scenario, tmp_path)


def test_an_operator_without_pools_is_ready(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        async with harness.running("operator"):
            await harness.clock.sleep(LONG)
            assert await harness.ready() == (200, [], [])
            await harness.pool("mac")
            await harness.clock.sleep(5)
            await harness.admin.delete(RUNNER_POOLS, "mac", namespace=names.RUNNERS_NAMESPACE)
            await harness.clock.sleep(LONG)
            assert await harness.ready() == (200, [], [])
            harness.line.fails = lambda request: request.method != "GET"
            await harness.pool("mac")  # of the same name, without its last success
            await harness.clock.sleep(5)
            assert await harness.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_a_component_without_permissions_reports_kubernetes_refused(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        async with harness.running("operator"):
            await harness.clock.sleep(10)

            async def refuse(request: Request, *, timeout: float) -> Response | Stream:
                return Response(status=403, body=b"{}")

            harness.line.send = refuse  # type: ignore[method-assign]  # from now on
            harness.core.close_watches()
            await harness.clock.sleep(60)
            status, _, codes = await harness.ready()
            assert (status, codes) == (503, ["kubernetes-refused"])

    play(scenario, tmp_path)
