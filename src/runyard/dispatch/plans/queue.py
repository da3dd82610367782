"""What the queue looks like to each pool: how long it is, how old, and how old the part that could run now.

The last number is the one to be woken for: a job that may be offered, whose tenant has room, and
that grows old while runners wait. A job that waits for its tenant's budget is withheld, and says
nothing about the fleet.
"""

import msgspec

from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.values import PoolView, fits


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The queued jobs of one tenant with one set of labels. Ages are in seconds."""

    tenant: str
    labels: tuple[str, ...]
    jobs: int
    oldest: float
    offerable: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's queue."""

    pool: str
    length: int = 0
    withheld: int = 0
    oldest: float = 0.0
    oldest_dispatchable: float = 0.0


def figures(
    pools: tuple[PoolView, ...],
    waiting: tuple[Waiting, ...],
    rooms: tuple[tuple[str, str, Room], ...],
) -> tuple[Figures, ...]:
    """One entry for each pool, also for those with nothing to do: an explicit zero ends an alert."""
    left = {(tenant, platform): room for tenant, platform, room in rooms}
    return tuple(_of(pool, waiting, left) for pool in pools)


def _of(pool: PoolView, waiting: tuple[Waiting, ...], left: dict[tuple[str, str], Room]) -> Figures:
    own = [each for each in waiting if fits(pool, each.labels)]
    roomy = [
        each
        for each in own
        if (room := left.get((each.tenant, pool.platform))) is not None
        and room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb)
    ]
    return Figures(
        pool=pool.name,
        length=sum(each.jobs for each in own),
        withheld=sum(each.jobs for each in own) - sum(each.jobs for each in roomy),
        oldest=max((each.oldest for each in own), default=0.0),
        oldest_dispatchable=max((each.offerable for each in roomy), default=0.0),
    )
