"""The processor of test results as a part: everything that it is given, and how that becomes a running processor.

Any number of them may share one database and one object storage; those of one machine may share a scratch directory.
The doors open first: until the database and its schema are there, `/readyz` says what is missing. SIGTERM (`ending`)
lets runs in work finish for a while and gives the rest back.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import NoReturn

import msgspec

from runyard.blobs.contract import Blobs
from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError
from runyard.db.pooled import PooledDatabase
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.http.server import Listening, listen
from runyard.parts.reporting import ReportingDatabase
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import EXPECTED, run_loop
from runyard.telemetry.meter import Meter
from runyard.xcresult.metrics import (
    WATCH_EVERY,
    Numbers,
    PoolWatch,
    QueueWatch,
    ScratchWatch,
)
from runyard.xcresult.processor.attempt import Tools
from runyard.xcresult.processor.checking import Checker
from runyard.xcresult.processor.ledger import Ledger
from runyard.xcresult.processor.scratch import Scratch
from runyard.xcresult.processor.uploading import Uploader
from runyard.xcresult.processor.worker import Worker
from runyard.xcresult.settings import Settings

CONDITIONS = (
    conditions.STARTING,
    conditions.DATABASE_UNREACHABLE,
    conditions.NO_CONSUMER,
    conditions.SCRATCH_FULL,
    conditions.OBJECTS_UNREACHABLE,
)
_SAMPLE, _PRUNE = 1.0, 3600.0
_DEADLINE = 30.0

Tell = Callable[[str], None]
Prepare = Callable[[Tell], Awaitable[None]]


class ProcessorDeps(msgspec.Struct, kw_only=True):
    """Everything that a processor is given."""

    name: str
    clock: Clock
    rng: random.Random
    log: Logger
    settings: Settings
    database: Database
    results: Database
    """The same database with more patience: it writes results."""
    pools: tuple[PooledDatabase, ...] = ()
    """Whose connections are counted, if anybody's: none would look like a pool that is lost."""
    blobs: Blobs
    meter: Meter = msgspec.field(default_factory=Meter)
    finish_within: float = 25.0
    """Seconds that runs in work have when the processor is told to end."""
    trace: str = ""


class Processor:
    """One processor, with its senses."""

    def __init__(self, deps: ProcessorDeps) -> None:
        self.deps = deps
        self.health = Health(deps.clock, CONDITIONS)
        self.freshness = Freshness(deps.clock)
        self._begun = False
        sensed = ReportingDatabase(
            deps.database, self.health, unreachable=conditions.DATABASE_UNREACHABLE
        )
        self.scratch = Scratch(deps.settings.scratch)
        self.ledger = Ledger(sensed, name=deps.name, rng=deps.rng, settings=deps.settings)
        self.numbers = Numbers(deps.meter)
        self._queue = QueueWatch(sensed, meter=deps.meter, health=self.health)
        self._worker = Worker(
            self._tools(sensed), numbers=self.numbers, health=self.health, freshness=self.freshness
        )

    def _tools(self, sensed: Database) -> Tools:
        deps = self.deps
        uploader = Uploader(
            blobs=deps.blobs,
            database=sensed,
            clock=deps.clock,
            rng=deps.rng,
            settings=deps.settings,
            meter=deps.meter,
            log=deps.log,
        )
        return Tools(
            ledger=self.ledger,
            results=deps.results,
            blobs=deps.blobs,
            scratch=self.scratch,
            uploader=uploader,
            checker=Checker(
                deps.settings.verify_with, within=deps.settings.limit, meter=deps.meter
            ),
            clock=deps.clock,
            rng=deps.rng,
            settings=deps.settings,
            meter=deps.meter,
            log=deps.log,
            trace=deps.trace,
        )

    async def run(
        self,
        *,
        ending: asyncio.Event,
        sock: socket.socket | None = None,
        prepare: Prepare | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Process until `ending`; `ready` is told where the numbers are, once it works."""
        self._waiting("the processor has not begun yet")
        async with contextlib.AsyncExitStack() as stack:
            door = None if sock is None else await self._open(sock, stack)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._work(ending, prepare, ready, door))
                await ending.wait()
                if not self._begun:
                    work.cancel()  # it still waits for its database

    async def _work(
        self,
        ending: asyncio.Event,
        prepare: Prepare | None,
        ready: Callable[[str], None] | None,
        door: Listening | None,
    ) -> None:
        self.scratch.prepare()
        gone = await asyncio.to_thread(self.scratch.sweep)
        if gone:
            self.deps.log.warning("left behind by a crash, and removed", rooms=len(gone))
        if prepare is not None:
            await prepare(self._waiting)
        self._begun = True
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(loop) for loop in self._loops()]
            self.health.ok(conditions.STARTING.code)
            if ready is not None:
                ready("" if door is None else door.url)
            await self._worker.run(ending, finish_within=self.deps.finish_within)
            self._waiting("the processor is ending")
            for loop in loops:
                loop.cancel()

    def _loops(self) -> tuple[Coroutine[object, object, NoReturn], ...]:
        settings = self.deps.settings
        scratch = ScratchWatch(self.scratch, meter=self.deps.meter)
        loops = (
            self._loop("xcresult consumer", self.ledger.beat, every=settings.beat),
            self._loop("xcresult mend", self._mend, every=settings.sweep),
            self._loop("xcresult scratch", scratch.step, every=settings.sweep),
            self._loop("xcresult queue", self._queue.step, every=WATCH_EVERY),
            self._loop("xcresult prune", self.ledger.tidy, every=_PRUNE),
        )
        if not self.deps.pools:
            return loops
        pools = PoolWatch(*self.deps.pools, meter=self.deps.meter)
        return (*loops, self._loop("xcresult pool", pools.step, every=_SAMPLE))

    async def _mend(self) -> None:
        self.numbers.mended(await self.ledger.mend())

    def _loop(
        self, name: str, step: Callable[[], Awaitable[object]], *, every: float
    ) -> Coroutine[object, object, NoReturn]:
        return run_loop(
            name,
            step,
            clock=self.deps.clock,
            meter=self.deps.meter,
            log=self.deps.log,
            every=every,
            deadline=_DEADLINE,
            jitter_rng=self.deps.rng,
            expected=(*EXPECTED, DatabaseError),
            max_backoff=max(every, WATCH_EVERY),
            freshness=self.freshness,
        )

    async def _open(self, sock: socket.socket, stack: contextlib.AsyncExitStack) -> Listening:
        routes = probe_routes(self.health, self.freshness, self.deps.meter)
        handler = Routes("runyard processor", "v1", routes).handle
        door = await listen(handler, sock=sock)
        stack.push_async_callback(door.close)
        return door

    def _waiting(self, what: str) -> None:
        self.health.fail(conditions.STARTING.code, what)
