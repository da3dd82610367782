"""Mirrors all objects of one kind into a local store, over an unreliable network.

    list ──▶ watch from the list's version ──▶ stream ends ──▶ watch again from the last version seen
      ▲                                            │
      └── 410, a malformed stream, or `resync` ────┘

A watch alone is not reliable: it can become silent without an error, repeat events, and lose events
that are not sent again. So silence is bounded (`mute_after`), a watch's life is bounded, and every
`resync` seconds a full list is compared with the store and the differences are announced as changes. No
bookmark can show that an event was lost, because it names a version and not what led to it: only a list can.

Invariants:
- `run` ends only by cancellation. Every other failure is counted by its cause and followed by a pause.
- No hot loop: a watch that ends within `STEADY` seconds, for whatever reason, is followed by a pause
  that grows up to `LONGEST_PAUSE` while the same failure repeats. The count of failures
  that cost a list is reset later: after `CALM` seconds without one.
- A Retry-After of the server is respected, with jitter so that clients do not return together, up to
  `MAX_RETRY_AFTER`.
- Once the server answers again, the store equals it within `MAX_RETRY_AFTER` and a little more if a list was
  due, and after an undetected loss within `resync` and a little more.
- The store is never emptied because of an error; it becomes old, and `last_contact` and the metric of
  the watch's age say how old.
- Every stream that was opened is closed.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Generic

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.http.messages import Stream
from runyard.kube.client import DEFAULT_PAGE, Kube
from runyard.kube.errors import Gone, KubeError, Status, Throttled, error_of
from runyard.kube.frames import Event, Frames, Malformed, version_of
from runyard.kube.kinds import Kind
from runyard.kube.mirror import M, Mirror
from runyard.kube.store import Store
from runyard.kube.versions import latest
from runyard.telemetry.catalogue import RUNYARD_WATCH_AGE_SECONDS, RUNYARD_WATCH_RESTARTS_TOTAL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import slug_of

STEADY = 1.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
MAX_RETRY_AFTER = 60.0  # longest Retry-After that is respected
JITTER = 0.1
CALM = 60.0
RELIST_AGAIN = 30.0
MAX_REFUSALS = 3  # refused watches in a row after which the version is dropped
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_COSTLY = frozenset({"gone", "malformed", "error"})  # what is followed by a list
_STATUS = msgspec.json.Decoder(Status)


class WatchDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of a reflector."""

    kube: Kube
    clock: Clock
    rng: random.Random
    meter: Meter


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind are mirrored: of a namespace, or of all; by label and field selector."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """After how many seconds everything is listed again, a silent watch counts as broken; objects in one page."""

    resync: float = 300.0
    mute_after: float = 75.0
    page: int = DEFAULT_PAGE


EVERYTHING, USUAL = Scope(), Pace()


class Reflector(Generic[M]):
    """Mirrors one kind into `store` and calls `on_change` once for each difference.

    `on_change(key, old, new)` is called after the store changed: `old` None means created, `new` None
    deleted. It must not block; usually it puts a key into a `WorkQueue`. `synced` is set after the first
    complete list. Servers send bookmarks about once a minute: `mute_after` should be longer than that.
    """

    def __init__(
        self,
        deps: WatchDeps,
        kind: Kind,
        type_: type[M],
        *,
        scope: Scope = EVERYTHING,
        on_change: Callable[[str, M | None, M | None], None] | None = None,
        indexes: Mapping[str, Callable[[M], Iterable[str]]] | None = None,
        pace: Pace = USUAL,
    ) -> None:
        self.synced = asyncio.Event()
        self.last_contact = 0.0
        self._kube = deps.kube
        self._kind = kind
        self._clock = deps.clock
        self._rng = deps.rng
        self._meter = deps.meter
        self._namespace, self._labels, self._fields = scope.namespace, scope.labels, scope.fields
        self._resync = pace.resync
        self._mute_after = pace.mute_after
        self._page = pace.page
        self._log = get_logger("kube.reflector", kind=kind.kind, namespace=scope.namespace)
        self._mirror: Mirror[M] = Mirror(
            deps.kube.reader(type_), log=self._log, on_change=on_change, indexes=indexes or {}
        )
        self._version = ""  # where to watch from; empty: list first
        self._listed_at = 0.0
        self._relist_at = 0.0
        self._failures: Counter[str] = Counter()

    @property
    def store(self) -> Store[M]:
        """The mirrored objects."""
        return self._mirror.store

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The objects, by key, that could not be read, and why; their last good version is kept."""
        return self._mirror.unreadable

    def track_freshness(self, freshness: Freshness) -> None:
        """Report the last contact with the API to `freshness`; bookmarks count as contact."""

        def last_contact() -> float | None:
            return self.last_contact if self.synced.is_set() else None

        freshness.follow(self._freshness_name, 2 * self._mute_after, last_contact)

    def untrack_freshness(self, freshness: Freshness) -> None:
        """Stop reporting to `freshness`, because the reflector may end."""
        freshness.forget(self._freshness_name)

    @property
    def _freshness_name(self) -> str:
        return f"{slug_of(self._kind.kind)}-reflector"

    async def run(self) -> None:
        """Mirror until cancelled."""
        self.last_contact = self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_age())
            group.create_task(self._follow())

    async def _report_age(self) -> None:
        while True:
            age = self._clock.monotonic() - self.last_contact
            self._meter.set(RUNYARD_WATCH_AGE_SECONDS, age, resource=self._kind.plural)
            await self._clock.sleep(self._mute_after / 4)

    async def _follow(self) -> None:
        while True:
            pause = await self._round()
            if pause > 0:
                await self._clock.sleep(pause)

    async def _round(self) -> float:
        """List if that is due, then watch until the watch ends; returns how long to pause then."""
        began = None
        wanted = 0.0
        clean = False
        try:
            await self._list_if_due()
            stream = await self._open()
            began = self._clock.monotonic()
            cause = await self._read(stream)
            clean = cause in {"closed", "resync"}
        except Gone as error:
            self._version, cause, wanted = "", "gone", error.retry_after
            self._log.info("version is gone, listing again", error=str(error))
        except Throttled as error:
            cause, wanted = "throttled", error.retry_after
        except KubeError as error:
            cause, wanted = "refused", error.retry_after
            if self._failures["refused"] >= MAX_REFUSALS:
                self._version = ""  # for example a version from the future, after the server was restored from a backup
            self._log.warning("list or watch refused", error=str(error))
        except TransportError as error:
            cause = "transport"
            self._log.info("no answer to list or watch", error=str(error))
        except (Malformed, msgspec.MsgspecError) as error:
            self._version, cause = "", "malformed"
            self._log.warning("stream is malformed, listing again", error=str(error))
        except Exception:  # noqa: BLE001 a reflector that ends leaves a stale store
            self._version, cause = "", "error"
            self._log.exception("reflector failed, listing again")
        self._meter.inc(RUNYARD_WATCH_RESTARTS_TOTAL, resource=self._kind.plural, cause=cause)
        steady = began is not None and self._clock.monotonic() - began >= STEADY
        pause = self._pause(cause, steady=steady, clean=clean)
        return max(pause, self._bounded_wait(wanted)) if wanted > 0 else pause

    def _bounded_wait(self, seconds: float) -> float:
        return min(seconds, MAX_RETRY_AFTER) * (1.0 + JITTER * self._rng.random())

    def _pause(self, cause: str, *, steady: bool, clean: bool) -> float:
        if steady:
            self._reset_failures()
            if clean:
                return 0.0
        # Each cause has its own backoff: the 410 after a long outage is the first 410.
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures[cause], 20))
        self._failures[cause] += 1
        return longest * (0.5 + 0.5 * self._rng.random())

    def _reset_failures(self) -> None:
        """Forget earlier failures after a watch that lasted; those that cost a list only after `CALM` seconds."""
        calm = self._clock.monotonic() - self._listed_at >= CALM
        for cause in list(self._failures):
            if calm or cause not in _COSTLY:
                del self._failures[cause]

    async def _list_if_due(self) -> None:
        now = self._clock.monotonic()
        if not self._version or now >= self._relist_at:
            # If this list fails, watching goes on until the next try: a list is the heavier of the two.
            self._relist_at = now + min(self._resync, RELIST_AGAIN)
            await self._list()

    async def _list(self) -> None:
        entries, self._version = await self._kube.list_through(
            self._kind,
            self._mirror.entry,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            limit=self._page,
        )
        self._mirror.adopt(entries)
        now = self._clock.monotonic()
        self.last_contact = self._listed_at = now
        # Spread, so that the reflectors of a fleet that started together do not list together.
        self._relist_at = now + self._resync * (1.0 - JITTER + 2 * JITTER * self._rng.random())
        self.synced.set()

    async def _open(self) -> Stream:
        return await self._kube.watch(
            self._kind,
            resource_version=self._version,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            seconds=int(self._relist_at - self._clock.monotonic()) + 1,
        )

    async def _read(self, stream: Stream) -> str:
        """Take events until the stream ends or is ended; returns why it did."""
        try:
            return await self._consume(stream.__aiter__())
        finally:
            await _close(stream)

    async def _consume(self, chunks: AsyncIterator[bytes]) -> str:
        frames = Frames()
        while True:
            now = self._clock.monotonic()
            left = self._relist_at - now
            if left <= 0:
                return "resync"
            try:
                async with self._clock.timeout(min(self._mute_after, left)):
                    # Without a default: with one, CPython 3.11 leaks some bytes each time it is cancelled.
                    chunk = await anext(chunks)
            except TimeoutError:
                return "silent" if left > self._mute_after else "resync"
            except StopAsyncIteration:
                events, cut = frames.finish()
                self._take(events)
                return "cut" if cut else "closed"
            self.last_contact = self._clock.monotonic()
            self._take(frames.feed(chunk))

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if event.type in _CHANGES:
                self._version = latest(self._version, self._mirror.step(event))
            elif event.type == "BOOKMARK":
                self._version = latest(self._version, version_of(event))
            elif event.type == "ERROR":
                status = _STATUS.decode(event.object)
                raise error_of(status, code=status.code or 500, what=f"WATCH {self._kind.plural}")


async def _close(stream: Stream) -> None:
    await stream.aclose()
    # A generator that was left half-way would be ended by the garbage collector, some time later.
    end = getattr(stream.__aiter__(), "aclose", None)
    if end is not None:
        await end()
