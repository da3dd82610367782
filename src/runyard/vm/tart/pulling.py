"""Pulls images: one pull per image at a time, bounded by its progress and not by its time.

A pull of a large image over a slow line takes hours and is fine; one that stands still is ended with `Stalled`.
Progress is a new percentage, or growth of tart's folder for downloads; a line that repeats itself is no progress.

Invariants:
- Callers for the same image share one pull, and its progress is reported to each. It ends when its last caller has
  gone.
- INT comes before KILL: tart then leaves its folder for downloads in order. All its processes have ended when the last
  caller returns.
- Present is success, without a pull.
"""

import asyncio
import re
import signal
from collections import deque
from collections.abc import Awaitable, Callable

from runyard.procgroup import GRACE, Ladder, ProcError
from runyard.procgroup import Stalled as NoProgress
from runyard.proclines import Line, Stall, stream
from runyard.vm.contract import DriverFailed, PullProgress, Stalled
from runyard.vm.tart import errors
from runyard.vm.tart.commands import Tart

Progress = Callable[[PullProgress], None]

_PERCENT = re.compile(r"\s*(\d{1,3})(?:\.\d+)?\s*%\s*")
_KEPT = 20  # lines of the end of the output, for the message of a failure


class _Pull:
    """One pull with its callers."""

    def __init__(self) -> None:
        self.callers: list[Progress] = []
        self.task: asyncio.Task[None] | None = None
        self.percent: float | None = None

    def report(self, percent: float) -> None:
        """Pass the progress on to every caller."""
        self.percent = percent
        for progress in tuple(self.callers):
            progress(PullProgress(percent=percent))


class Pulls:
    """The pulls of one host."""

    def __init__(self, tart: Tart, present: Callable[[str], Awaitable[bool]]) -> None:
        self._tart = tart
        self._present = present
        self._running: dict[str, _Pull] = {}

    async def pull(self, image: str, progress: Progress) -> None:
        """Pull an image, or wait for the pull that is under way."""
        while (found := self._running.get(image)) is not None and not found.callers:
            await asyncio.wait(tasks(found))  # its last caller has gone, and it is being ended
        if found is None:
            found = self._running[image] = _Pull()
            found.task = asyncio.get_running_loop().create_task(self._whole(image, found))
        await self._wait(found, progress)

    async def _wait(self, found: _Pull, progress: Progress) -> None:
        found.callers.append(progress)
        if found.percent is not None:
            progress(PullProgress(percent=found.percent))
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
        highest = _Highest()
        stall = Stall(
            seconds=settings.pull_stall,
            growing=(self._tart.home / "tmp",),
            advances=highest.advances,
        )
        ladder: Ladder = ((signal.SIGINT, settings.pull_ending), (signal.SIGTERM, GRACE))
        end: deque[str] = deque(maxlen=_KEPT)
        try:
            async with stream(
                self._tart.pull_argv(image),
                clock=self._tart.clock,
                stall=stall,
                env=self._tart.environment,
                ladder=ladder,
            ) as lines:
                async for line in lines:
                    percent = percent_of(line.text)
                    if percent is None:
                        end.append(line.text)
                    else:
                        found.report(percent)
        except NoProgress as error:
            raise Stalled(
                f"pull of {image}: no progress for {settings.pull_stall:g} s at {found.percent or 0:g} %,"
                " so it was ended; check the network between this host and the registry"
            ) from error
        except ProcError as error:
            raise DriverFailed(f"pull of {image}: {error}") from error
        if lines.code != 0:
            raise errors.failure(f"pull of {image}", lines.code, "\n".join(end))


class _Highest:
    """Tells progress from repetition: a line counts if its percentage is new."""

    def __init__(self) -> None:
        self._percent = -1.0

    def advances(self, line: Line) -> bool:
        """Whether this line is progress."""
        percent = percent_of(line.text)
        if percent is None or percent == self._percent:
            return False
        self._percent = percent
        return True


def percent_of(text: str) -> float | None:
    """The percentage that a line consists of; None for every other line."""
    found = _PERCENT.fullmatch(text)
    return min(100.0, float(found[0].strip().rstrip("%"))) if found else None


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
