"""What the queue looks like to each pool: how long it is, how old, how much of it could run, and how old that part.

A job that waits for its tenant's budget, or that is held back because the tenant is paused or GitHub makes no runners
for it, is *withheld* and says nothing about the fleet: a pool that grew for it would hold hosts idle. So of each
tenant only as many jobs count as its budget has room for. The age to be woken for is that of the oldest job which may
be offered and whose tenant has room: that one grows old although it could run.
"""

import msgspec

from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.values import PoolView, fits

Rooms = tuple[tuple[str, str, Room], ...]  # tenant, platform, what is left


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
    """One pool's queue."""

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
    pools: tuple[PoolView, ...], waiting: tuple[Waiting, ...], rooms: Rooms
) -> tuple[Figures, ...]:
    """One entry for each pool, also for those with nothing to do: an explicit zero ends an alert."""
    left = {(tenant, platform): room for tenant, platform, room in rooms}
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


def _of(pool: PoolView, waiting: tuple[Waiting, ...], left: dict[tuple[str, str], Room]) -> Figures:
    own = [each for each in waiting if fits(pool, each.labels)]
    free = [each for each in own if not each.held]
    wanted: dict[str, int] = {}
    for each in free:
        wanted[each.tenant] = wanted.get(each.tenant, 0) + each.jobs
    seats = {tenant: _seats(pool, left.get((tenant, pool.platform))) for tenant in wanted}
    length = sum(each.jobs for each in own)
    return Figures(
        pool=pool.name,
        length=length,
        withheld=length - sum(min(jobs, seats[tenant]) for tenant, jobs in wanted.items()),
        oldest=max((each.oldest for each in own), default=0.0),
        oldest_dispatchable=max(
            (each.offerable for each in free if seats[each.tenant]), default=0.0
        ),
    )


def _seats(pool: PoolView, room: Room | None) -> int:
    """How many more runners of this pool a budget has room for."""
    if room is None:
        return 0
    return max(0, min(room.vcpus // pool.vcpus, room.memory_gb // pool.memory_gb))
