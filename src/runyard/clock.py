"""Provides the time and sleeping to all other code.

Every loop of runyard reads the time from a `Clock` and sleeps with it. In production that is the
machine's clock; in the simulator it is virtual, so a simulated day passes in seconds and a run can be
replayed. Nothing else in the code base may read a clock or sleep (the linter forbids it).

Invariants:
- `now()` is UTC, in seconds since the epoch, and is only for stored and displayed times.
- `monotonic()` never goes back and is the only time that a timer may be computed from.
- Deadlines of rows in Postgres are not computed here but in SQL, see `db`.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Gives the time and sleeps. Implementations: `RealClock` here, the simulator's virtual one."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; differences are meaningful, values are not."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait. A negative or zero wait still lets other tasks run once."""
        ...

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """A context that raises `TimeoutError` when its body lasts longer."""
        ...


class RealClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """The running loop's time, so that timers and timeouts agree."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(max(0.0, seconds))

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Bound the enclosed block on the running loop."""
        return asyncio.timeout(seconds)
