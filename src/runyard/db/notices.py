"""Notifies other processes of new rows by LISTEN and NOTIFY, and receives their notifications.

A poll of every row costs the same whether or not something happened; a notice costs only when it does. Notices
need their own connections to the server itself: a pooler that gives each transaction another connection cannot
support LISTEN. Without such an address the server polls instead.

    notify()        notifies other processes of a commit
    run(on_notice)  connects, listens, and calls `on_notice` for each notice of another process, until cancelled

A notice has no content; the receiver reads the rows. So a lost notice loses no data:

Invariants:
- Many calls of `notify` within `GATHER` seconds become one notice.
- While the listening connection is down, `on_notice` is called every `POLL_INTERVAL`
  seconds, as a poll would; and once when it is back, for notices that were missed.
- A silent connection is checked every `_CHECK_EVERY` seconds: a peer that vanished is detected.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import psycopg

from runyard.clock import Clock
from runyard.db.address import whole
from runyard.telemetry.catalogue import RUNYARD_NOTIFICATIONS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

CHANNEL = "runyard_work"
GATHER = 0.01
POLL_INTERVAL = 0.1
_CHECK_EVERY = 10.0
_ANSWER_WITHIN = 5.0
_LONGEST_WAIT = 5.0
_LINK: dict[str, str | int] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "runyard notices",
}


class Notices(Protocol):
    """Sends and receives notifications of commits."""

    def notify(self) -> None:
        """Notify other processes of a commit."""
        ...

    async def run(self, on_notice: Callable[[], None]) -> None:
        """Send and receive notices until cancelled."""
        ...


class PostgresNotices:
    """`Notices` by LISTEN and NOTIFY, on two connections."""

    def __init__(
        self, conninfo: str, *, clock: Clock, rng: random.Random, meter: Meter, log: Logger
    ) -> None:
        self._conninfo = whole(conninfo, **_LINK)
        self._clock = clock
        self._rng = rng
        self._meter = meter
        self._log = log
        self._due = asyncio.Event()
        self._own = 0  # the backend that sends our own notices
        self.listening = False

    def notify(self) -> None:
        """Schedule a notification to other processes after a commit."""
        self._due.set()

    async def run(self, on_notice: Callable[[], None]) -> None:
        """Send and receive notices until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retry("listen", lambda: self._listen(on_notice)))
            group.create_task(self._retry("send", self._send))
            group.create_task(self._poll_while_disconnected(on_notice))

    async def _retry(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` for ever; after a failure wait for a growing time."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await work()
            except (psycopg.Error, OSError, TimeoutError) as error:
                lasted = self._clock.monotonic() - began
                failures = 1 if lasted > 2 * _LONGEST_WAIT else failures + 1
                self._meter.inc(RUNYARD_NOTIFICATIONS_TOTAL, outcome=f"{what}-failed")
                self._log.warning("notices interrupted", what=what, error=str(error))
            wait = min(_LONGEST_WAIT, 0.1 * 2.0 ** min(failures, 10))
            await self._clock.sleep(wait * self._rng.uniform(0.5, 1.0))

    async def _listen(self, on_notice: Callable[[], None]) -> None:
        async with await self._connected() as link:
            await self._execute(link, f"LISTEN {CHANNEL}")
            self.listening = True
            try:
                on_notice()
                while True:
                    async for notice in link.notifies(timeout=_CHECK_EVERY):
                        if notice.pid != self._own:
                            self._meter.inc(RUNYARD_NOTIFICATIONS_TOTAL, outcome="received")
                            on_notice()
                    await self._execute(link, "SELECT 1")
            finally:
                self.listening = False

    async def _send(self) -> None:
        async with await self._connected() as link:
            self._own = link.info.backend_pid
            while True:
                await self._due.wait()
                self._due.clear()  # first: later commits are covered by the next notice
                try:
                    await self._execute(link, f"NOTIFY {CHANNEL}")
                except BaseException:
                    self._due.set()  # the next connection sends it
                    raise
                self._meter.inc(RUNYARD_NOTIFICATIONS_TOTAL, outcome="sent")
                await self._clock.sleep(GATHER)

    async def _poll_while_disconnected(self, on_notice: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(POLL_INTERVAL)
            if not self.listening:
                on_notice()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        async with self._clock.timeout(2 * _ANSWER_WITHIN):
            return await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None
            )

    async def _execute(self, link: psycopg.AsyncConnection[Any], command: str) -> None:
        async with self._clock.timeout(_ANSWER_WITHIN):
            await link.execute(command)
