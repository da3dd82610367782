"""An incident as a value: what happened, the fleets that it runs on, the run, and the guards that prevent it."""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.sim.fleet import Fleet
from runyard.sim.shape import Shape
from runyard.wire.reasons import Code


class Without(msgspec.Struct, frozen=True, kw_only=True):
    """A guard of this incident. Without it the run must fail with this code, and with at least this detail."""

    guard: str
    fails: Code
    detail: tuple[tuple[str, str], ...] = ()
    long: bool = False  # to fail takes more than a few seconds


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """An incident: the fleets that it runs on, one run each, and the run."""

    name: str
    summary: str
    shapes: Callable[[int], tuple[Shape, ...]]
    play: Callable[[Fleet], Awaitable[None]]
    without: tuple[Without, ...] = ()
    unguarded: str = ""  # why no single guard prevents it, if none does
    long: bool = False  # takes more than a few seconds


def lacking(shape: Shape, guard: str) -> Shape:
    """The same fleet without a guard."""
    return msgspec.structs.replace(shape, off=(*shape.off, guard))
