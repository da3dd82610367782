"""The clock of a simulated component: the loop's virtual time plus that machine's skew."""

import asyncio

from runyard.sim.loop import VirtualLoop


class VirtualClock:
    """Virtual time. One per simulated machine; `skew` may be changed while it runs.

    Skew changes `now()` only: a wrong wall clock is a fault that happens, a monotonic clock that jumps is not. Create
    it inside the running simulation.
    """

    def __init__(self, *, skew: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("a VirtualClock needs a running VirtualLoop")
        self._loop = loop
        self.skew = skew

    def now(self) -> float:
        """Virtual wall-clock seconds since the epoch, plus this machine's skew."""
        return self._loop.start + self._loop.time() + self.skew

    def monotonic(self) -> float:
        """Virtual seconds since the run began."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(max(0.0, seconds))  # noqa: TID251 - this is the clock that others await

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Bound the enclosed block in virtual time."""
        return asyncio.timeout(seconds)
