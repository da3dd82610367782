"""A network link between a client and a core, with the faults that networks have.

A `Link` is a `Transport`. The request travels, the peer's handler runs in a task of the peer, the answer travels
back. The two directions fail independently: a lost request and a lost answer look the same to the caller, and only
one of them was carried out.

Invariants:
- Cancelling, killing or timing out the caller does not touch the peer's work, and the other way round.
- `NotSent` is raised only if the handler did not and will not run for this request. Everything else that is
  not an answer is `OutcomeUnknown`.
- Requests may overtake each other; the chunks of one stream never do.
- A fault whose rate is zero draws no random number, so switching one fault on does not reshuffle the others
  before the moment when it was switched on.
- Every request, its arrival at the peer and its outcome are recorded in the trace.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

import msgspec

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.sim.process import Process
from runyard.sim.trace import Trace

ARRIVES_AFTER_CUT = 0.5  # the probability that a request in flight arrives when the link is cut


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a link; times in seconds, rates from 0 to 1. None by default."""

    latency: tuple[float, float] = (0.0, 0.0)  # each way
    drop_request: float = 0.0  # the peer never gets it
    drop_response: float = 0.0  # the peer has done it
    duplicate: float = 0.0  # the peer does it twice; the first answer counts
    delay: float = 0.0  # one way takes up to `delay_up_to` longer, so that requests overtake
    delay_up_to: float = 5.0
    cut_stream: float = 0.0  # per chunk: the reader gets `OutcomeUnknown` instead
    mute_stream: float = 0.0  # per chunk: this one and all that follow are lost silently
    drop_chunk: float = 0.0
    duplicate_chunk: float = 0.0


NO_FAULTS = Faults()


class Link:
    """A connection towards one peer.

    `server` is the process that the handler belongs to; None is a peer that cannot be killed. A peer that
    creates a new core at each start calls `serve` with it; a peer without a handler refuses connections.
    One link serves one client: `hang_up`, which is called when the client dies, closes all of its streams.
    """

    def __init__(
        self,
        name: str,
        handler: Handler | None = None,
        *,
        rng: random.Random,
        trace: Trace,
        server: Process | None = None,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self.name = name
        self.faults = faults  # may be replaced while it runs
        self.severed = False
        self.down = False  # the peer refuses connections, whatever its process does
        self._handler = handler
        self._rng = rng
        self._trace = trace
        self._server = server
        self._sent = 0
        self._calls: dict[int, _Call] = {}
        self._opened = 0
        self._pipes: dict[int, _Pipe] = {}
        if server is not None:
            server.on_crash(self._peer_died)

    def serve(self, handler: Handler | None) -> None:
        """Sets the handler from now on."""
        self._handler = handler

    def sever(self) -> None:
        """Cuts the link. The outcome of requests in flight becomes unknown; the peer may go on with them."""
        self.severed = True
        self._trace.note("sever", self.name)
        for call in self._calls.values():
            call.lost = call.lost or self._rng.random() >= ARRIVES_AFTER_CUT
        self._cut("the connection was cut")

    def restore(self) -> None:
        """Lets new requests through again."""
        self.severed = False
        self._trace.note("restore", self.name)

    def mute(self) -> None:
        """Silences every open stream without an error."""
        self._trace.note("mute", self.name)
        for pipe in self._pipes.values():
            pipe.muted = True

    def hang_up(self) -> None:
        """Closes the client's end: its streams are closed; requests in flight still arrive."""
        for pipe in self._pipes.values():
            pipe.close()

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Sends one request; see `http.messages.Transport`."""
        number = self._sent = self._sent + 1
        self._trace.note("send", self.name, number, request.method, request.path)
        loop = asyncio.get_running_loop()
        if self.severed or not self._listens():
            await asyncio.sleep(self._travel())  # noqa: TID251 - the network is part of virtual time
            self._trace.note("not-sent", self.name, number)
            raise NotSent(f"{self.name}: connection refused: {request.method} {request.path}")
        call = _Call(number, request, loop.create_future())
        self._calls[number] = call
        expiry = loop.call_later(timeout, self._fail, call, "timeout", context=_NOWHERE)
        self._depart(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            call.abandon()
            raise
        finally:
            expiry.cancel()
            self._calls.pop(number, None)

    # ── to the peer ───────────────────────────────────────────────────────────────────────────────────

    def _depart(self, call: "_Call") -> None:
        call.lost = self._happens(self.faults.drop_request)
        copies = 2 if self._happens(self.faults.duplicate) else 1
        for copy in range(copies):
            _later(self._travel(), self._arrive, call, copy)

    def _arrive(self, call: "_Call", copy: int) -> None:
        if call.lost or self._handler is None or not self._listens():
            self._trace.note("lost", self.name, call.number, copy)
            return
        self._trace.note("arrive", self.name, call.number, copy)
        work = self._handle(self._handler, call)
        if self._server is not None:
            self._server.spawn(work)
        else:
            _spawn(work)

    async def _handle(self, handler: Handler, call: "_Call") -> None:
        answer = await handler(call.request)
        lost = self._happens(self.faults.drop_response)
        if isinstance(answer, Stream):
            await self._pump(answer, call, lost=lost)
        elif lost:
            self._trace.note("answer-lost", self.name, call.number, answer.status)
        else:
            _later(self._travel(), self._returned, call, answer, None)

    # ── and back ────────────────────────────────────────────────────────────────────────────────

    def _returned(self, call: "_Call", answer: Response | Stream, pipe: "_Pipe | None") -> None:
        if not call.answer.done():
            self._trace.note("answer", self.name, call.number, answer.status)
            call.pipe = pipe
            call.answer.set_result(answer)
        elif pipe is not None:
            pipe.close()

    def _fail(self, call: "_Call", why: str) -> None:
        if not call.answer.done():
            self._trace.note("unknown", self.name, call.number, why)
            text = f"{self.name}: {why}: {call.request.method} {call.request.path}"
            call.answer.set_exception(OutcomeUnknown(text))

    async def _pump(self, source: Stream, call: "_Call", *, lost: bool) -> None:
        """Reads the peer's stream, in the peer's task, and sends its chunks."""
        pump = asyncio.current_task()
        assert pump is not None
        pipe = _Pipe(pump, self._travel)
        key = self._opened = self._opened + 1
        self._pipes[key] = pipe
        try:
            if lost:
                self._trace.note("answer-lost", self.name, call.number, source.status)
                return
            answer = Stream(pipe, status=source.status, headers=source.headers, on_close=pipe.close)
            _later(self._travel(), self._returned, call, answer, pipe)
            async for chunk in source:
                if not self._chunk(key, pipe, chunk):
                    return
            self._trace.note("stream-end", self.name, key)
            if not pipe.muted:
                pipe.put(None)
        finally:
            del self._pipes[key]
            await source.aclose()

    def _chunk(self, key: int, pipe: "_Pipe", chunk: bytes) -> bool:
        """Sends one chunk of a stream; False if the stream was cut here."""
        faults = self.faults
        fate = "chunk"
        if pipe.muted or self._happens(faults.mute_stream):
            pipe.muted, fate = True, "chunk-muted"
        elif self._happens(faults.cut_stream):
            fate = "stream-cut"
            pipe.fail(OutcomeUnknown(f"{self.name}: the stream was cut"))
        elif self._happens(faults.drop_chunk):
            fate = "chunk-lost"
        else:
            pipe.put(chunk)
            if self._happens(faults.duplicate_chunk):
                fate = "chunk-twice"
                pipe.put(chunk)
        self._trace.note(fate, self.name, key, len(chunk))
        return fate != "stream-cut"

    # ── common ──────────────────────────────────────────────────────────────────────────────────

    def _peer_died(self) -> None:
        self._cut("the peer died")

    def _cut(self, why: str) -> None:
        for call in self._calls.values():
            self._fail(call, why)
        for pipe in self._pipes.values():
            pipe.fail(OutcomeUnknown(f"{self.name}: {why}"))
            pipe.close()

    def _listens(self) -> bool:
        alive = self._server is None or self._server.alive
        return alive and not self.down and self._handler is not None

    def _happens(self, rate: float) -> bool:
        return rate > 0.0 and self._rng.random() < rate

    def _travel(self) -> float:
        low, high = self.faults.latency
        time = low if low == high else self._rng.uniform(low, high)
        if self._happens(self.faults.delay):
            time += self._rng.uniform(0.0, self.faults.delay_up_to)
        return time


class _Call:
    """One request in flight."""

    __slots__ = ("answer", "lost", "number", "pipe", "request")

    def __init__(
        self, number: int, request: Request, answer: "asyncio.Future[Response | Stream]"
    ) -> None:
        self.number = number
        self.request = request
        self.answer = answer
        self.lost = False
        self.pipe: _Pipe | None = None

    def abandon(self) -> None:
        """Called when the caller was cancelled: a stream that it was about to receive has no reader."""
        self.answer.cancel()
        if self.pipe is not None:
            self.pipe.close()


class _Pipe:
    """The reader's end of a stream: an iterator that waits for chunks in flight."""

    def __init__(self, pump: "asyncio.Task[Any]", travel: Callable[[], float]) -> None:
        self.muted = False
        self._pump = pump
        self._travel = travel
        self._loop = asyncio.get_running_loop()
        self._air: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._last = 0.0  # when the latest chunk in flight arrives
        self._error: OutcomeUnknown | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, chunk: bytes | None) -> None:
        """Sends a chunk, or the end; it arrives after everything sent before it."""
        self._air.append(chunk)
        self._last = max(self._last, self._loop.time() + self._travel())
        self._loop.call_at(self._last, self._arrive, context=_NOWHERE)

    def fail(self, error: OutcomeUnknown) -> None:
        """Loses what is in flight; the reader gets what has arrived and then this error."""
        self._error = self._error or error
        self._wake()

    def close(self) -> None:
        """Closes the reader's end; the peer learns of it one latency later."""
        _later(self._travel(), self._pump.cancel)

    def _arrive(self) -> None:
        if self._error is None:
            self._arrived.append(self._air.popleft())
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> "_Pipe":
        return self

    async def __anext__(self) -> bytes:
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        chunk = self._arrived[0]
        if chunk is None:  # kept, so that reading past the end ends again
            raise StopAsyncIteration
        self._arrived.popleft()
        return chunk


_NOWHERE = Context()  # the network belongs to no process


def _later(delay: float, callback: Callable[..., object], *args: object) -> None:
    loop = asyncio.get_running_loop()
    if delay > 0.0:
        loop.call_later(delay, callback, *args, context=_NOWHERE)
    else:
        loop.call_soon(callback, *args, context=_NOWHERE)


def _spawn(work: Coroutine[Any, Any, None]) -> None:
    asyncio.get_running_loop().create_task(work, context=Context())
