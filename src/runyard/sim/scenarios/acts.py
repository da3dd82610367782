"""What scenarios are made of: wait for something within a bound, queue jobs, look at the fleet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.guest import GuestView
from runyard.sim.invariants import Violation
from runyard.sim.liveness import unrest
from runyard.telemetry.catalogue import Metric
from runyard.wire import names

STEP = 1.0


class Expected(Violation):
    """A scenario did not go as it must."""


@contextmanager
def trouble(fleet: Fleet, kind: str) -> Iterator[None]:
    """What happens in this block has an excuse."""
    fleet.disturb(kind)
    fleet.tell(f"{kind} begins")
    try:
        yield
    finally:
        fleet.calm(kind)
        fleet.tell(f"{kind} is over")


async def until(
    fleet: Fleet, what: str, holds: Callable[[], bool], *, within: float, step: float = STEP
) -> float:
    """Wait until it holds; returns how long that took. Longer than `within` is a violation."""
    began = fleet.clock.monotonic()
    while not holds():
        if fleet.clock.monotonic() - began > within:
            left = "\n  ".join(unrest(fleet)[:12])
            raise Expected(f"{what}: not within {within:.0f} s\n  {left}")
        await fleet.clock.sleep(step)
    return fleet.clock.monotonic() - began


def expect(what: str, holds: object) -> None:
    """It must hold now."""
    if not holds:
        raise Expected(what)


async def warm(fleet: Fleet, *, within: float = 1800.0) -> None:
    """Wait until every runner of every pool asks for work."""
    wanted = sum(fleet.shape.seats_of(pool) for pool in fleet.shape.pools)
    await until(fleet, "warm", lambda: len(polling(fleet)) == wanted, within=within)


async def at_rest(fleet: Fleet, *, within: float = 3600.0) -> float:
    """Wait until nothing is left over."""
    return await until(fleet, "at rest", lambda: not unrest(fleet), within=within, step=10.0)


def polling(fleet: Fleet) -> list[str]:
    """The Pods whose guests ask for work and that carry no stamp."""
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
    """Pods that carry an owner's stamp."""
    return [
        pod
        for pod in fleet.kube.objects("pods")
        if names.POOL_OWNER in pod["metadata"].get("labels", {})
    ]


def queue(
    fleet: Fleet, count: int, *, duration: float = 60.0, tenant: str = "acme", pool: int = 0
) -> list[int]:
    """Somebody pushes."""
    owner = next(each for each in fleet.shape.tenants if each.name == tenant)
    repository = f"{tenant}/{owner.repositories[0]}"
    label = fleet.shape.pools[pool].label
    return [fleet.github.queue_job(repository, (label,), duration=duration) for _ in range(count)]


def over(fleet: Fleet, jobs: list[int], conclusion: str = "success") -> bool:
    """Whether all of these jobs have ended, and ended so."""
    found = [fleet.github.jobs()[job] for job in jobs]
    if any(job.status == "completed" and job.conclusion != conclusion for job in found):
        raise Expected(f"a job ended otherwise: {[job.conclusion for job in found]}")
    return all(job.status == "completed" for job in found)


def running(fleet: Fleet) -> list[GuestView]:
    """The guests whose runners work on a job."""
    return [guest for guest in fleet.guests.values() if guest.state == "running"]


def statuses(fleet: Fleet, jobs: list[int], status: str) -> int:
    """How many of these jobs GitHub has in that status."""
    return sum(fleet.github.jobs()[job].status == status for job in jobs)


def counted(fleet: Fleet, metric: Metric, **labels: str) -> float:
    """A counter of the servers, over all replicas and all of their lives."""
    return sum(meter.get(metric, **labels) or 0.0 for meter in fleet.meters["server"])
