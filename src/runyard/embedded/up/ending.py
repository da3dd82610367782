"""How a machine is told to end: once in order, twice in a hurry, and never half.

The first Ctrl-C begins the end, wherever the machine is: also while it still starts. The second one takes away all
patience: nobody is asked any more, everything is killed. In both cases the end itself is carried through:
what the machine started is gone before it returns.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from runyard.clock import Clock

T = TypeVar("T")


class ToldToEnd(Exception):
    """Work was given up because the end was asked for."""


class Ending:
    """Call `ask` at each Ctrl-C."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        """End; asked once more: at once."""
        if self.begun.is_set():
            self.hurried.set()
        self.begun.set()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, but give it up with `ToldToEnd` when the event comes first."""
    async with asyncio.TaskGroup() as group:
        doing = group.create_task(work)
        told = group.create_task(event.wait())
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        doing.cancel()  # no harm if it is done
    if doing.cancelled():
        raise ToldToEnd
    return doing.result()


async def patiently(
    work: Coroutine[Any, Any, object], *, clock: Clock, within: float, ending: Ending
) -> bool:
    """Whether the work was done in time; given up after so many seconds, and at once in a hurry."""
    try:
        async with clock.timeout(within):
            await unless(ending.hurried, work)
    except (TimeoutError, ToldToEnd):
        return False
    return True


async def whole(work: Coroutine[Any, Any, object]) -> None:
    """Carry the work through even if we are cancelled meanwhile; the cancellation then goes on."""
    # A task of nobody's group on purpose: a group's failure is what it must not be cancelled by.
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
