"""Gives calls of the driver a deadline whose end is an error with a text.

A bare `TimeoutError` says nothing, and its text would end up in a Pod's status.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from runyard.clock import Clock
from runyard.vm.contract import Hung, VmError


@contextlib.asynccontextmanager
async def within(
    clock: Clock, seconds: float, error: Callable[[], VmError]
) -> AsyncIterator[asyncio.Timeout]:
    """Raise this error if the body lasts longer; a deadline of the body's own is passed on. It can be moved."""
    limit = clock.timeout(seconds)
    try:
        async with limit:
            yield limit
    except TimeoutError as cause:
        if not limit.expired():
            raise
        raise error() from cause


def hung(what: str, seconds: float) -> Callable[[], VmError]:
    """The error of a call that the driver has not ended itself."""
    return lambda: Hung(
        f"{what}: the driver did not end it within {seconds:g} s, so the agent did; it is tried again"
    )
