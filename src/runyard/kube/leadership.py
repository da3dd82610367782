"""Refuses every write of a replica that does not lead, and bounds the writes of one that does.

`Leadership` knows for how long this process may still write. The election updates it, and a `LeaderTransport` around
each client checks it for every request. A write gets a deadline that ends before the lease can
be taken by another replica, so no write of an earlier leader is under way when a later one begins.

Invariants:
- A request that is not known to be a read passes only while there is time left, and is abandoned when the time is over.
- A process that was stopped or partitioned stops writing by its own clock. After a pause the expired deadline ends the
  request before it continues.
- A write whose outcome is unknown may still be carried out by the API server. It is remembered, because handing the
  lease over at once is then not safe.

- The time left is checked again after the connection was made, just before the bytes are written. A write that is
  abandoned resets its connection, so that the kernel does not send it later (`http.client`).

What remains are requests that the API server or a proxy has accepted in full, and a stop of the process between the
last check and the system call after it. No client can close these gaps alone; preconditions on the objects themselves
(uid, resourceVersion) make most late writes a conflict. ADR 0021 says what is guaranteed.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from runyard.clock import Clock
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.kube.plans.election import Renewal, Timing, time_left

READS = ("GET", "HEAD", "OPTIONS")


class NotLeading(NotSent):
    """The write was not sent, because this replica does not hold the lease."""


class Leadership:
    """Whether, and for how long, this process may write."""

    def __init__(self, *, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._timing = timing
        self._renewal: Renewal | None = None
        self._closing = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._unknown_at: float | None = None

    def sent_now(self) -> Renewal:
        """The moment before a write of the lease is sent; it counts once that write is acknowledged."""
        return Renewal(self._clock.monotonic(), self._clock.now())

    def renewed(self, sent: Renewal) -> None:
        """Begin or extend the term: a write of the lease that was sent at `sent` was acknowledged."""
        self._renewal = sent

    def lost(self) -> None:
        """End the term: another replica holds the lease, or this one gave it up."""
        self._renewal = None

    @property
    def left(self) -> float:
        """Seconds for which this process may write; zero or less: it may not."""
        monotonic, wall = self._clock.monotonic(), self._clock.now()
        return time_left(self._renewal, self._timing, monotonic=monotonic, wall=wall)

    @property
    def leads(self) -> bool:
        """Whether there is time left."""
        return self.left > 0

    async def write(
        self, send: Callable[[float], Awaitable[Response | Stream]]
    ) -> Response | Stream:
        """Let one write through, with the time it may take; `NotLeading` if there is none."""
        left = self.left
        if left <= 0 or self._closing:
            raise NotLeading("this replica does not hold the leader's lease")
        self._under_way += 1
        self._idle.clear()
        try:
            return await self._bounded(send, left)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unknown_at = self._clock.monotonic()
            raise
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def _bounded(
        self, send: Callable[[float], Awaitable[Response | Stream]], left: float
    ) -> Response | Stream:
        limit = self._clock.timeout(left)
        try:
            async with limit:
                return await send(left)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise OutcomeUnknown("the leader's lease ended before the write did") from error

    async def settle(self, *, within: float) -> bool:
        """Let no new write through and wait for those under way; True if the outcome of each is known."""
        self._closing = True
        try:
            async with self._clock.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        unknown = self._unknown_at
        return unknown is None or self._clock.monotonic() - unknown > self._timing.duration

    def reopen(self) -> None:
        """Begin anew after `settle`: the next term may write."""
        self._closing = False


class LeaderTransport:
    """A client's transport that sends reads at any time and writes only for the leader."""

    def __init__(self, inner: Transport, leadership: Leadership) -> None:
        self._inner = inner
        self._leadership = leadership

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send a read, or a write that ends before the lease does."""
        if request.method in READS:
            return await self._inner.send(request, timeout=timeout)
        gated = msgspec.structs.replace(request, may_send=lambda: self._leadership.leads)
        return await self._leadership.write(
            lambda left: self._inner.send(gated, timeout=min(timeout, left))
        )
