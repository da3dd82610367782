"""Registrations at GitHub that nobody speaks for.

A mint whose answer was lost, or that arrived after its offer had been fenced, leaves a runner that
no Pod will ever take up. It is deleted once it was seen twice, some time apart, with the list of
runners taken before the list of slots: a runner minted in between is not judged. A busy one is
never touched, and neither is a name that is not of our making.
"""

import re

import msgspec

_OURS = re.compile(r".*-runner-[0-9a-f]{8}(-[0-9a-f]{8})?|.{55}-[0-9a-f]{8}")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A runner, as GitHub lists it."""

    runner_id: int
    name: str
    busy: bool


def unspoken(
    registrations: tuple[Registration, ...], spoken_for: frozenset[str]
) -> tuple[Registration, ...]:
    """Those of ours that no claim and no due fence speaks for."""
    return tuple(
        each
        for each in registrations
        if not each.busy and each.name not in spoken_for and _OURS.fullmatch(each.name)
    )
