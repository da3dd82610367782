"""Incidents in which a dependency of the fleet is unavailable."""

from functools import partial

from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    fault,
    over,
    polling,
    queue,
    running,
    until,
    warm,
)
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.shape import Shape
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

HOUR = 3600.0
MINUTE = 60.0


def shapes(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners."""
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


async def webhooks_lost_for_an_hour(fleet: Fleet) -> None:
    """Jobs are queued, run and end while no webhook arrives: deliveries are read from GitHub's log instead."""
    await warm(fleet)
    fleet.report("no webhook arrives")
    for link in fleet.webhook_links:
        link.sever()
    waits: list[float] = []
    for _ in range(12):
        jobs = queue(fleet, 2)
        ended = partial(over, fleet, jobs)
        took = await until(fleet, Expectation.THEY_RUN, ended, within=400.0)
        waits.append(took)
        await fleet.clock.sleep(max(0.0, HOUR / 12 - took))
    for link in fleet.webhook_links:
        link.restore()
    await at_rest(fleet)
    made_up = counted(fleet, TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
    expect(Expectation.LOST_DELIVERIES_MADE_UP, made_up >= 24, found=made_up)
    fleet.report(f"longest wait {max(waits):.0f} s")


async def database_outage(fleet: Fleet) -> None:
    """Answers to commits are lost, then the database is down, then it is back: no runner is reaped for it."""
    await warm(fleet)
    busy = queue(fleet, 2, duration=20 * MINUTE)
    await until(fleet, Expectation.TWO_RUN, lambda: len(running(fleet)) == 2, within=60.0)
    with fault(fleet, "database-outage"):
        _lose_answers(fleet, 0.3)
        queue(fleet, 1)
        await fleet.clock.sleep(2 * MINUTE)
        _lose_answers(fleet, 0.0)
        _set_database_down(fleet, down=True)
        warm_before = sorted(polling(fleet))
        later = queue(fleet, 2)
        await fleet.clock.sleep(10 * MINUTE)
        _set_database_down(fleet, down=False)
    await fleet.clock.sleep(30.0)
    expect(Expectation.NO_WARM_RUNNER_WAS_REAPED, _still_there(fleet, warm_before))
    await until(fleet, Expectation.WHAT_WAITED_RUNS, lambda: over(fleet, later), within=300.0)
    await until(
        fleet, Expectation.WHAT_RAN_ENDS_WELL, lambda: over(fleet, busy), within=20 * MINUTE
    )
    await at_rest(fleet)


async def github_outage(fleet: Fleet) -> None:
    """GitHub is unavailable while runners are about to register; fences have to wait until it is back."""
    await warm(fleet)
    busy = queue(fleet, 1, duration=10 * MINUTE)
    await until(fleet, Expectation.ONE_RUNS, lambda: len(running(fleet)) == 1, within=60.0)
    queue(fleet, 2)
    await fleet.clock.sleep(0.2)
    with fault(fleet, "github-outage"):
        fleet.github.faults.outage = True
        later = queue(fleet, 2)
        await fleet.clock.sleep(20 * MINUTE)
        fleet.github.faults.outage = False
    await until(fleet, Expectation.WHAT_WAITED_RUNS, lambda: over(fleet, later), within=10 * MINUTE)
    await until(
        fleet, Expectation.WHAT_RAN_ENDS_WELL, lambda: over(fleet, busy), within=10 * MINUTE
    )
    await at_rest(fleet)
    expect(Expectation.NO_REGISTRATION_IS_LEFT, not fleet.github.runners())


def _lose_answers(fleet: Fleet, rate: float) -> None:
    rng = fleet.chance("lost answers")
    for database in fleet.databases:
        database.lose_answer = (lambda name: rng.random() < rate) if rate else None


def _set_database_down(fleet: Fleet, *, down: bool) -> None:
    for database in fleet.databases:
        database.down = down


def _still_there(fleet: Fleet, pods: list[str]) -> bool:
    here = [pod["metadata"]["name"] for pod in fleet.kube.objects("pods")]
    return all(pod in here for pod in pods)
