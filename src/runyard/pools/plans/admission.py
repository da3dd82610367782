"""Limits how many runners start at once on the hosts that sibling pools share.

A host that starts too many sandboxes together starts none. Pools of one fleet therefore share one
ceiling, which counts runners that have no host yet and creations that are not visible yet: otherwise a
lagging watch would admit a second full batch.

Invariants:
- Without a healthy host nothing is created: fail closed. After a failure creations back off, because replacing
  at once what fails at once would never end.
- No pool takes the whole ceiling while a sibling has missing runners and none starting: one start is reserved
  for each of those.
"""

import msgspec

from runyard.pools.plans.reasons import Blocked
from runyard.pools.plans.views import FleetView

DEFAULT_CEILING = 4


class Admission(msgspec.Struct, frozen=True):
    """How many creations are admitted, and why not more."""

    count: int
    blocked: Blocked | None = None


def ceiling(limits: tuple[int, ...]) -> int:
    """Return the lowest of the siblings' ceilings; a limit that is not positive means the default."""
    return min((limit if limit > 0 else DEFAULT_CEILING for limit in limits), default=4)


def admit(gap: int, fleet: FleetView | None, *, held: bool = False) -> Admission:
    """Admit as much of `gap` as the fleet's ceiling allows; without a fleet, all of it."""
    if gap <= 0:
        return Admission(0)
    if held:
        return Admission(0, Blocked.BACKOFF)
    if fleet is None:
        return Admission(gap)
    if fleet.healthy_nodes <= 0:
        return Admission(0, Blocked.NO_HEALTHY_NODE)
    left = fleet.ceiling - fleet.provisioning
    if left <= 0:
        return Admission(0, Blocked.FLEET_CAP)
    share = max(1, fleet.ceiling - fleet.starved_siblings) - fleet.provisioning_here
    count = min(gap, left, share)
    if count <= 0:
        return Admission(0, Blocked.POOL_SHARE)
    if count == gap:
        return Admission(count)
    return Admission(count, Blocked.FLEET_CAP if left <= share else Blocked.POOL_SHARE)
