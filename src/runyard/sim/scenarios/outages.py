"""Incidents in which somebody whom the fleet depends on is away."""

from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    over,
    polling,
    queue,
    running,
    trouble,
    until,
    warm,
)
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.shape import Shape
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

HOUR = 3600.0
MINUTE = 60.0


def shapes(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners."""
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


async def webhooks_lost_for_an_hour(fleet: Fleet) -> None:
    """Jobs are queued, run and end while no webhook arrives: deliveries are looked up instead."""
    await warm(fleet)
    fleet.tell("no webhook arrives")
    for link in fleet.webhook_links:
        link.sever()
    waits: list[float] = []
    for _ in range(12):
        jobs = queue(fleet, 2)
        took = await until(fleet, "they run", lambda jobs=jobs: over(fleet, jobs), within=400.0)  # type: ignore[misc]  # bound now
        waits.append(took)
        await fleet.clock.sleep(max(0.0, HOUR / 12 - took))
    for link in fleet.webhook_links:
        link.restore()
    await at_rest(fleet)
    made_up = counted(fleet, TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
    expect(f"lost deliveries were made up for: {made_up}", made_up >= 24)
    fleet.tell(f"longest wait {max(waits):.0f} s")


async def database_outage(fleet: Fleet) -> None:
    """Commits whose answers are lost, then no database at all, then it is back: nobody is reaped for it."""
    await warm(fleet)
    busy = queue(fleet, 2, duration=20 * MINUTE)
    await until(fleet, "two run", lambda: len(running(fleet)) == 2, within=60.0)
    with trouble(fleet, "database-outage"):
        _lose_answers(fleet, 0.3)
        queue(fleet, 1)
        await fleet.clock.sleep(2 * MINUTE)
        _lose_answers(fleet, 0.0)
        _take_away(fleet, down=True)
        warm_before = sorted(polling(fleet))
        later = queue(fleet, 2)
        await fleet.clock.sleep(10 * MINUTE)
        _take_away(fleet, down=False)
    await fleet.clock.sleep(30.0)
    expect("no warm runner was reaped", _still_there(fleet, warm_before))
    await until(fleet, "what waited runs", lambda: over(fleet, later), within=300.0)
    await until(fleet, "what ran ends well", lambda: over(fleet, busy), within=20 * MINUTE)
    await at_rest(fleet)


async def github_outage(fleet: Fleet) -> None:
    """GitHub is away while runners are about to register; fences have to wait until it is back."""
    await warm(fleet)
    busy = queue(fleet, 1, duration=10 * MINUTE)
    await until(fleet, "one runs", lambda: len(running(fleet)) == 1, within=60.0)
    queue(fleet, 2)
    await fleet.clock.sleep(0.2)
    with trouble(fleet, "github-outage"):
        fleet.github.faults.outage = True
        later = queue(fleet, 2)
        await fleet.clock.sleep(20 * MINUTE)
        fleet.github.faults.outage = False
    await until(fleet, "what waited runs", lambda: over(fleet, later), within=10 * MINUTE)
    await until(fleet, "what ran ends well", lambda: over(fleet, busy), within=10 * MINUTE)
    await at_rest(fleet)
    expect("no registration is left", not fleet.github.runners())


def _lose_answers(fleet: Fleet, rate: float) -> None:
    rng = fleet.chance("lost answers")
    for database in fleet.databases:
        database.lose_answer = (lambda name: rng.random() < rate) if rate else None


def _take_away(fleet: Fleet, *, down: bool) -> None:
    for database in fleet.databases:
        database.down = down


def _still_there(fleet: Fleet, pods: list[str]) -> bool:
    here = [pod["metadata"]["name"] for pod in fleet.kube.objects("pods")]
    return all(pod in here for pod in pods)
