"""Computes each pool's queue: its length, its age, how much of it could run, and how old that part is.

A job that waits for its tenant's budget, or that is held back because the tenant is paused or GitHub makes no runners
for it, is *withheld*: a pool that grew for it would keep hosts idle. So of each tenant only as many jobs count as its
budget allows. The age that alerts use is that of the oldest job which may be offered and whose tenant has budget left:
that job grows old although it could run.
"""

import msgspec

from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.matching.values import PoolView, fits

Headrooms = tuple[tuple[str, str, Headroom], ...]  # tenant, platform, what is left


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The queued jobs of one repository with one set of labels. Ages are in seconds."""

    tenant: str
    labels: tuple[str, ...]
    jobs: int
    oldest: float
    offerable: float
    repository: str = ""
    held: bool = False  # the tenant is paused, or GitHub makes no runners for it


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one pool's queue."""

    pool: str
    length: int = 0
    withheld: int = 0
    oldest: float = 0.0
    oldest_dispatchable: float = 0.0

    @property
    def dispatchable(self) -> int:
        """Jobs that could run now if there were runners."""
        return self.length - self.withheld


class Starving(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of this pool wait although runners of it are idle."""

    pool: str
    age: float
    idle: int


def figures(
    pools: tuple[PoolView, ...], waiting: tuple[Waiting, ...], headrooms: Headrooms
) -> tuple[Figures, ...]:
    """Compute one entry for each pool, also for empty queues: an explicit zero ends an alert."""
    left = {(tenant, platform): headroom for tenant, platform, headroom in headrooms}
    return tuple(_of(pool, waiting, left) for pool in pools)


def starving(
    found: tuple[Figures, ...], idle: tuple[tuple[str, int], ...], *, older: float
) -> tuple[Starving, ...]:
    """The pools whose oldest dispatchable job is too old while a runner that fits is idle."""
    runners = dict(idle)
    return tuple(
        Starving(pool=each.pool, age=each.oldest_dispatchable, idle=runners[each.pool])
        for each in found
        if each.oldest_dispatchable > older and runners.get(each.pool, 0) > 0
    )


def _of(
    pool: PoolView, waiting: tuple[Waiting, ...], left: dict[tuple[str, str], Headroom]
) -> Figures:
    own = [each for each in waiting if fits(pool, each.labels)]
    free = [each for each in own if not each.held]
    wanted: dict[str, int] = {}
    for each in free:
        wanted[each.tenant] = wanted.get(each.tenant, 0) + each.jobs
    runners_left = {
        tenant: _runners_left(pool, left.get((tenant, pool.platform))) for tenant in wanted
    }
    length = sum(each.jobs for each in own)
    return Figures(
        pool=pool.name,
        length=length,
        withheld=length - sum(min(jobs, runners_left[tenant]) for tenant, jobs in wanted.items()),
        oldest=max((each.oldest for each in own), default=0.0),
        oldest_dispatchable=max(
            (each.offerable for each in free if runners_left[each.tenant]), default=0.0
        ),
    )


def _runners_left(pool: PoolView, headroom: Headroom | None) -> int:
    """How many more runners of this pool a budget allows."""
    if headroom is None:
        return 0
    return max(0, min(headroom.vcpus // pool.vcpus, headroom.memory_gb // pool.memory_gb))
