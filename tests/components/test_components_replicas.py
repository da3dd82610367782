"""Tests three operators on the embedded API, in virtual time: only the leader writes, under any fault."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.pools.pool_harness import NS, PoolHarness

from runyard.components import operator
from runyard.components.operator import Candidate
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import LEASES, PODS
from runyard.pools.deps import Deps
from runyard.pools.settings import Settings
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.sim.network import Faults, Link
from runyard.sim.process import Process, wrap_transport
from runyard.sim.trace import Trace
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names

REPLICAS = 4
LEASE = (names.CONTROLLER_NAMESPACE, names.CONTROLLER_LEASE)


class Replica:
    """One operator as a process, with its own link to the API."""

    def __init__(self, name: str, trio: "Trio") -> None:
        self.name = name
        self._trio = trio
        self.process = Process(name, trace=trio.trace)
        self.link = Link(
            name,
            self._handle,
            rng=random.Random(name),
            trace=trio.trace,
            faults=Faults(latency=(0.001, 0.05)),
        )
        self.clock = VirtualClock(skew=random.Random(f"{name} skew").uniform(-3600, 3600))
        self.freshness = Freshness(self.clock)
        self._transport = wrap_transport(self.process, self.link, name="kube")

    @property
    def identity(self) -> str:
        return f"{self.name}#{self.process.starts}"

    def start(self) -> None:
        self.freshness = Freshness(self.clock)
        self.process.start(self._main)

    async def _main(self) -> None:
        deps = Deps(
            kube=Kube(self._transport, agent=self.identity),
            clock=self.clock,
            rng=random.Random(f"{self.identity} own"),
            meter=Meter(),
            log=get_logger("operator", replica=self.name),
            settings=Settings(),
            health=Health(self.clock, conditions.ALL),
            freshness=self.freshness,
        )
        await operator.run(deps, candidate=Candidate(identity=self.identity))

    async def _handle(self, request: Request) -> Response | Stream:
        lease = f"/leases/{names.CONTROLLER_LEASE}" in request.path or request.path.endswith(
            "/leases"
        )
        if request.method != "GET" and not lease:
            self._trio.wrote(request.header("user-agent"), request)
        return await self._trio.harness.core.handle(request)


class Trio:
    """A cluster with three operators, which records writes of replicas that do not lead."""

    def __init__(self) -> None:
        self.harness = PoolHarness()
        self.harness.boot = 3.0
        self.trace = Trace(self.harness.clock.now)
        self.replicas = [Replica(f"operator-{number}", self) for number in (1, 2, 3)]
        self.writers: list[str] = []
        self.wrong: list[str] = []
        self.most = 0
        self.harness.core._on_write = self._committed  # each commit, at the moment of it

    def holder(self) -> str:
        found = self.harness.core.find(LEASES.plural, *LEASE)
        return "" if found is None else str(found["spec"]["holderIdentity"])

    def leader(self) -> Replica | None:
        return next((each for each in self.replicas if each.identity == self.holder()), None)

    def wrote(self, sender: str, request: Request) -> None:
        """Check that the sender of a write holds the lease when the write arrives."""
        if sender != self.holder():
            self.wrong.append(f"{sender} {request.method} {request.path}, led by {self.holder()}")
        if sender not in self.writers[-1:]:
            self.writers.append(sender)

    def _committed(self, verb: str, kind: str, key: str, uid: str) -> None:
        if kind == "Pod":
            alive = [
                pod for pod in self.harness.pods() if "deletionTimestamp" not in pod["metadata"]
            ]
            self.most = max(self.most, len(alive))
            if len(alive) > REPLICAS:
                self.wrong.append(f"{len(alive)} Pods after {verb} {key}")

    async def churn(self) -> None:
        """End jobs all the time, so that the leader always has something to write."""
        rng = random.Random(5)
        while True:
            await self.harness.clock.sleep(rng.uniform(0.2, 1.5))
            if running := self.harness.running():
                await self.harness.finish(rng.choice(running))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for number in range(2):
            await self.harness.host(f"mini-{number}", slots=REPLICAS)
        await self.harness.pool(REPLICAS)
        for replica in self.replicas:
            replica.start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.harness.run_hosts()), group.create_task(self.churn())]
            await self.harness.clock.sleep(20.0)
            assert self.leader() is not None
            yield
            for task in tasks:
                task.cancel()
        for replica in self.replicas:
            replica.process.crash()
        assert not self.wrong, self.wrong
        assert (
            self.most == REPLICAS
        )  # all replicas existed: the bound did not hold by doing nothing


async def kill(replica: Replica, seconds: float, clock: VirtualClock) -> None:
    replica.process.crash()
    await clock.sleep(seconds)
    replica.start()


async def cut(replica: Replica, seconds: float, clock: VirtualClock) -> None:
    replica.link.sever()
    await clock.sleep(seconds)
    replica.link.restore()


async def stop(replica: Replica, seconds: float, clock: VirtualClock) -> None:
    replica.process.pause()
    await clock.sleep(seconds)
    replica.process.resume()


FAULTS = {"kill": kill, "partition": cut, "pause": stop}


def play(scenario: Any, *, seed: int = 0) -> None:
    async def main() -> None:
        await scenario(Trio())

    run_virtual(main(), seed=seed)


# A renewal may be three seconds old when the fault begins: after 11 s the lease of 15 s has not expired.
@pytest.mark.parametrize("seconds", [5.0, 11.0, 20.0, 40.0])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_leader_that_fails_is_replaced_and_never_writes_beside_another(
    fault: str, seconds: float
) -> None:
    async def scenario(trio: Trio) -> None:
        async with trio.running():
            first = trio.leader()
            assert first is not None
            before = first.identity
            await FAULTS[fault](first, seconds, trio.harness.clock)
            known = set(trio.harness.names())
            await trio.harness.clock.sleep(30.0)
            assert set(trio.harness.names()) - known  # ended runners are still replaced
            assert (trio.writers[-1] != before) is (seconds > 15.0 or fault == "kill")

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_faults_leave_one_writer(seed: int) -> None:
    async def scenario(trio: Trio) -> None:
        rng = random.Random(seed)
        async with trio.running():
            for _ in range(12):
                victim = trio.leader() if rng.random() < 0.8 else rng.choice(trio.replicas)
                fault = rng.choice(sorted(FAULTS))
                if victim is not None and victim.process.alive:
                    await FAULTS[fault](victim, rng.uniform(0.5, 30.0), trio.harness.clock)
                await trio.harness.clock.sleep(rng.uniform(0.0, 10.0))
            await trio.harness.clock.sleep(60.0)
            assert len(set(trio.writers)) > 2
            assert trio.leader() is not None

    play(scenario, seed=seed)


def test_a_replica_that_follows_is_ready_and_one_that_cannot_read_the_lease_is_not() -> None:
    async def scenario(trio: Trio) -> None:
        async with trio.running():
            assert [each.freshness.stale() for each in trio.replicas] == [(), (), ()]
            first = trio.leader()
            assert first is not None
            await cut(first, 30.0, trio.harness.clock)
            await trio.harness.clock.sleep(5.0)
            assert [each.freshness.stale() for each in trio.replicas] == [(), (), ()]
            first.link.sever()
            await trio.harness.clock.sleep(60.0)
            assert [loop.loop for loop in first.freshness.stale()] == ["leader-election"]
            first.link.restore()

    play(scenario)


def test_a_write_of_a_follower_is_found() -> None:
    """A replica that bypasses the leadership's gate is found by the check in this file."""

    async def scenario(trio: Trio) -> None:
        async with trio.running():
            follower = next(each for each in trio.replicas if each is not trio.leader())
            kube = Kube(follower.link, agent=follower.identity)
            await kube.delete(PODS, trio.harness.names()[0], namespace=NS)
            assert len(trio.wrong) == 1
            trio.wrong.clear()

    play(scenario)
