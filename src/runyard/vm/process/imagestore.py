"""Stores the images of one host: directories that are copied from a source, atomically.

    <quoted reference>/       an image, complete or absent
    <quoted reference>.size   its size in bytes; its time is that of the image's last use

An image that was rebuilt under the same reference is outdated: it is no longer listed and is pulled again. VMs have
their own copies, so an image may be replaced or removed at any moment. Pulls of one image at the same time are one:
the others wait for it, and one of them goes on if it is cancelled.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from runyard.clock import Clock
from runyard.vm.contract import ImageMissing, ImageView, PullProgress, ResolvedImage, Stalled
from runyard.vm.guest.image import image_id
from runyard.vm.process.folders import (
    NewDirectory,
    copy,
    map_os_errors,
    remove_whole,
    sweep,
    visible,
)
from runyard.vm.process.layout import quoted, unquoted

Progress = Callable[[PullProgress], None]
_EVERY = 0.5  # seconds between two reports
_STALL = 300.0  # seconds without a byte


class ImageStore:
    """The images under `home`, "pulled" from `source`."""

    def __init__(self, home: Path, source: Path, clock: Clock, *, stall: float = _STALL) -> None:
        self._home = home
        self._source = source
        self._clock = clock
        self._stall = stall
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, list[Progress]] = {}  # by image, also that of the one that copies

    async def open(self) -> None:
        """Creates the folder; removes what is half copied or half removed."""
        self._home.mkdir(mode=0o700, exist_ok=True)
        await sweep(self._home)

    def resolve(self, image: str) -> ResolvedImage:
        """The reference with a digest; an image that the source has under exactly this name is itself.

        Such an image may be rebuilt, and is then pulled again.
        """
        exact = self._source / quoted(image)
        if "@" in image or exact.is_dir():
            return ResolvedImage(reference=image, bytes=_size(exact))
        name = image.rpartition("/")[2]
        plain = image.rpartition(":")[0] if ":" in name else image
        found = sorted(
            unquoted(path.name)
            for path in visible(self._source)
            if unquoted(path.name).startswith(f"{plain}@")
        )
        if not found:
            raise ImageMissing(f"{self._source} holds no image {plain}@…: give one with its digest")
        if len(found) > 1:
            raise ImageMissing(f"{image} may be {' or '.join(found)}: give one with its digest")
        return ResolvedImage(reference=found[0], bytes=_size(self._source / quoted(found[0])))

    def views(self) -> tuple[ImageView, ...]:
        """The pulled images that are still current at the source."""
        found = visible(self._home)
        return tuple(self._view(path) for path in found if not self._outdated(path))

    def find(self, image: str) -> Path:
        """The directory of an image, which is used now; raises `ImageMissing`."""
        path = self._home / quoted(image)
        if not path.is_dir():
            raise ImageMissing(f"{image} has not been pulled")
        with contextlib.suppress(OSError):
            now = self._clock.now()
            os.utime(_note(path), (now, now))
        return path

    async def pull(self, image: str, progress: Progress) -> None:
        """Copies it from the source; it appears when it is complete."""
        waiting = self._waiting.setdefault(image, [])
        waiting.append(progress)
        try:
            async with self._locks.setdefault(image, asyncio.Lock()):
                await self._pull(image, waiting)
        finally:
            waiting.remove(progress)

    async def remove(self, image: str) -> None:
        """Removes its directory. Absent is success."""
        path = self._home / quoted(image)
        await remove_whole(path)
        _note(path).unlink(missing_ok=True)

    async def _pull(self, image: str, waiting: list[Progress]) -> None:
        target = self._home / quoted(image)
        source = self._source / quoted(image)
        if target.is_dir() and not self._outdated(target):
            return
        if not (source / "boot.sh").is_file():
            raise ImageMissing(f"{self._source} holds no image {image} with a boot.sh")
        with map_os_errors():
            size = await asyncio.to_thread(_size, source)
            async with NewDirectory(target) as fresh:
                async with self._reporting(image, fresh.path, size, waiting):
                    await copy(source, fresh.path)
                await remove_whole(target)  # an outdated one
                _note(target).write_text(f"{size}\n", encoding="ascii")
                fresh.publish()

    @contextlib.asynccontextmanager
    async def _reporting(
        self, image: str, path: Path, size: int, waiting: list[Progress]
    ) -> AsyncIterator[None]:
        """Reports how far a copy is, and raises `Stalled` if it stands still."""
        _report(waiting, 0, size)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch(image, path, size, waiting))
                yield
                watch.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # either the copy failed or the watch did
        _report(waiting, size, size)

    async def _watch(self, image: str, path: Path, size: int, waiting: list[Progress]) -> None:
        done, since = -1, self._clock.monotonic()
        while True:
            await self._clock.sleep(_EVERY)
            now = await asyncio.to_thread(_size, path)
            if now != done:
                done, since = now, self._clock.monotonic()
                _report(waiting, done, size)
            elif self._clock.monotonic() - since > self._stall:
                raise Stalled(
                    f"{image}: no byte was copied for {self._stall:g} s, {done >> 20} of {size >> 20} MiB are there"
                )

    def _view(self, path: Path) -> ImageView:
        note = _note(path)
        try:
            size, used = int(note.read_text(encoding="ascii")), note.stat().st_mtime
        except (OSError, ValueError):
            return ImageView(reference=unquoted(path.name))
        return ImageView(reference=unquoted(path.name), bytes=size, last_used=used)

    def _outdated(self, held: Path) -> bool:
        """Whether the source has another image under this name by now."""
        offered = image_id(self._source / held.name)
        return bool(offered) and offered != image_id(held)


def _note(image: Path) -> Path:
    return image.with_name(f"{image.name}.size")


def _report(waiting: list[Progress], done: int, size: int) -> None:
    percent = 100.0 if done >= size else 100.0 * done / size
    for progress in list(waiting):
        progress(PullProgress(percent=percent, bytes_done=done, bytes_total=size))


def _size(path: Path) -> int:
    """Bytes in the files of a directory that may be changing."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
