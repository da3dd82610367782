"""Each invariant check fails when its invariant is violated."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.tiers import sample

from runyard.http.messages import Request
from runyard.kube.kinds import PODS, RUNNER_POOLS
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.ledger import Change
from runyard.sim.run import Stage, rest
from runyard.sim.scenarios.acts import polling, queue, until, warm
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import small
from runyard.sim.violations import Violated
from runyard.wire import names

Play = Callable[[Fleet], Awaitable[None]]


async def illegal_edge(fleet: Fleet) -> None:
    change = Change(
        id=1, subject="job", key="7", source="done", target="queued", reason="x", actor="y"
    )
    fleet.invariants._legal(change)


async def budget(fleet: Fleet) -> None:
    fleet.ledger.limit("acme", "macos")
    fleet.ledger.limits = {("acme", "macos"): (3, 1)}
    queue(fleet, 1)
    await fleet.clock.sleep(60.0)


async def busy_pod_deleted(fleet: Fleet) -> None:
    queue(fleet, 1, duration=600.0)
    await until(
        fleet, Expectation.RUNS, lambda: any(g.job_id for g in fleet.guests.values()), within=60.0
    )
    pod = next(guest.pod for guest in fleet.guests.values() if guest.job_id)
    request = Request(method="DELETE", path=PODS.object_path(pod, namespace=SPACE))
    await fleet.operator_kube.send(request, timeout=5.0)


async def unstamped_delivery(fleet: Fleet) -> None:
    guest = next(iter(fleet.guests.values()))
    fleet.invariants.answering(guest.uid, guest.pod)


async def jit_for_another(fleet: Fleet) -> None:
    first, second = list(fleet.guests.values())[:2]
    fleet.invariants.delivered(first, "jit")
    fleet.invariants.delivered(second, "jit")


async def vm_started_twice(fleet: Fleet) -> None:
    fleet.invariants.vm_started("mini-1", "vm", 2)


async def job_without_excuse(fleet: Fleet) -> None:
    for replica in fleet.replicas:
        fleet.restarts = False
        replica.process.crash()
    queue(fleet, 1)
    await fleet.clock.sleep(600.0)


async def roll_over_its_cap(fleet: Fleet) -> None:
    fleet.operator.crash()
    fleet.restarts = False
    pool = fleet.shape.pools[0]
    await fleet.admin.patch(RUNNER_POOLS, pool.name, {"spec": {"image": "other"}}, namespace=SPACE)
    body = {"metadata": {"labels": {names.DRAIN_ELIGIBLE: "true"}}}
    for pod in polling(fleet)[:2]:
        await fleet.admin.patch(PODS, pod, body, namespace=SPACE)


async def never_at_rest(fleet: Fleet) -> None:
    for host in fleet.hosts.values():
        fleet.restarts = False
        host.process.crash()
        host.driver.power_off_host()
    await rest(fleet)


CASES: dict[str, tuple[Play, Violated]] = {
    "a job that is done comes back": (illegal_edge, Violated.ILLEGAL_TRANSITION),
    "a budget is exceeded": (budget, Violated.OVER_BUDGET),
    "the Pod of a working runner is deleted": (busy_pod_deleted, Violated.BUSY_POD_DELETED),
    "a JIT for a Pod without a stamp": (unstamped_delivery, Violated.JIT_WITHOUT_STAMP),
    "a JIT for another Pod": (jit_for_another, Violated.JIT_OF_ANOTHER_POD),
    "a VM is started twice": (vm_started_twice, Violated.VM_STARTED_AGAIN),
    "a job waits while runners idle": (job_without_excuse, Violated.JOB_WAITS_UNEXCUSED),
    "a roll goes over its cap": (roll_over_its_cap, Violated.ROLL_OVER_CAP),
    "the fleet does not come to rest": (never_at_rest, Violated.NOT_AT_REST),
}


@pytest.mark.parametrize("case", sample(list(CASES), of=1, fast=4))
def test_the_onlooker_sees_it(stage: Stage, case: str) -> None:
    play, violated = CASES[case]

    async def whole(fleet: Fleet) -> None:
        await warm(fleet)
        await play(fleet)
        await asyncio.sleep(1.0)

    (shape,) = small(1)
    outcome = stage.play(msgspec.structs.replace(shape, quiet_limit=300.0), whole)
    assert outcome.code == violated, outcome.failure
