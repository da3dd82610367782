"""Buffers the events of one watch, between the commits and one reader.

`Table.notify` calls `offer` synchronously for each commit; the reader iterates. When the buffer of a
slow reader is full, its stream ends, and its client can resume from the last version that it read,
without losing events. A reader that ends calls `close`, which removes the watcher at once.

Invariants:
- Lines are sent in commit order, each event at most once, without a gap until the stream ends.
- A bookmark is sent only when everything up to its version has been delivered, and is never older than the first lines.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.schema.typed import blank
from runyard.embedded.kube.selectors import Selector

if TYPE_CHECKING:
    from runyard.embedded.kube.storage.store import Change, Event

BOOKMARK = "BOOKMARK"
Line = Callable[[str, Object, int], bytes]  # a type of event, its object, its version
Failure = Callable[[Object], bytes]  # the event for a Status that ends a watch


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a watch."""

    namespace: str
    selector: Selector
    seconds: float
    bookmark_every: float  # 0: no bookmarks
    buffer: int
    after: int = 0  # events up to that version are not sent
    shown: int = 0  # the version of the first lines


class Watcher:
    """An async iterator of events: newline-delimited JSON, or messages after their lengths."""

    def __init__(
        self,
        resource: Resource,
        options: WatchOptions,
        *,
        clock: Clock,
        version: Callable[[], int],
        unsubscribe: Callable[["Watcher"], None],
        failure: Failure,
        line: Line | None = None,  # how to encode events for this reader; None: the default
    ) -> None:
        self.selector = options.selector
        self._resource = resource
        self._namespace = options.namespace
        self._clock = clock
        self._version = version
        self._unsubscribe = unsubscribe
        self._failure = failure
        self._line = line
        self._lines: deque[bytes] = deque()
        self._limit = options.buffer
        self._after = options.after
        self._shown = options.shown
        self._done = False
        self._waiter: asyncio.Future[None] | None = None
        self._end = clock.monotonic() + options.seconds
        self._every = options.bookmark_every
        self._next_bookmark = clock.monotonic() + (options.bookmark_every or options.seconds)

    def preload(self, lines: Iterable[bytes]) -> None:
        """Queues the first lines; they do not count against the buffer."""
        self._lines.extend(lines)
        self._limit += len(self._lines)

    def offer(self, event: "Event") -> None:
        """Buffers a new event if it matches the selector."""
        if self._done or (self._namespace and event.record.namespace != self._namespace):
            return
        if event.version <= self._after:
            return
        change = event.change_for(self.selector)
        if change is None:
            return
        if len(self._lines) >= self._limit:
            self._lines.clear()
            self.close()
            return
        self._lines.append(self._encoded(event, change))
        self._wake()

    def line_for(self, event: "Event") -> bytes | None:
        """Returns the line for an event; None if it does not match."""
        if self._namespace and event.record.namespace != self._namespace:
            return None
        change = event.change_for(self.selector)
        if change is None:
            return None
        return self._encoded(event, change)

    def _encoded(self, event: "Event", change: "Change") -> bytes:
        if self._line is None:
            return event.line(change)
        return self._line(change, event.shown(change), event.version)

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """The bookmark line: everything up to this version was sent."""
        obj = _bookmark_object(self._resource, version, initial_end=initial_end)
        if self._line is not None:
            return self._line(BOOKMARK, obj, version)
        return msgspec.json.encode({"type": BOOKMARK, "object": obj}) + b"\n"

    def fail(self, status: Object) -> None:
        """Sends an ERROR event and ends."""
        self._lines.append(self._failure(status))
        self.close()

    def close(self) -> None:
        """Ends the stream after what is already buffered; a repeated call has no effect."""
        if not self._done:
            self._done = True
            self._unsubscribe(self)
            self._wake()

    def abandon(self) -> None:
        """Drops the buffer and ends; called when the client has disconnected."""
        self._lines.clear()
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> "Watcher":
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if self._done:
                raise StopAsyncIteration
            await self._pause()
        chunk = self._lines[0] if len(self._lines) == 1 else b"".join(self._lines)
        self._lines.clear()
        return chunk

    async def _pause(self) -> None:
        """Waits for an event, for the next bookmark or for the end, whichever comes first."""
        wait = min(self._next_bookmark, self._end) - self._clock.monotonic()
        if wait <= 0:
            self._on_timeout()
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with self._clock.timeout(wait):
                await self._waiter
        except TimeoutError:
            self._on_timeout()
        finally:
            self._waiter = None

    def _on_timeout(self) -> None:
        if self._every and not self._lines:
            self._lines.append(self.bookmark(max(self._version(), self._shown)))
        self._next_bookmark = self._clock.monotonic() + (self._every or self._end)
        if self._clock.monotonic() >= self._end:
            self.close()


def _bookmark_object(resource: Resource, version: int, *, initial_end: bool) -> Object:
    """Returns the object of a bookmark: only its version is set."""
    meta: Object = {"resourceVersion": str(version)}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {**blank(resource), "metadata": meta}
