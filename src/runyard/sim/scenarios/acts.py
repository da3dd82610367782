"""Building blocks of scenarios: wait for a condition within a bound, queue jobs, read the fleet's state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.guest import GuestView
from runyard.sim.liveness import not_at_rest
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.violations import Violation
from runyard.telemetry.metric import Metric
from runyard.wire import names
from runyard.wire.reasons import Code

STEP = 1.0


class Expected(Violation):
    """A scenario did not have its expected outcome."""


@contextmanager
def fault(fleet: Fleet, kind: str) -> Iterator[None]:
    """Marks this block as a fault, so that liveness checks ignore it."""
    fleet.disturb(kind)
    fleet.report(f"{kind} starts")
    try:
        yield
    finally:
        fleet.calm(kind)
        fleet.report(f"{kind} is over")


async def until(
    fleet: Fleet, what: Code, holds: Callable[[], bool], *, within: float, step: float = STEP
) -> float:
    """Waits until it holds; returns how long that took. Longer than `within` is a violation."""
    began = fleet.clock.monotonic()
    while not holds():
        if fleet.clock.monotonic() - began > within:
            left = "\n  ".join(not_at_rest(fleet)[:12])
            raise Expected(what.because(), note=f": not within {within:.0f} s\n  {left}")
        await fleet.clock.sleep(step)
    return fleet.clock.monotonic() - began


def expect(what: Code, holds: object, *, found: object = "") -> None:
    """Raises unless it holds now; `found` is shown then."""
    if not holds:
        raise Expected(what.because(), note=f": {found}" if found != "" else "")


async def warm(fleet: Fleet, *, within: float = 1800.0) -> None:
    """Waits until every runner of every pool polls."""
    wanted = sum(fleet.shape.seats_of(pool) for pool in fleet.shape.pools)
    await until(fleet, Expectation.WARM, lambda: len(polling(fleet)) == wanted, within=within)


async def at_rest(fleet: Fleet, *, within: float = 3600.0) -> float:
    """Waits until nothing is left over."""
    return await until(
        fleet, Expectation.AT_REST, lambda: not not_at_rest(fleet), within=within, step=10.0
    )


def polling(fleet: Fleet) -> list[str]:
    """The Pods whose guests poll and that carry no stamp."""
    return [
        guest.pod
        for guest in fleet.guests.values()
        if guest.state == "polling" and names.POOL_OWNER not in labels(fleet, guest.pod)
    ]


def labels(fleet: Fleet, pod: str) -> dict[str, str]:
    """A Pod's labels; none if it is gone."""
    found = fleet.kube.find("pods", SPACE, pod)
    return {} if found is None else dict(found["metadata"].get("labels", {}))


def stamped(fleet: Fleet) -> list[dict[str, Any]]:
    """Pods that carry an owner stamp."""
    return [
        pod
        for pod in fleet.kube.objects("pods")
        if names.POOL_OWNER in pod["metadata"].get("labels", {})
    ]


def queue(
    fleet: Fleet, count: int, *, duration: float = 60.0, tenant: str = "acme", pool: int = 0
) -> list[int]:
    """Queues jobs."""
    owner = next(each for each in fleet.shape.tenants if each.name == tenant)
    repository = f"{tenant}/{owner.repositories[0]}"
    label = fleet.shape.pools[pool].label
    return [fleet.github.queue_job(repository, (label,), duration=duration) for _ in range(count)]


def over(fleet: Fleet, jobs: list[int], conclusion: str = "success") -> bool:
    """Whether all of these jobs have ended, with this conclusion."""
    found = [fleet.github.jobs()[job] for job in jobs]
    if any(job.status == "completed" and job.conclusion != conclusion for job in found):
        ends = [job.conclusion for job in found]
        raise Expected(Expectation.EVERY_JOB_ENDS_AS_EXPECTED.because(), note=f": {ends}")
    return all(job.status == "completed" for job in found)


def running(fleet: Fleet) -> list[GuestView]:
    """The guests whose runners work on a job."""
    return [guest for guest in fleet.guests.values() if guest.state == "running"]


def statuses(fleet: Fleet, jobs: list[int], status: str) -> int:
    """How many of these jobs GitHub has in that status."""
    return sum(fleet.github.jobs()[job].status == status for job in jobs)


def counted(fleet: Fleet, metric: Metric, **labels: str) -> float:
    """The value of a counter, summed over all replicas and all of their lives."""
    return sum(meter.get(metric, **labels) or 0.0 for meter in fleet.meters["server"])
