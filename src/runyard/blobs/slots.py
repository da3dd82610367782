"""Gives slots to uploads, as `plans.slots` decides.

An upload waits with its body unread. While it runs, its body is read through `Upload.pieces`, which measures the rate.
There it is also ended: a read that waits is interrupted, and a later one fails at once. So the store sees content that
failed and stores nothing, and the slot is free when the store has returned.

Invariants:
- At most `Limits.slots` uploads have a slot, also while one is being ended.
- The decision is made when an upload arrives, when one leaves its slot, and about once a second while one waits. The
  tasks of waiting requests do that, so nothing runs while no upload waits.
- Time that the store takes is not counted against the client. It has a limit of its own, `STORE_WITHIN`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from runyard.blobs.plans.slots import (
    Action,
    Client,
    End,
    Limits,
    Refuse,
    Running,
    Start,
    Waiting,
    decide,
)
from runyard.blobs.rate import Rate
from runyard.clock import Clock
from runyard.telemetry.catalogue import RUNYARD_UPLOADS_RUNNING, RUNYARD_UPLOADS_WAITING
from runyard.telemetry.meter import Meter
from runyard.wire.reasons import Reason

STORE_WITHIN = 300.0  # seconds that the store may take before it reads on; longer than it retries
_TICK = 1.0


class Ended(Exception):
    """The upload was ended, or never started; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.slug)
        self.reason = reason


class Late(TimeoutError):
    """The whole upload takes too long."""


class StoreStalled(Exception):
    """The store takes too long before it reads on, or to finish."""


class Upload:
    """One upload: it waits, has a slot, or was ended."""

    def __init__(self, number: int, client: Client, *, longest: float, clock: Clock) -> None:
        self.number = number
        self.client = client
        self.since = clock.monotonic()
        self.running = False
        self.ended: Reason | None = None
        self.changed = asyncio.Event()
        self._clock = clock
        self._longest = longest
        self._rate = Rate()
        self._store: asyncio.Timeout | None = None
        self._read: asyncio.Timeout | None = None
        self._read_since = 0.0

    def snapshot(self, now: float) -> Running:
        """What a decision needs to know of a running upload."""
        pending = now - self._read_since if self._read is not None else 0.0
        return Running(
            number=self.number,
            client=self.client,
            received=self._rate.received,
            waited=self._rate.waited + pending,
            rate=self._rate.value(pending),
            reading=self._read is not None,
            ending=self.ended is not None,
        )

    def end(self, reason: Reason) -> None:
        """End the upload: interrupt its read, or fail the next one."""
        self.ended = reason
        if self._read is not None and not self._read.expired():
            self._read.reschedule(self._clock.monotonic())

    @contextlib.asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Limit the time that the store takes between two reads; raises `StoreStalled`."""
        limit = self._store = self._clock.timeout(STORE_WITHIN)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise StoreStalled(f"it did not read on within {STORE_WITHIN:.0f} s") from None
            raise
        finally:
            self._store = None

    async def pieces(self, content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The content as it arrives; raises `Ended` or `Late`."""
        arriving = aiter(content)
        until = self._clock.monotonic() + self._longest
        while (piece := await self._next(arriving, until)) is not None:
            yield piece

    async def _next(self, arriving: AsyncIterator[bytes], until: float) -> bytes | None:
        if self.ended is not None:
            raise Ended(self.ended)
        began = self._read_since = self._clock.monotonic()
        if began >= until:  # a timeout does not interrupt a read of bytes that are here already
            raise Late("the whole upload takes too long")
        self._limit_store(None)
        limit = self._read = self._clock.timeout(until - began)
        size = 0
        try:
            async with limit:
                piece = await anext(arriving, None)
                size = 0 if piece is None else len(piece)
                return piece
        except TimeoutError:
            if self.ended is not None:
                raise Ended(self.ended) from None
            if limit.expired():
                raise Late("the whole upload takes too long") from None
            raise
        finally:
            self._read = None
            now = self._clock.monotonic()
            self._rate.add(size, now - began)
            self._limit_store(now + STORE_WITHIN)

    def _limit_store(self, when: float | None) -> None:
        if self._store is not None and not self._store.expired():
            self._store.reschedule(when)


class Slots:
    """The slots of one server."""

    def __init__(self, limits: Limits, *, clock: Clock, meter: Meter) -> None:
        self._limits = limits
        self._clock = clock
        self._meter = meter
        self._uploads: dict[int, Upload] = {}
        self._served: dict[Client, float] = {}
        self._numbers = 0
        self._decided = 0.0
        self._show()

    @contextlib.asynccontextmanager
    async def hold(self, client: Client) -> AsyncIterator[Upload]:
        """Wait for a slot and hold it; raises `Ended` if there is none in time."""
        self._numbers += 1
        upload = Upload(self._numbers, client, longest=self._limits.longest, clock=self._clock)
        self._uploads[upload.number] = upload
        try:
            await self._wait(upload)
            yield upload
        finally:
            del self._uploads[upload.number]
            if upload.running:
                self._decide()
            else:
                self._show()

    async def _wait(self, upload: Upload) -> None:
        self._decide()
        while not upload.running:
            if upload.ended is not None:
                raise Ended(upload.ended)
            try:
                async with self._clock.timeout(_TICK):
                    await upload.changed.wait()
            except TimeoutError:
                if self._clock.monotonic() - self._decided >= _TICK / 2:
                    self._decide()

    def _decide(self) -> None:
        now = self._decided = self._clock.monotonic()
        waiting = [each for each in self._uploads.values() if not each.running and not each.ended]
        if waiting:
            for action in self._plan(waiting, now):
                self._apply(action, now)
        self._forget()
        self._show()

    def _plan(self, waiting: Sequence[Upload], now: float) -> tuple[Action, ...]:
        return decide(
            [each.snapshot(now) for each in self._uploads.values() if each.running],
            [Waiting(number=each.number, client=each.client, since=each.since) for each in waiting],
            served=self._served,
            limits=self._limits,
            now=now,
        )

    def _apply(self, action: Action, now: float) -> None:
        upload = self._uploads.get(action.number)
        if upload is None or upload.ended is not None:
            return
        if isinstance(action, End):
            if upload.running and upload.snapshot(now).received <= action.received:
                upload.end(action.reason)
            return
        if upload.running:
            return
        if isinstance(action, Refuse):
            upload.ended = action.reason
        if isinstance(action, Start):
            upload.running = True
            for depth in range(len(upload.client)):
                self._served[upload.client[: depth + 1]] = now
        upload.changed.set()

    def _forget(self) -> None:
        """Keep the turns of clients that have an upload here; others begin anew."""
        if len(self._served) > 2 * self._limits.slots:
            present = {
                each.client[: depth + 1]: None
                for each in self._uploads.values()
                for depth in range(len(each.client))
            }
            self._served = {path: at for path, at in self._served.items() if path in present}

    def _show(self) -> None:
        running = sum(each.running for each in self._uploads.values())
        self._meter.set(RUNYARD_UPLOADS_RUNNING, running)
        self._meter.set(RUNYARD_UPLOADS_WAITING, len(self._uploads) - running)
