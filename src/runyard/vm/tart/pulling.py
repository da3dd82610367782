"""Pulls images: one pull per image at a time, bounded by its progress and not by its time.

A pull of a large image over a slow line takes hours and is fine; one that stands still is ended with `Stalled`.
Progress is a new percentage, or growth of the folder in which tart collects the image; a line that repeats itself is no
progress. Of a registry tart pulls one image at a time: a pull that waits for its turn advances with the one before it.

tart prints percentages only. The registry says how large the image is, so that callers get bytes as well.

Invariants:
- Callers for the same image share one pull, and its progress is reported to each. It ends when its last caller has
  gone.
- Every progress is reported, also if the percentage stays the same: callers may have a deadline of their own.
- Growth counts for the pull that it belongs to: one that stands still is ended, however much another one advances.
- Credentials are in the environment of the pull's own tart, and in no argument.
- INT comes before KILL: tart then leaves its folder for downloads in order. All its processes have ended when the last
  caller returns.
- Present is success, without a pull.
"""

import asyncio
import hashlib
import os
import re
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from runyard.procgroup import GRACE, ProcError, SignalSteps
from runyard.procgroup import Stalled as NoProgress
from runyard.proclines import Line, Stall, bytes_on_disk, stream
from runyard.vm.contract import DriverFailed, NoSpace, PullProgress, Stalled
from runyard.vm.tart import errors
from runyard.vm.tart.commands import Tart

Progress = Callable[[PullProgress], None]

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of a terminal, by which a line is repainted
_PERCENT = re.compile(r"[^\d%]{0,60}?(\d{1,3}(?:\.\d+)?)\s*%[^\d%]{0,60}")
# Progress, which is no cause of a failure.
_STEP = re.compile(r"\s*\d{1,3}(?:\.\d+)?\s*%\s*|pulling .*\.\.\.")
_KEPT = 200  # lines of the end of the output, for the message of a failure: it may quote a page of a registry
_GB = 10**9


class Download(Protocol):
    """What a registry says about a pull; `vm.oci` finds it out."""

    @property
    def bytes(self) -> int:
        """To be downloaded; 0 if unknown."""
        ...

    @property
    def insecure(self) -> bool:
        """Whether the registry speaks plain HTTP although nothing declares it so."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with the credentials that the registry asks for."""
        ...


class _Pull:
    """One pull with its callers."""

    def __init__(self, image: str) -> None:
        self.registry = image.partition("/")[0]
        # As tart names it: a pull that was interrupted goes on there.
        self.folder = hashlib.md5(image.encode(), usedforsecurity=False).hexdigest()
        self.callers: list[Progress] = []
        self.task: asyncio.Task[None] | None = None
        self.bytes = 0  # to be downloaded; 0: the registry did not say
        self.written: Callable[[], int] = lambda: 0  # bytes that are on the disk
        self.percent: float | None = None
        self.waits = False  # until tart's pull before it, from the same registry, has ended
        self._moved = False  # whether that one has advanced

    @property
    def progress(self) -> PullProgress:
        """How far it has come."""
        percent = self.percent or 0.0
        done = int(self.bytes * percent / 100) if self.bytes else self.written()
        return PullProgress(percent=percent, bytes_done=done, bytes_total=self.bytes)

    def advances(self, line: Line) -> bool:
        """Whether this line is progress: a percentage counts if it is new. Every caller then gets it."""
        percent = percent_of(line.text)
        if percent is None:
            self.waits = errors.is_waiting_for_its_turn(line.text)
            return False
        self.waits = False
        if percent == self.percent:
            return False
        self.percent = percent
        self.report()
        return True

    def follow(self) -> None:
        """The pull that it waits for has advanced."""
        self._moved = True
        self.report()

    def moved(self) -> bool:
        """Whether that was so since the last question."""
        moved, self._moved = self._moved, False
        return moved

    def report(self) -> None:
        """Pass the progress on to every caller."""
        for progress in tuple(self.callers):
            progress(self.progress)


class Pulls:
    """The pulls of one host."""

    def __init__(
        self,
        tart: Tart,
        present: Callable[[str], Awaitable[bool]],
        look_up: Callable[[str], Awaitable[Download]],
    ) -> None:
        self._tart = tart
        self._present = present
        self._look_up = look_up
        self._running: dict[str, _Pull] = {}

    async def pull(self, image: str, progress: Progress) -> None:
        """Pull an image, or wait for the pull that is under way."""
        while (found := self._running.get(image)) is not None and not found.callers:
            await asyncio.wait(tasks(found))  # its last caller has gone, and it is being ended
        if found is None:
            found = self._running[image] = _Pull(image)
            found.task = asyncio.get_running_loop().create_task(self._whole(image, found))
        await self._wait(found, progress)

    async def _wait(self, found: _Pull, progress: Progress) -> None:
        found.callers.append(progress)
        if found.percent is not None:
            progress(found.progress)
        try:
            await asyncio.wait(tasks(found))
        finally:
            found.callers.remove(progress)
            if not found.callers:
                await _ended(found)
        for task in tasks(found):
            task.result()

    async def _whole(self, image: str, found: _Pull) -> None:
        try:
            if not await self._present(image):
                await self._stream(image, found)
        finally:
            del self._running[image]

    async def _stream(self, image: str, found: _Pull) -> None:
        settings = self._tart.settings
        download = await self._look_up(image)
        found.bytes = download.bytes
        found.written = lambda: bytes_on_disk(self._growing(found))
        await asyncio.to_thread(self._check_space, image, found)
        stall = Stall(
            seconds=settings.pull_stall,
            growing=lambda: self._growing(found),
            advances=lambda line: found.advances(line) and self._pass_on(found),
            grew=found.report,
            moved=found.moved,
        )
        steps: SignalSteps = ((signal.SIGINT, settings.pull_ending), (signal.SIGTERM, GRACE))
        end: deque[str] = deque(maxlen=_KEPT)
        try:
            async with stream(
                self._tart.pull_argv(image, insecure=download.insecure),
                clock=self._tart.clock,
                stall=stall,
                env={**self._tart.environment, **download.environment},
                steps=steps,
            ) as lines:
                async for line in lines:
                    if not _STEP.fullmatch(line.text):
                        end.append(line.text)
        except NoProgress as error:
            raise Stalled(_stalled(image, found, settings.pull_stall)) from error
        except ProcError as error:
            raise DriverFailed(f"pull of {image}: {error}") from error
        if lines.code != 0:
            raise errors.failure(f"pull of {image}", lines.code, "\n".join(end))

    def _pass_on(self, found: _Pull) -> bool:
        """Let the pulls that wait for this one know that it has advanced."""
        for each in self._running.values():
            if each.waits and each.registry == found.registry:
                each.follow()
        return True

    def _check_space(self, image: str, found: _Pull) -> None:
        """End a pull that cannot succeed before it begins: an image takes no less than what is downloaded."""
        home = self._tart.home
        there = next(each for each in (home, *home.parents) if each.exists())
        disk = os.statvfs(there)
        free = disk.f_bavail * disk.f_frsize + bytes_on_disk((home / "tmp" / found.folder,))
        if found.bytes > free:
            raise NoSpace(
                f"pull of {image}: it downloads {found.bytes / _GB:.1f} GB and takes more than that, but"
                f" {free / _GB:.1f} GB are free below {there}; free space, or let images be collected that no Pod uses"
            )

    def _growing(self, found: _Pull) -> tuple[Path, ...]:
        """Where the growth is that belongs to a pull, or to the one that it waits for."""
        folder = self._tart.home / "tmp"
        own = folder / found.folder
        others = [each for each in self._running.values() if each is not found]
        if own.is_dir() and not found.waits:
            return (own,)
        if found.waits:  # the pull before it may be another program's, so its folder is not known
            others = [each for each in others if each.registry != found.registry]
        elif others:  # a tart that names its folders otherwise: whose growth it is cannot be known
            return ()
        known = [each.folder for each in others]
        try:
            return tuple(sorted(each for each in folder.iterdir() if each.name not in known))
        except OSError:
            return ()


def _stalled(image: str, found: _Pull, seconds: float) -> str:
    ended = f"pull of {image}: no progress for {seconds:g} s"
    if found.waits:
        return (
            f"{ended} while it waited for another pull from {found.registry}, so it was ended;"
            " end that `tart pull` if it stands still"
        )
    return (
        f"{ended} at {found.percent or 0:g} %, so it was ended;"
        " check the network between this host and the registry"
    )


def percent_of(text: str) -> float | None:
    """The percentage that a line shows, with or without words around it; None for other lines and for errors."""
    text = _CODES.sub("", text)
    found = None if text.startswith(("Error", "error")) else _PERCENT.fullmatch(text)
    return min(100.0, float(found[1])) if found else None


def tasks(found: _Pull) -> tuple[asyncio.Task[None], ...]:
    """The pull's task, for waiting."""
    return () if found.task is None else (found.task,)


async def _ended(found: _Pull) -> None:
    """End a pull without callers, and wait until its processes are gone; being cancelled again changes nothing."""
    cancelled: asyncio.CancelledError | None = None
    for task in tasks(found):
        task.cancel()
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.cancelled():
            task.exception()  # it has no caller any more
    if cancelled is not None:
        raise cancelled
