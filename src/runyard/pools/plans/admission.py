"""How many starts the hosts that sibling pools share can bear at once.

A host that starts too many sandboxes together starts none. Pools of one fleet therefore share one
ceiling, which counts runners that have no host yet and creations that are not visible yet: otherwise a
lagging watch would admit a second full batch.

Invariants:
- Without a healthy host nothing is created: fail closed. After a setback nothing is created for a while:
  replacing at once what fails at once would be a loop without end.
- No pool takes the whole ceiling while a sibling has missing runners and none on its way: one place
  is left for each of those.
"""

import msgspec

from runyard.pools.plans.views import FleetView

DEFAULT_CEILING = 4


class Admission(msgspec.Struct, frozen=True):
    """How many creations are let through, and why not more."""

    count: int
    blocked: str = ""


def ceiling(limits: tuple[int, ...]) -> int:
    """The strictest of the siblings' ceilings; a limit that makes no sense means the default."""
    return min((limit if limit > 0 else DEFAULT_CEILING for limit in limits), default=4)


def admit(gap: int, fleet: FleetView | None, *, held: bool = False) -> Admission:
    """Let through as much of `gap` as the fleet can bear; without a fleet, all of it."""
    if gap <= 0:
        return Admission(0)
    if held:
        return Admission(0, "backoff")
    if fleet is None:
        return Admission(gap)
    if fleet.healthy_nodes <= 0:
        return Admission(0, "no_healthy_node")
    room = fleet.ceiling - fleet.provisioning
    if room <= 0:
        return Admission(0, "fleet_cap")
    share = max(1, fleet.ceiling - fleet.hungry_siblings) - fleet.provisioning_here
    count = min(gap, room, share)
    if count <= 0:
        return Admission(0, "pool_share")
    if count == gap:
        return Admission(count)
    return Admission(count, "fleet_cap" if room <= share else "pool_share")
