"""Registrations at GitHub that nobody speaks for.

A mint whose answer was lost, or that arrived after its offer had been fenced, leaves a runner that
no Pod will ever take up. It is deleted once it was seen twice, some time apart, with the list of
runners taken before the list of slots: a runner minted in between is not judged. A busy one is
never touched, and neither is a name that is not of our making.
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


def unspoken(
    registrations: tuple[Registration, ...], spoken_for: frozenset[str], *, pools: tuple[str, ...]
) -> tuple[Registration, ...]:
    """Those of ours that no claim and no due fence speaks for."""
    return tuple(
        each
        for each in registrations
        if not each.busy
        and each.name not in spoken_for
        and any(_is_of(each.name, pool) for pool in pools)
    )


def _is_of(name: str, pool: str) -> bool:
    """Is this the name of a runner of that pool? Other people's machines may be called "linux-runner-1"."""
    if name.startswith(pool) and _SUFFIX.fullmatch(name, len(pool)):
        return True
    kept = RUNNER_NAME_LIMIT - 9  # a long name is cut there and ends in a hash
    return (
        len(name) == RUNNER_NAME_LIMIT
        and name[:kept].startswith(f"{pool}-runner-"[:kept])
        and _SHORTENED.fullmatch(name, kept) is not None
    )
