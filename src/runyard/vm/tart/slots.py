"""Apple's limit: at most two macOS guests run at once on one Mac, also by other programs.

A third `tart run` would fail, after its VM has counted as started. So the running VMs are counted before, those of
strangers too.
tart does not say which guests run Linux, for which there is no limit; they count as well.

Invariants:
- Counting and starting are one step: two starts at the same time do not both take the last slot.
- A VM of ours counts from its start, also before tart lists it as running.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from runyard.vm.contract import SlotsFull
from runyard.vm.tart.commands import Tart


class Slots:
    """The VM slots of this host."""

    def __init__(self, tart: Tart, ours: Callable[[], tuple[str, ...]]) -> None:
        self._tart = tart
        self._ours = ours
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[None]:
        """Holds a free slot while this VM starts; raises `SlotsFull` if there is none."""
        limit = self._tart.settings.slots
        async with self._lock:
            used = [each for each in await self.used() if each != name] if limit else []
            if limit and len(used) >= limit:
                raise SlotsFull(
                    f"{name} waits: {len(used)} of {limit} VM slots of this host are used, by {', '.join(used)};"
                    " it starts when one of them ends"
                )
            yield

    async def used(self) -> tuple[str, ...]:
        """The running VMs, ours and strangers', by name."""
        listed = [entry.name for entry in await self._tart.list() if entry.local and entry.running]
        return tuple(sorted(dict.fromkeys((*listed, *self._ours()))))
