"""Why a job waits: derived from the same facts that the matcher looks at, and never stored.

The order of the questions is the order in which they matter: is it known to be queued, does any pool match,
has its tenant budget, is a runner idle. A job that has all of that and still waits is the one thing that should
wake somebody; it is marked for attention.

Pure: idle runners are given to the waiting jobs in the order of their age, as a matcher would, so that one idle
runner does not excuse (or accuse) ten jobs.
"""

import msgspec

from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.values import PoolView, fits


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A pool and its runners, by what they do."""

    pool: PoolView
    desired: int = 0
    idle: int = 0
    busy: int = 0
    starting: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant may use on a platform, and what is left."""

    tenant: str
    platform: str
    vcpus: int
    memory_gb: int
    room: Room


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits."""

    job_id: int
    tenant: str
    labels: tuple[str, ...]
    since: float
    verified: bool = True


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why one job waits; `attention` if it should not."""

    why: str
    attention: bool = False
    unmatched: bool = False


def why_waiting(
    jobs: tuple[Queued, ...],
    supplies: tuple[Supply, ...] | None,
    budgets: tuple[Budget, ...],
    *,
    now: float,
    match_within: float,
) -> tuple[Reason, ...]:
    """One reason for each job, in the order given (oldest first). `supplies` None: pools are not known."""
    left = {supply.pool.name: supply.idle for supply in supplies or ()}
    rooms = {(budget.tenant, budget.platform): budget for budget in budgets}
    return tuple(
        _reason(job, supplies, rooms, left, late=now - job.since > match_within) for job in jobs
    )


def _reason(
    job: Queued,
    supplies: tuple[Supply, ...] | None,
    rooms: dict[tuple[str, str], Budget],
    left: dict[str, int],
    *,
    late: bool,
) -> Reason:
    if not job.verified:
        return Reason(why="GitHub is asked first whether it is still queued")
    if supplies is None:
        return Reason(why="the pools are not known: Kubernetes does not answer")
    fitting = [supply for supply in supplies if fits(supply.pool, job.labels)]
    if not fitting:
        return Reason(why=f"no pool matches: {_mismatch(job, supplies)}", unmatched=True)
    affordable = [
        supply
        for supply in fitting
        if _affords(rooms.get((job.tenant, supply.pool.platform)), supply)
    ]
    if not affordable:
        return Reason(why=f"over budget: {_shortage(job, fitting[0], rooms)}")
    ready = next((supply for supply in affordable if left[supply.pool.name] > 0), None)
    if ready is None:
        return Reason(why=_nobody_idle(affordable))
    left[ready.pool.name] -= 1
    if late:
        return Reason(why=f"a fitting runner is idle in {ready.pool.name}", attention=True)
    return Reason(why=f"is being matched with {ready.pool.name}")


def _affords(budget: Budget | None, supply: Supply) -> bool:
    pool = supply.pool
    return budget is not None and budget.room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb)


def _mismatch(job: Queued, supplies: tuple[Supply, ...]) -> str:
    """What exactly no pool offers."""
    if not supplies:
        return "there is no pool"
    offered = {label for supply in supplies for label in supply.pool.labels}
    missing = [label for label in job.labels if label.lower() not in offered]
    if missing:
        return f"none has the label {', '.join(missing[:3])}"
    wanted = [label.lower() for label in job.labels]
    if not any(supply.pool.dispatch_label in wanted for supply in supplies):
        return "none of its labels is the one that a pool is asked for by"
    return "no single pool has all of its labels"


def _shortage(job: Queued, supply: Supply, rooms: dict[tuple[str, str], Budget]) -> str:
    pool = supply.pool
    budget = rooms.get((job.tenant, pool.platform))
    if budget is None:
        return f"{job.tenant} has no budget on {pool.platform}"
    room = budget.room
    if pool.vcpus > room.vcpus:
        return f"{job.tenant} has {_left(room.vcpus)} of {budget.vcpus} vCPUs left, {pool.vcpus} needed"
    return (
        f"{job.tenant} has {_left(room.memory_gb)} of {budget.memory_gb} GB left,"
        f" {pool.memory_gb} needed"
    )


def _left(amount: int) -> int:
    return max(0, amount)


def _nobody_idle(supplies: list[Supply]) -> str:
    names = ", ".join(supply.pool.name for supply in supplies[:3])
    busy = sum(supply.busy for supply in supplies)
    starting = sum(supply.starting for supply in supplies)
    counts = [f"{busy} busy"] * bool(busy) + [f"{starting} starting"] * bool(starting)
    if counts:
        return f"no idle runner in {names}: {', '.join(counts)}"
    if not any(supply.desired for supply in supplies):
        return f"no idle runner: {names} is scaled to zero"
    return f"no idle runner in {names}: none is there yet"
