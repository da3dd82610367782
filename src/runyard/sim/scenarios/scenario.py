"""An incident as a value: what happened, the fleets that it is played on, the play, and the guards that answer it."""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.sim.fleet import Fleet
from runyard.sim.shape import Shape


class Without(msgspec.Struct, frozen=True, kw_only=True):
    """A guard of this incident. Played without it, the run must fail, and the failure say `fails`."""

    guard: str
    fails: str
    long: bool = False  # to fail takes more than a few seconds


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """An incident: the fleets that it is played on, one run each, and the play."""

    name: str
    tells: str
    shapes: Callable[[int], tuple[Shape, ...]]
    play: Callable[[Fleet], Awaitable[None]]
    without: tuple[Without, ...] = ()
    unguarded: str = ""  # why no single guard answers it, if none does
    long: bool = False  # takes more than a few seconds


def lacking(shape: Shape, guard: str) -> Shape:
    """The same fleet without a guard."""
    return msgspec.structs.replace(shape, off=(*shape.off, guard))
