"""Shares network bandwidth under virtual time: many hosts behind one uplink, each with a line of its own.

A transfer gets the smaller of two shares: its host's line divided by that host's transfers, and the uplink divided by
all transfers. A line can stand still, as a connection that is open and delivers nothing.
"""

import asyncio
import math
from collections.abc import Callable

from runyard.clock import Clock

_REPORT_EVERY = 5.0  # seconds between two reports of a transfer


class Uplink:
    """The connection of a site to the registry."""

    def __init__(self, clock: Clock, *, bandwidth: float = math.inf) -> None:
        self.clock = clock
        self.bandwidth = bandwidth
        self.transfers = 0
        self._changed = asyncio.Event()

    def line(self, bandwidth: float) -> "Line":
        """A host's own connection to the uplink."""
        return Line(self, bandwidth)

    def change(self) -> None:
        """Lets every transfer compute its rate anew."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until_changed(self, *, within: float) -> None:
        """Waits until a rate may have changed, at most so long."""
        try:
            async with self.clock.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return


class Line:
    """One host's connection; its transfers have equal shares."""

    def __init__(self, uplink: Uplink, bandwidth: float) -> None:
        self._uplink = uplink
        self._bandwidth = bandwidth
        self._transfers = 0
        self._stalled = False

    @property
    def rate(self) -> float:
        """Bytes a second of each of this host's transfers now."""
        if self._stalled or not self._transfers:
            return 0.0
        return min(
            self._bandwidth / self._transfers, self._uplink.bandwidth / self._uplink.transfers
        )

    def set_bandwidth(self, bandwidth: float) -> None:
        """Changes what the line carries."""
        self._bandwidth = bandwidth
        self._uplink.change()

    def stall(self, stalled: bool = True) -> None:
        """Lets the transfers stand still, or go on."""
        self._stalled = stalled
        self._uplink.change()

    async def transfer(
        self, size: float, *, stall_after: float, report: Callable[[float], None]
    ) -> bool:
        """Transfers so many bytes; False if nothing arrived for `stall_after` seconds."""
        clock, left, silent = self._uplink.clock, size, 0.0
        self._add(+1)
        try:
            while left >= 1.0:
                rate, began = self.rate, clock.monotonic()
                needs = left / rate if rate else stall_after - silent
                await self._uplink.until_changed(within=min(needs, _REPORT_EVERY))
                passed = clock.monotonic() - began
                left -= passed * rate
                silent = 0.0 if rate else silent + passed
                if silent >= stall_after:
                    return False
                report(size - max(0.0, left))
        finally:
            self._add(-1)
        return True

    def _add(self, change: int) -> None:
        self._transfers += change
        self._uplink.transfers += change
        self._uplink.change()
