"""Server-sent events: one publisher, many readers; a slow reader does not delay the others.

Invariants:
- A reader that is too slow is disconnected and never loses single events: it connects again (browsers do so by
  themselves) and begins with a fresh snapshot.
- A heartbeat is sent when there are no events, so that proxies keep the connection and a dead one is detected.
- Publishing never waits and costs one append per reader.
"""

import asyncio
from collections import deque

from runyard.clock import Clock
from runyard.http.messages import Pairs, Stream

HEARTBEAT = b":\n\n"  # a comment: readers skip it
HEADERS: Pairs = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),  # disables buffering in proxies
)


def event(data: str | bytes, *, event: str = "", id: str = "") -> bytes:
    """One event as it is written; `ValueError` if its name or id would break out of its line."""
    text = data.decode() if isinstance(data, bytes) else data
    for word in (event, id):
        if "\n" in word or "\r" in word or "\0" in word:
            raise ValueError(f"not a name for an event: {word!r}")
    # All three line ends of the format separate lines; a "\r" arrives as "\n".
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


class Broadcast:
    """Delivers each published event to every reader."""

    def __init__(self, clock: Clock, *, heartbeat: float = 15.0, backlog: int = 100) -> None:
        self._clock = clock
        self._heartbeat = heartbeat
        self._backlog = backlog
        self._readers: dict[_Reader, None] = {}
        self._closed = False

    def __len__(self) -> int:
        """Number of readers."""
        return len(self._readers)

    def publish(self, chunk: bytes) -> None:
        """Send an event (see `event`) to every reader; one that is too far behind is disconnected."""
        for reader in list(self._readers):
            if not reader.put(chunk):
                self._leave(reader)

    def subscribe(self, first: bytes = b"") -> Stream:
        """A stream that begins with `first`, if given, and goes on with what is published from now on."""
        reader = _Reader(self._clock, heartbeat=self._heartbeat, backlog=self._backlog)
        if first:
            reader.put(first)
        if self._closed:
            reader.end()
        else:
            self._readers[reader] = None
        return Stream(reader, headers=HEADERS, on_close=lambda: self._leave(reader), paced=True)

    def close(self) -> None:
        """End all streams, after what was published; later ones end at once."""
        self._closed = True
        for reader in list(self._readers):
            self._leave(reader)

    def _leave(self, reader: "_Reader") -> None:
        self._readers.pop(reader, None)
        reader.end()


class _Reader:
    """One reader's queue, as the iterator of its stream."""

    def __init__(self, clock: Clock, *, heartbeat: float, backlog: int) -> None:
        self._clock = clock
        self._heartbeat = heartbeat
        self._backlog = backlog
        self._waiting: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, chunk: bytes) -> bool:
        """Queue a chunk; False if the reader is too far behind."""
        if len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(chunk)
        self._changed.set()
        return True

    def end(self) -> None:
        """End the stream."""
        self._ended = True
        self._changed.set()

    def __aiter__(self) -> "_Reader":
        return self

    async def __anext__(self) -> bytes:
        if not self._waiting and not self._ended:
            self._changed.clear()
            try:
                async with self._clock.timeout(self._heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                return HEARTBEAT
        if not self._waiting:
            raise StopAsyncIteration
        # All queued events are written in one chunk.
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        return chunk
