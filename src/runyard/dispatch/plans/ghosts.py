"""Finds registrations at GitHub that no slot claims.

A mint whose answer was lost, or that arrived after its offer had been fenced, leaves a runner that
no Pod will ever start. It is deleted after it was seen twice, some time apart. The runners are listed before the slots
are read, so a runner that is minted in between is not considered. Busy runners and runners with other names than ours
are never deleted.
"""

import re

import msgspec

from runyard.wire.names import RUNNER_NAME_LIMIT

_SUFFIX = re.compile(r"-runner-[0-9a-f]{8}")
_SHORTENED = re.compile(r"-[0-9a-f]{8}")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A runner, as GitHub lists it."""

    runner_id: int
    name: str
    busy: bool


def unclaimed(
    registrations: tuple[Registration, ...], claimed: frozenset[str], *, pools: tuple[str, ...]
) -> tuple[Registration, ...]:
    """Our registrations that have neither a claim nor a due fence."""
    return tuple(
        each
        for each in registrations
        if not each.busy
        and each.name not in claimed
        and any(_is_of(each.name, pool) for pool in pools)
    )


def _is_of(name: str, pool: str) -> bool:
    """Whether a runner of that pool has this name. Runners of other owners may be called "linux-runner-1"."""
    if name.startswith(pool) and _SUFFIX.fullmatch(name, len(pool)):
        return True
    kept = RUNNER_NAME_LIMIT - 9  # a long name is cut there and ends in a hash
    return (
        len(name) == RUNNER_NAME_LIMIT
        and name[:kept].startswith(f"{pool}-runner-"[:kept])
        and _SHORTENED.fullmatch(name, kept) is not None
    )
