"""Manages the images of a host: pulls, use, removal.

Pulls run in workers of their own, a few at a time and one per image. A Pod that needs an image requests it, and its
key is queued again when the pull has ended. So no heartbeat and no deletion ever waits for a pull.

Invariants:
- One image is never pulled twice at once, nor pulled and removed at once.
- An image is removed only while no Pod, no record and no pull uses it; what is being removed counts as
  absent from the moment at which that was decided.
- A failed pull is remembered with the time before which it is not tried again.
"""

import asyncio
from collections.abc import Callable

import msgspec

from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.plans.gc import HeldImage, RemoveImage, plan_gc
from runyard.node.plans.gc import Snapshot as GcSnapshot
from runyard.node.plans.pod import ImageFacts, ImageState
from runyard.node.plans.values import bounded
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.vm.contract import NoSpace, VmError


class _Failure(msgspec.Struct, frozen=True):
    error: str
    times: int
    retry_at: float  # monotonic


class ImageStore:
    """Images on this host, with their users."""

    def __init__(
        self, deps: Deps, *, in_use: Callable[[], frozenset[str]], wake: Callable[[str], None]
    ) -> None:
        self._deps = deps
        self._in_use = in_use
        self._wake = wake
        self._last_used: dict[str, float] | None = None  # by held image; None before the first list
        self._waiting: dict[str, dict[str, None]] = {}  # image being pulled → keys to wake
        self._failures: dict[str, _Failure] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    @property
    def held(self) -> tuple[str, ...] | None:
        """References of the images on this host; None before the first list."""
        return None if self._last_used is None else tuple(self._last_used)

    def facts(self, image: str, key: str = "") -> ImageFacts:
        """Return the state of an image; while it is being pulled, `key` is queued again when that has ended."""
        waiting = self._waiting.get(image)
        if waiting is not None:
            if key:
                waiting[key] = None
            return ImageFacts(state=ImageState.PULLING)
        if self._last_used is not None and image in self._last_used:
            return ImageFacts(state=ImageState.HELD)
        failure = self._failures.get(image)
        wait = 0.0 if failure is None else failure.retry_at - self._deps.clock.monotonic()
        if failure is not None and wait > 0:
            return ImageFacts(state=ImageState.FAILED, error=failure.error, retry_in=wait)
        return ImageFacts(state=ImageState.ABSENT)

    def request(self, image: str, key: str) -> None:
        """Request a pull, and queue this key again when it has ended."""
        waiting = self._waiting.get(image)
        if waiting is None:
            waiting = self._waiting[image] = {}
            self._queue.put_nowait(image)
        waiting[key] = None

    def missing(self, image: str) -> None:
        """Record that an image is not on this host after all."""
        if self._last_used is not None:
            self._last_used.pop(image, None)

    async def run(self) -> None:
        """Pull requested images, and list the images periodically."""
        settings = self._deps.settings
        async with asyncio.TaskGroup() as tasks:
            for _ in range(max(1, settings.pulls)):
                tasks.create_task(self._puller())
            tasks.create_task(
                run_loop(
                    Loop.IMAGE_INVENTORY,
                    self.refresh,
                    clock=self._deps.clock,
                    meter=self._deps.meter,
                    log=self._deps.log,
                    every=settings.images_every,
                    deadline=settings.deadlines.list,
                    expected=DEPENDENCY_ERRORS,
                    freshness=self._deps.freshness,
                )
            )

    async def refresh(self) -> None:
        """List the images with the driver."""
        before = self._last_used or {}
        found = await self._deps.driver.images()
        now = self._deps.clock.monotonic()
        newer = {} if self._last_used is None else self._last_used
        # An image that was pulled during the call is kept: the list may be older than it.
        arrived = [image for image in newer if image not in before]
        self._last_used = {image: newer.get(image, now) for image in (*found, *arrived)}

    def snapshot(self) -> tuple[HeldImage, ...]:
        """Return every image with its use, for garbage collection. An image in use now was last used now."""
        now = self._deps.clock.monotonic()
        used = self._in_use()
        held = {} if self._last_used is None else self._last_used
        for image in held:
            if image in used or image in self._waiting:
                held[image] = now
        return tuple(
            HeldImage(image=image, used=image in used or image in self._waiting, idle=now - last)
            for image, last in held.items()
        )

    async def remove(self, image: str) -> bool:
        """Remove an image unless it is in use."""
        async with self._lock(image):
            if image in self._in_use() or image in self._waiting:
                return False
            self.missing(image)
            async with self._deps.clock.timeout(self._deps.settings.deadlines.delete):
                await self._deps.driver.remove_image(image)
        return True

    async def reclaim(self) -> int:
        """Free disk space: remove every image that is not in use; returns how many."""
        removed = 0
        for action in plan_gc(
            GcSnapshot(images=self.snapshot(), disk_full=True), self._deps.settings
        ):
            if isinstance(action, RemoveImage):
                removed += await self._try_remove(action.image)
        return removed

    async def _try_remove(self, image: str) -> bool:
        try:
            return await self.remove(image)
        except DEPENDENCY_ERRORS as error:
            self._deps.log.warning("image could not be removed", image=image, error=str(error))
            return False

    async def _puller(self) -> None:
        while True:
            image = await self._queue.get()
            error = await self._pull(image)
            now = self._deps.clock.monotonic()
            if error:
                self._failures[image] = self._failed(image, error, now)
            else:
                self._failures.pop(image, None)
                held = {} if self._last_used is None else self._last_used
                self._last_used = {**held, image: now}
            for key in self._waiting.pop(image):
                self._wake(key)

    async def _pull(self, image: str) -> str:
        """Pull; if the disk is full, free space and pull once more; returns the error."""
        try:
            try:
                await self._pull_once(image)
            except NoSpace:
                if not await self.reclaim():
                    raise
                await self._pull_once(image)
        except (VmError, OSError) as error:
            text = bounded(f"{type(error).__name__}: {error}")
            self._deps.log.warning("image pull failed", image=image, error=text)
            return text
        return ""

    async def _pull_once(self, image: str) -> None:
        async with self._lock(image), self._deps.clock.timeout(self._deps.settings.deadlines.pull):
            await self._deps.driver.pull(image)

    def _failed(self, image: str, error: str, now: float) -> _Failure:
        before = self._failures.get(image)
        times = 1 if before is None else before.times + 1
        return _Failure(error, times, now + backoff(self._deps, times))

    def _lock(self, image: str) -> asyncio.Lock:
        return self._locks.setdefault(image, asyncio.Lock())


def backoff(deps: Deps, times: int) -> float:
    """The wait after `times` failures in a row, with jitter."""
    settings = deps.settings
    longest = min(settings.retry_cap, settings.retry_base * 2.0 ** min(times - 1, 20))
    return longest * (0.5 + 0.5 * deps.rng.random())
