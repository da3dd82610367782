"""Keeps one local VM for each image, from which all others are cloned.

A clone of a local VM is a copy on write of a few megabytes. Cloning from the image of the registry would find a digest
deleted meanwhile, and tart would then pull it again, inside a clone and without any progress.

Invariants:
- A golden VM is never started. Its name follows from the image's reference with digest, so it is never outdated.
- What is deleted or rebuilt was made here: a record in `folder` says so. It is written before the VM is made.
- Making, rebuilding and deleting one hold its lock; cloning from it does too.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from runyard.files import write_whole
from runyard.vm.contract import DriverFailed, Hung
from runyard.vm.oserrors import map_os_errors
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.errors import DoesNotExist, Incomplete

PREFIX = "runyard-golden-"


class _Record(msgspec.Struct, frozen=True):
    image: str


class Goldens:
    """The golden VMs of one host; their records are in `folder`."""

    def __init__(self, tart: Tart, folder: Path) -> None:
        self._tart = tart
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    def is_ours(self, name: str) -> bool:
        """Whether this local VM is a golden one that was made here."""
        return name.startswith(PREFIX) and self._record(name).is_file()

    async def clone(self, image: str, name: str) -> None:
        """Clone a VM from the image; a golden VM that is broken is made again, once."""
        async with self._held(image) as golden:
            await self._ensure(image, golden)
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
        async with self._held(image) as golden:
            if self.is_ours(golden):
                await self._tart.delete(golden)
                with map_os_errors():
                    self._record(golden).unlink(missing_ok=True)

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

    @contextlib.asynccontextmanager
    async def _held(self, image: str) -> AsyncIterator[str]:
        golden = golden_name(image)
        async with self._locks.setdefault(golden, asyncio.Lock()):
            yield golden


def golden_name(image: str) -> str:
    """The name of an image's golden VM, with the hash that Nodes are labelled with."""
    return PREFIX + hashlib.sha256(image.encode()).hexdigest()[:16]
