"""Manages the images of a host: what references mean, pulls with their progress, use, removal.

Pulls run in workers of their own, a few at a time and one per image. A Pod that needs an image requests it, and its
key is queued again when the pull has ended, and while it makes progress. So no heartbeat and no deletion ever waits
for a pull.

Invariants:
- VMs are created from references with a digest; a tag is resolved first (`pins.py`).
- One image is never pulled twice at once, nor pulled and removed at once.
- An image is removed only if this agent has pulled it (`owned_images.py`), and while no Pod, no record and no pull
  uses it; what is being removed counts as absent from the moment at which that was decided.
- What the driver has made from images (golden VMs) is its own, of any image, and is removed when unused.
- A pull may take any time while it makes progress: the driver ends one that stands still, and so does the agent if
  the driver does not.
- A failed pull is remembered with the time before which it is not tried again.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from runyard.node.deadlines import hung, within
from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.owned_images import OwnedImages
from runyard.node.pins import Pins
from runyard.node.plans.gc import HeldImage, RemoveImage, plan_gc
from runyard.node.plans.gc import Snapshot as GcSnapshot
from runyard.node.plans.images import ImageFacts, ImageState, PullState, advanced
from runyard.node.plans.values import bounded
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.vm.contract import Fault, NoSpace, PullProgress, Stalled, VmError


class _Failure(msgspec.Struct, frozen=True):
    error: str
    fault: Fault | None
    times: int
    retry_at: float  # monotonic


class ImageStore:
    """Images on this host, with their users."""

    def __init__(
        self,
        deps: Deps,
        *,
        in_use: Callable[[], frozenset[str]],
        wake: Callable[[str], None],
        owned: OwnedImages,
    ) -> None:
        self._deps = deps
        self._in_use = in_use
        self._wake = wake
        self._owned = owned
        self.pins = Pins(deps)
        self._last_used: dict[str, float] | None = None  # by held image; None before the first list
        self._missing: dict[str, float] = {}  # ours, and since when they are not listed
        self._waiting: dict[str, dict[str, None]] = {}  # image being pulled → keys to wake
        self._pulling: dict[str, PullState] = {}  # by reference with digest
        self._woken_at: dict[str, float] = {}  # when waiting keys were last queued for progress
        self._failures: dict[str, _Failure] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    @property
    def held(self) -> tuple[str, ...] | None:
        """References of the images on this host, tags that mean them included; None before the first list."""
        if self._last_used is None:
            return None
        tags = tuple(
            image for image in self._in_use() if self.pins.latest(image) in self._last_used
        )
        return tuple(dict.fromkeys((*self._last_used, *tags)))

    def facts(self, image: str, key: str = "") -> ImageFacts:
        """Return the state of an image; while it is being pulled, `key` is queued again when that has ended."""
        waiting = self._waiting.get(image)
        if waiting is not None:
            if key:
                waiting[key] = None
            return ImageFacts(
                state=ImageState.PULLING, pull=self._pulling.get(self.pins.latest(image))
            )
        pinned = self._pinned(image)
        if pinned is not None:
            return ImageFacts(state=ImageState.HELD, pinned=pinned)
        failure = self._failures.get(image)
        wait = 0.0 if failure is None else failure.retry_at - self._deps.clock.monotonic()
        if failure is not None and wait > 0:
            return ImageFacts(
                state=ImageState.FAILED, error=failure.error, fault=failure.fault, retry_in=wait
            )
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
        clock = self._deps.clock
        now, instant = clock.monotonic(), clock.now()
        newer = {} if self._last_used is None else self._last_used
        # An image that was pulled during the call is kept: the list may be older than it.
        held = {image: newer[image] for image in newer if image not in before}
        for view in found:
            idle = 0.0 if view.last_used is None else max(0.0, instant - view.last_used)
            held[view.reference] = newer.get(view.reference, now - idle)
        self._last_used = held
        self._disown_deleted(now)

    def _disown_deleted(self, now: float) -> None:
        """Drop the records of images that others have deleted. A pull that died with its agent may still end."""
        held = self._last_used or {}
        ours = [image for image in self._owned.references() if image not in held]
        ours = [image for image in ours if not self._lock(image).locked()]
        self._missing = {image: self._missing.get(image, now) for image in ours}
        for image, since in self._missing.items():
            if now - since >= self._deps.settings.image_gone:
                self._owned.forget(image)

    async def _refresh_in_time(self) -> None:
        seconds = self._deps.settings.deadlines.list
        async with within(self._deps.clock, seconds, hung("the list of images", seconds)):
            await self.refresh()

    def snapshot(self) -> tuple[HeldImage, ...]:
        """Return every image with its use, for garbage collection. An image in use now was last used now."""
        now = self._deps.clock.monotonic()
        used = self._used()
        held = {} if self._last_used is None else self._last_used
        for image in held:
            if image in used:
                held[image] = now
        return tuple(
            HeldImage(image=image, owned=image in self._owned, used=image in used, idle=now - last)
            for image, last in held.items()
        )

    async def remove(self, image: str) -> bool:
        """Remove an image that this agent has pulled, unless it is in use."""
        async with self._lock(image):
            if image not in self._owned or image in self._used():
                return False
            self.missing(image)
            seconds = self._deps.settings.deadlines.delete
            async with within(self._deps.clock, seconds, hung(f"removal of {image}", seconds)):
                await self._deps.driver.remove_image(image)
            self._owned.forget(image)
        return True

    async def collect(self, *, idle: float) -> int:
        """Remove what the driver has made from images that no Pod has used for so long; returns how much."""
        seconds = self._deps.settings.deadlines.delete
        limit = hung("the removal of what was made from images", seconds)
        async with within(self._deps.clock, seconds, limit):
            gone = await self._deps.driver.collect(used=self._used(), idle=idle)
        for image in gone:
            self._deps.log.info(
                "what was made from an image is removed: no Pod uses it", image=image
            )
        return len(gone)

    async def reclaim(self) -> int:
        """Free disk space: remove what is not in use of our images, and of what was made from any; returns how much."""
        if not self._deps.settings.gc:
            return 0
        removed = 0
        for action in plan_gc(
            GcSnapshot(images=self.snapshot(), disk_full=True), self._deps.settings
        ):
            if isinstance(action, RemoveImage):
                removed += await self._try_remove(action.image)
        try:
            removed += await self.collect(idle=0.0)
        except DEPENDENCY_ERRORS as error:
            self._deps.log.warning(
                "what was made from images could not be removed", error=str(error)
            )
        return removed

    def _pinned(self, image: str) -> str | None:
        """The image on this host that the reference means now; None if it is not here or not known."""
        held = self._last_used or {}
        if image in held:
            return image
        pinned = self.pins.current(image)
        return pinned if pinned in held else None

    def _used(self) -> frozenset[str]:
        """Every reference that is in use or being pulled, with what it means."""
        named = (*self._in_use(), *self._waiting)
        return frozenset(pinned for image in named for pinned in self.pins.all(image))

    async def _try_remove(self, image: str) -> bool:
        try:
            return await self.remove(image)
        except DEPENDENCY_ERRORS as error:
            self._deps.log.warning("image could not be removed", image=image, error=str(error))
            return False

    async def _puller(self) -> None:
        while True:
            image = await self._queue.get()
            try:
                await self._pull(image)
            except (VmError, OSError) as error:
                self._failures[image] = self._failed(image, error)
            else:
                self._failures.pop(image, None)
            for key in self._waiting.pop(image):
                self._wake(key)

    async def _pull(self, image: str) -> None:
        """Resolve and pull; if the disk is full, free space and pull once more."""
        pinned = await self.pins.resolve(image, held=tuple(self._last_used or ()))
        pull = self._pull_once if self.pins.current(image) else self._pull_unpinned
        try:
            pinned = await pull(pinned)
        except NoSpace:
            if not await self.reclaim():
                raise
            pinned = await pull(pinned)
        held = {} if self._last_used is None else self._last_used
        self._last_used = {**held, pinned: self._deps.clock.monotonic()}

    async def _pull_unpinned(self, image: str) -> str:
        """Pull a reference of which only the pull tells what it means.

        It is recorded as ours when that is known: an agent that dies before has pulled an image that stays.
        """
        async with self._lock(image):
            await self._refresh_in_time()
            before = self._last_used or {}
            await self._pull_now(image)
            pinned = await self.pins.learn(image)
            if pinned not in before:
                self._owned.add(pinned, now=self._deps.clock.now())
        return pinned

    async def _pull_once(self, pinned: str) -> str:
        async with self._lock(pinned):
            await self._refresh_in_time()
            if pinned not in (
                self._last_used or {}
            ):  # else another tool has pulled it: it is not ours to remove
                self._owned.add(pinned, now=self._deps.clock.now())
                await self._pull_now(pinned)
        return pinned

    async def _pull_now(self, image: str) -> None:
        """Pull with the driver. The caller holds the image's lock."""
        clock, seconds = self._deps.clock, self._deps.settings.deadlines.pull_stall
        self._woken_at[image] = clock.monotonic()
        try:
            async with within(clock, seconds, partial(self._stalled, image)) as limit:

                def advance(found: PullProgress) -> None:
                    limit.reschedule(clock.monotonic() + seconds)
                    self._advance(image, found)

                await self._deps.driver.pull(image, progress=advance)
        finally:
            self._pulling.pop(image, None)
            self._woken_at.pop(image, None)

    def _stalled(self, pinned: str) -> VmError:
        seconds = self._deps.settings.deadlines.pull_stall
        percent = self._pulling[pinned].percent if pinned in self._pulling else 0.0
        return Stalled(
            f"pull of {pinned}: no progress for {seconds:g} s at {percent:.0f} %, and the driver did not end it, so the"
            " agent did; check the network between this host and the registry"
        )

    def _advance(self, pinned: str, found: PullProgress) -> None:
        """Keep the progress of a pull, and queue the Pods that wait for it, though not too often.

        Every report is progress: of a slow pull the percentage stays the same for minutes.
        """
        clock = self._deps.clock
        now = clock.monotonic()
        self._pulling[pinned] = advanced(self._pulling.get(pinned), found, at=clock.now(), now=now)
        if now - self._woken_at.get(pinned, now) < self._deps.settings.progress_every:
            return
        self._woken_at[pinned] = now
        for image, keys in self._waiting.items():
            if self.pins.latest(image) == pinned:
                for key in keys:
                    self._wake(key)

    def _failed(self, image: str, error: Exception) -> _Failure:
        text = bounded(str(error) or type(error).__name__)
        fault = error.fault if isinstance(error, VmError) else None
        self._deps.log.warning("image pull failed", image=image, error=text)
        before = self._failures.get(image)
        times = 1 if before is None else before.times + 1
        retry_at = self._deps.clock.monotonic() + backoff(self._deps, times)
        return _Failure(text, fault, times, retry_at)

    def _lock(self, image: str) -> asyncio.Lock:
        return self._locks.setdefault(image, asyncio.Lock())


def backoff(deps: Deps, times: int) -> float:
    """The wait after `times` failures in a row, with jitter."""
    settings = deps.settings
    longest = min(settings.retry_cap, settings.retry_base * 2.0 ** min(times - 1, 20))
    return longest * (0.5 + 0.5 * deps.rng.random())
