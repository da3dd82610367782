"""Handles Ctrl-C: the first one stops the machine in order, the second one at once.

The first Ctrl-C starts the shutdown, also while the machine still starts. After the second one everything is killed. In
both cases the shutdown runs to completion: all processes that the machine started are gone before it returns.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from runyard.clock import Clock

T = TypeVar("T")


class ShutdownRequested(Exception):
    """Work was cancelled because the shutdown was requested."""


class Shutdown:
    """Call `request` at each Ctrl-C."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self) -> None:
        """Requests the shutdown; a second call: at once."""
        if self.begun.is_set():
            self.forced.set()
        self.begun.set()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Does the work; if the event is set first, cancels it and raises `ShutdownRequested`."""
    async with asyncio.TaskGroup() as group:
        doing = group.create_task(work)
        requested = group.create_task(event.wait())
        await asyncio.wait((doing, requested), return_when=asyncio.FIRST_COMPLETED)
        requested.cancel()
        doing.cancel()  # no effect if it is done
    if doing.cancelled():
        raise ShutdownRequested
    return doing.result()


async def within_deadline(
    work: Coroutine[Any, Any, object], *, clock: Clock, within: float, shutdown: Shutdown
) -> bool:
    """Whether the work was done in time; it is cancelled after that many seconds, or at the second Ctrl-C."""
    try:
        async with clock.timeout(within):
            await unless(shutdown.forced, work)
    except (TimeoutError, ShutdownRequested):
        return False
    return True


async def uncancelled(work: Coroutine[Any, Any, object]) -> None:
    """Completes the work even if we are cancelled meanwhile; the cancellation is raised afterwards."""
    # Deliberately in no task group: the failure of a group must not cancel it.
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
