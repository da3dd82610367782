"""Starts a processor of test results.

`runyard processor`, `runyard up` and the tests start it here. Any number of processors may share one database and one
object storage; those of one machine may share a scratch directory. `run` runs the worker and its loops; `serve` opens
the probes first: until the database responds and has its schema, `/readyz` says what is missing. After `ending`, runs
in progress may finish for a while and the others are requeued.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import NoReturn

import msgspec

from runyard.components.probing import Prepare, ProbeSocket, served
from runyard.components.reporting import ReportingDatabase
from runyard.db.contract import DatabaseError
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.telemetry import conditions
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.xcresult.processor.attempt import Tools
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.metrics import (
    WATCH_EVERY,
    PoolWatch,
    ProcessorMetrics,
    QueueWatch,
    ScratchWatch,
)
from runyard.xcresult.processor.run_claims import RunClaims
from runyard.xcresult.processor.scratch import Scratch
from runyard.xcresult.processor.uploading import Uploader
from runyard.xcresult.processor.worker import Worker
from runyard.xcresult.processor.xcresulttool import Checker

CONDITIONS = (
    conditions.STARTING,
    conditions.DATABASE_UNREACHABLE,
    conditions.NO_CONSUMER,
    conditions.SCRATCH_FULL,
    conditions.OBJECT_STORE_UNREACHABLE,
)
_SAMPLE, _PRUNE = 1.0, 3600.0
_DEADLINE = 30.0


class _Wired(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of one processor."""

    deps: Deps
    tools: Tools
    metrics: ProcessorMetrics
    worker: Worker


def _wire(given: Deps) -> _Wired:
    deps = msgspec.structs.replace(
        given,
        database=ReportingDatabase(
            given.database, given.health, unreachable=conditions.DATABASE_UNREACHABLE
        ),
    )
    settings, metrics = deps.settings, ProcessorMetrics(deps.meter)
    tools = Tools(
        claims=RunClaims(deps.database, name=deps.name, rng=deps.rng, settings=settings),
        scratch=Scratch(settings.scratch),
        uploader=Uploader(deps),
        checker=Checker(settings.verify_with, within=settings.limit, meter=deps.meter),
    )
    return _Wired(deps=deps, tools=tools, metrics=metrics, worker=Worker(deps, tools, metrics))


async def run(
    deps: Deps, *, ending: asyncio.Event, ready: Callable[[], None] = lambda: None
) -> None:
    """Process runs until `ending`; needs the database's schema. `ready` is called once it works."""
    wired, health = _wire(deps), deps.health
    scratch = wired.tools.scratch
    scratch.prepare()
    swept = await asyncio.to_thread(scratch.sweep)
    if swept:
        deps.log.warning("removed workdirs that a crash left behind", workdirs=len(swept))
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(loop) for loop in _loops(wired)]
        health.ok(conditions.STARTING.code)
        ready()
        await wired.worker.run(ending, finish_within=deps.finish_within)
        health.fail(conditions.STARTING.code, "the processor is stopping")
        for loop in loops:
            loop.cancel()


async def serve(
    deps: Deps,
    sockets: Sequence[ProbeSocket],
    *,
    prepare: Prepare,
    ready: Callable[[tuple[str, ...]], None],
    ending: asyncio.Event,
) -> None:
    """Run with probes until `ending`; `ready` gets the URLs of the probes once the processor works."""
    started = asyncio.Event()

    def not_ready(why: str) -> None:
        deps.health.fail(conditions.STARTING.code, why)

    async def work(urls: tuple[str, ...]) -> None:
        await prepare(not_ready)
        started.set()
        await run(deps, ending=ending, ready=lambda: ready(urls))

    not_ready("the processor has not started yet")
    async with served("runyard processor", deps, sockets) as urls, asyncio.TaskGroup() as group:
        working = group.create_task(work(urls))
        await ending.wait()
        if not started.is_set():
            working.cancel()  # it still waits for its database


def _loops(wired: _Wired) -> tuple[Coroutine[object, object, NoReturn], ...]:
    deps, claims, metrics = wired.deps, wired.tools.claims, wired.metrics
    settings = deps.settings

    async def repair() -> None:
        metrics.repaired(await claims.repair())

    scratch = ScratchWatch(wired.tools.scratch, meter=deps.meter)
    queue = QueueWatch(deps.database, meter=deps.meter, health=deps.health)
    loops = (
        _loop(deps, Loop.PROCESSOR_HEARTBEAT, claims.beat, every=settings.beat),
        _loop(deps, Loop.PROCESSOR_REPAIR, repair, every=settings.sweep),
        _loop(deps, Loop.PROCESSOR_SCRATCH, scratch.step, every=settings.sweep),
        _loop(deps, Loop.PROCESSOR_QUEUE, queue.step, every=WATCH_EVERY),
        _loop(deps, Loop.PROCESSOR_RETENTION, claims.tidy, every=_PRUNE),
    )
    if not deps.pools:
        return loops
    pools = PoolWatch(*deps.pools, meter=deps.meter)
    return (*loops, _loop(deps, Loop.PROCESSOR_CONNECTIONS, pools.step, every=_SAMPLE))


def _loop(
    deps: Deps, name: Loop, step: Callable[[], Awaitable[object]], *, every: float
) -> Coroutine[object, object, NoReturn]:
    return run_loop(
        name,
        step,
        clock=deps.clock,
        meter=deps.meter,
        log=deps.log,
        every=every,
        deadline=_DEADLINE,
        jitter_rng=deps.rng,
        expected=(*TRANSPORT_ERRORS, DatabaseError),
        max_backoff=max(every, WATCH_EVERY),
        freshness=deps.freshness,
    )
