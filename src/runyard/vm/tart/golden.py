"""Keeps one local VM for each image, from which all others are cloned.

A clone of a local VM is a copy on write of a few megabytes. Cloning from the image of the registry would find a digest
deleted meanwhile, and tart would then pull it again, inside a clone and without any progress.

A golden VM is no part of its image: a person, or tart's own pruning, deletes the image and leaves it behind. So
`collect` looks at what was made here, and at nothing else.

Invariants:
- A golden VM is never started. Its name follows from the image's reference with digest, so it is never outdated, and
  from `folder`, so agents with different directories on one host have their own ones.
- What is deleted or rebuilt was made here: a record in `folder` says so. It is written before the VM is made, and its
  time is that of the last use.
- Making, rebuilding and deleting one hold its lock; cloning from it does too.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from runyard.files import remove_drafts, write_whole
from runyard.vm.contract import DriverFailed, Hung
from runyard.vm.oserrors import map_os_errors
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.errors import DoesNotExist, Incomplete, StillRunning

PREFIX = "runyard-golden-"


class _Record(msgspec.Struct, frozen=True):
    image: str


_decoder = msgspec.json.Decoder(_Record)


class Goldens:
    """The golden VMs of one host; their records are in `folder`."""

    def __init__(self, tart: Tart, folder: Path) -> None:
        self._tart = tart
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    def sweep(self) -> None:
        """Remove records that a killed agent has left half written; raises OSError."""
        remove_drafts(self._folder)

    def is_ours(self, name: str) -> bool:
        """Whether this local VM is a golden one that was made here."""
        return name.startswith(PREFIX) and self._record(name).is_file()

    async def clone(self, image: str, name: str) -> None:
        """Clone a VM from the image; a golden VM that is broken is made again, once."""
        golden = golden_name(image, self._folder)
        async with self._held(golden):
            await self._ensure(image, golden)
            self._mark_used(golden)
            try:
                await self._tart.clone(golden, name)
            except Hung:
                raise
            except DriverFailed:  # of the golden VM, for all that tart says
                await self._tart.delete(golden)
                await self._ensure(image, golden)
                await self._tart.clone(golden, name)

    async def remove(self, image: str) -> None:
        """Delete the golden VM of an image; absent is success."""
        golden = golden_name(image, self._folder)
        async with self._held(golden):
            await self._delete(golden)

    async def collect(
        self, *, listed: frozenset[str], used: frozenset[str], idle: float
    ) -> tuple[str, ...]:
        """Delete those whose image is not listed, and those not used for so long; returns their images.

        The list may be older than a clone from an image that was pulled meanwhile, so one whose lock is held, or that
        was used since the call began, stays.
        """
        began = self._tart.clock.now()
        gone: list[str] = []
        for golden, image in await asyncio.to_thread(self._recorded):
            last = self._last_use(golden)
            if image in used or (image in listed and began - last < idle):
                continue
            if self._lock(golden).locked():
                continue
            async with self._held(golden):
                if self._last_use(golden) > last:
                    continue
                with contextlib.suppress(StillRunning):  # a person has started it
                    await self._delete(golden)
                    gone.append(image)
        return tuple(gone)

    async def _delete(self, golden: str) -> None:
        if self.is_ours(golden):
            await self._tart.delete(golden)
            with map_os_errors():
                self._record(golden).unlink(missing_ok=True)

    def _recorded(self) -> tuple[tuple[str, str], ...]:
        """The golden VMs that were made here, and their images; a record that cannot be read proves nothing."""
        found: list[tuple[str, str]] = []
        for path in sorted(self._folder.glob(f"{PREFIX}*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append((path.stem, _decoder.decode(path.read_bytes()).image))
        return tuple(found)

    def _last_use(self, golden: str) -> float:
        try:
            return self._record(golden).stat().st_mtime
        except OSError:
            return 0.0

    def _mark_used(self, golden: str) -> None:
        now = self._tart.clock.now()
        with contextlib.suppress(OSError):  # then it is made again, sooner than needed
            os.utime(self._record(golden), (now, now))

    async def _ensure(self, image: str, golden: str) -> None:
        try:
            await self._tart.get(golden)
        except DoesNotExist:
            pass
        except Incomplete:
            self._check_ours(golden)
            await self._tart.delete(golden)
        else:
            self._check_ours(golden)
            return
        with map_os_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._record(golden), msgspec.json.encode(_Record(image)))
        await self._tart.clone(image, golden)

    def _check_ours(self, golden: str) -> None:
        if not self.is_ours(golden):
            raise DriverFailed(
                f"a VM with the name {golden} exists that was not made here; delete it with `tart delete {golden}`"
            )

    def _record(self, golden: str) -> Path:
        return self._folder / f"{golden}.json"

    def _lock(self, golden: str) -> asyncio.Lock:
        return self._locks.setdefault(golden, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def _held(self, golden: str) -> AsyncIterator[None]:
        async with self._lock(golden):
            yield


def golden_name(image: str, folder: Path) -> str:
    """The name of the golden VM that the owner of this folder makes of an image."""
    return PREFIX + hashlib.sha256(f"{image}\n{folder.resolve()}".encode()).hexdigest()[:16]
