"""An operator or an agent that answers its probes and does not do its work must not look ready."""

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
    """The way to the API; requests that `fails` holds for never arrive."""

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


class Yard:
    """A cluster, and one part as it is shipped, with its probes."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.core = KubeCore(clock=self.clock, rng=random.Random(1))
        self.admin = Kube(Loopback(self.core.handle))
        self.line = Line(self.core)
        self.driver = Driver(self.clock, host=Host(), guest=_job)
        self.health = Health(self.clock, conditions.ALL)
        self.freshness = Freshness(self.clock)
        self.meter = Meter()
        self.probes = Routes("part", "1", probe_routes(self.health, self.freshness, self.meter))
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
    async def running(self, part: str) -> AsyncIterator[None]:
        async def run() -> None:
            await (self.operator() if part == "operator" else self.agent())

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
        """The status, the loops that are behind, and what a person is told."""
        got = await self.probes.handle(Request(method="GET", path="/readyz"))
        assert isinstance(got, Response)
        told = got.json()
        assert told["ready"] == (got.status == 200)
        stale = [loop["loop"] for loop in told["stale"]]
        return got.status, stale, [condition["code"] for condition in told["conditions"]]


def play(scenario: Callable[[Yard], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        await scenario(Yard(directory))

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


@pytest.mark.parametrize("part", EVERY_LOOP)
def test_a_part_that_cannot_reach_the_api_was_never_ready(part: str, tmp_path: Path) -> None:
    async def scenario(yard: Yard) -> None:
        yard.line.fails = lambda _: True
        async with yard.running(part):
            await yard.clock.sleep(20)
            status, stale, told = await yard.ready()
            assert (status, told) == (503, ["kubernetes-unreachable"])
            assert set(OF_THE_API[part]) <= set(stale)

    play(scenario, tmp_path)


@pytest.mark.parametrize("part", EVERY_LOOP)
def test_every_loop_is_announced_and_a_working_part_stays_ready(part: str, tmp_path: Path) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool("mac")
        async with yard.running(part):
            await yard.clock.sleep(1)
            assert await yard.ready() == (200, [], [])
            for _ in range(40):
                await yard.clock.sleep(50)
                assert await yard.ready() == (200, [], [])
        await yard.clock.sleep(LONG)  # a part whose loops have ended is not ready
        status, stale, _ = await yard.ready()
        assert (status, sorted(stale)) == (503, sorted(EVERY_LOOP[part]))

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
def test_what_fails_is_named_and_forgotten_when_it_works_again(name: str, tmp_path: Path) -> None:
    part, fails, loops = BROKEN[name]

    async def scenario(yard: Yard) -> None:
        await yard.pool("mac")
        async with yard.running(part):
            await yard.clock.sleep(10)
            assert (await yard.ready())[0] == 200
            yard.line.fails = fails
            yard.core.close_watches()
            await yard.clock.sleep(LONG)
            status, stale, _ = await yard.ready()
            assert (status, stale) == (503, loops)
            yard.line.fails = lambda _: False
            await yard.clock.sleep(120)
            assert await yard.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_a_driver_that_fails_makes_the_agent_unready_and_the_heartbeat_goes_on(
    tmp_path: Path,
) -> None:
    async def scenario(yard: Yard) -> None:
        async with yard.running("agent"):
            await yard.clock.sleep(10)
            yard.driver.broken = True
            await yard.clock.sleep(LONG)
            status, stale, _ = await yard.ready()
            assert (status, stale) == (503, ["vm-list"])
            yard.driver.broken = False
            await yard.clock.sleep(120)
            assert await yard.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_one_pool_that_fails_is_not_hidden_by_one_that_works(tmp_path: Path) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool("good")
        async with yard.running("operator"):
            await yard.clock.sleep(10)
            assert (await yard.ready())[0] == 200
            yard.line.fails = of("/runnerpools/bad")
            await yard.pool("bad")
            await yard.clock.sleep(LONG)
            assert (await yard.ready())[:2] == (503, ["runner-pool-controller"])

    play(scenario, tmp_path)


def test_an_operator_without_pools_is_ready(tmp_path: Path) -> None:
    async def scenario(yard: Yard) -> None:
        async with yard.running("operator"):
            await yard.clock.sleep(LONG)
            assert await yard.ready() == (200, [], [])
            await yard.pool("mac")
            await yard.clock.sleep(5)
            await yard.admin.delete(RUNNER_POOLS, "mac", namespace=names.RUNNERS_NAMESPACE)
            await yard.clock.sleep(LONG)
            assert await yard.ready() == (200, [], [])
            yard.line.fails = lambda request: request.method != "GET"
            await yard.pool("mac")  # of the same name, and nothing of its past
            await yard.clock.sleep(5)
            assert await yard.ready() == (200, [], [])

    play(scenario, tmp_path)


def test_a_part_that_is_refused_says_which_roles_to_look_at(tmp_path: Path) -> None:
    async def scenario(yard: Yard) -> None:
        async with yard.running("operator"):
            await yard.clock.sleep(10)

            async def refuse(request: Request, *, timeout: float) -> Response | Stream:
                return Response(status=403, body=b"{}")

            yard.line.send = refuse  # type: ignore[method-assign]  # from now on
            yard.core.close_watches()
            await yard.clock.sleep(60)
            status, _, told = await yard.ready()
            assert (status, told) == (503, ["kubernetes-refused"])

    play(scenario, tmp_path)
