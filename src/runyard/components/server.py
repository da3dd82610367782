"""Starts the dispatch server: its loops, and in a process its sockets, dashboard, probes and orderly shutdown.

`runyard server`, `runyard up`, the simulator and the tests start it here. `run` runs the loops in one task group: one
that fails ends the server, and its supervisor starts it again. `serve` adds the sockets. Any number of replicas may run
on one database.

Sockets open first. Until the database is reachable, with a schema that this release supports, the probes answer and
`/readyz` says what is missing; a replica that waits for its database is not restarted for it.

Shutdown: waiting polls are answered with 204 (their runners poll another replica), no new connection is accepted, short
requests finish, mints in progress complete; then the loops stop.

Invariants:
- Shutdown takes less than `END_WITHIN` seconds; recovery finishes what is left.
- Any failure ends the replica: no exception is swallowed here.
"""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence

import msgspec

from runyard.components.front import front
from runyard.components.probing import Prepare
from runyard.components.reporting import check_denied
from runyard.components.results import ResultsSetup, streamed
from runyard.components.wiring.server import Wired, loops, wire
from runyard.dispatch.deps import Deps
from runyard.dispatch.modes import Mode, Reconciler
from runyard.github.budget import APP_KEY, WRITE_POINTS
from runyard.http.messages import Handler
from runyard.http.server import Listening, Timeouts, listen
from runyard.telemetry import conditions
from runyard.web.dashboard import Dashboard, DashboardDeps, ReadRestarts
from runyard.web.explain.context import DispatchLimits
from runyard.web.explain.explainer import Dispatch
from runyard.web.settings import Settings as DashboardSettings

__all__ = [
    "END_WITHIN",
    "ServerSocket",
    "Wired",
    "explain_inputs",
    "run",
    "run_wired",
    "serve",
    "wire",
]

END_WITHIN = 10.0
# Of that: requests in progress (a mint that a poll waits for is among them), then mints that no poll waits for.
_REQUESTS, _MINTS = 6.5, 1.0


class ServerSocket(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket, and the settings of the dashboard on it."""

    sock: socket.socket
    access: DashboardSettings
    tls: ssl.SSLContext | None = None


async def run(deps: Deps, *, ready: Callable[[Handler], None]) -> None:
    """Run a replica without sockets until cancelled; `ready` gets its handler once it accepts requests."""
    wired = wire(deps)
    await run_wired(wired, ready=lambda: ready(wired.intake.api.handle))


async def run_wired(
    wired: Wired, *, ready: Callable[[], None], stop: asyncio.Event | None = None
) -> None:
    """Run the loops until cancelled; after `stop` they end, and it returns when the mints in progress are done."""
    notices, waiters = wired.deps.notices, wired.shared.waiters
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[object, object, None]) -> object:
            return group.create_task(work)

        running = [group.create_task(loop) for loop in loops(wired)]
        running.append(group.create_task(wired.matcher.run(spawn)))
        if notices is not None:
            running.append(group.create_task(notices.run(waiters.wakeup.set)))
        ready()
        if stop is not None:
            await stop.wait()
            for task in running:
                task.cancel()


async def serve(
    deps: Deps,
    sockets: Sequence[ServerSocket],
    *,
    prepare: Prepare,
    ready: Callable[[tuple[str, ...]], None],
    results: ResultsSetup | None = None,
    ending: asyncio.Event | None = None,
    read_restarts: ReadRestarts = tuple,
) -> None:
    """Run a replica on its sockets until cancelled; `ending` shuts it down in order. `ready` gets its URLs.

    `read_restarts` returns what a supervisor on this machine has restarted, for the dashboard.
    """
    await _Serving(wire(deps, results), read_restarts).run(
        sockets, prepare=prepare, ready=ready, ending=ending or asyncio.Event()
    )


class _Serving:
    """One replica on its sockets."""

    def __init__(self, wired: Wired, read_restarts: ReadRestarts) -> None:
        self._wired = wired
        self._read_restarts = read_restarts
        self._deps = wired.deps
        self._started = asyncio.Event()

    async def run(
        self,
        sockets: Sequence[ServerSocket],
        *,
        prepare: Prepare,
        ready: Callable[[tuple[str, ...]], None],
        ending: asyncio.Event,
    ) -> None:
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            self._not_ready("the server has not started yet")
            dashboards = [self._dashboard(each) for each in sockets]
            watching = [group.create_task(dashboard.run()) for dashboard in dashboards]
            watching.append(group.create_task(check_denied(self._deps.kube, self._deps)))
            listening = [
                await self._open(each, dashboard, stack)
                for each, dashboard in zip(sockets, dashboards, strict=True)
            ]
            urls = tuple(each.url for each in listening)
            stack.callback(self._wired.shared.waiters.release_idle)
            self._deps.log.info("sockets open", urls=list(urls))
            stop = asyncio.Event()
            work = group.create_task(self._work(prepare, stop))
            reporting = group.create_task(self._report_ready(urls, ready))
            await ending.wait()
            reporting.cancel()
            await self._shut_down(listening, work, stop)
            for task in watching:
                task.cancel()

    async def _work(self, prepare: Prepare, stop: asyncio.Event) -> None:
        await prepare(self._not_ready)
        await run_wired(self._wired, ready=self._started.set, stop=stop)

    async def _report_ready(
        self, urls: tuple[str, ...], ready: Callable[[tuple[str, ...]], None]
    ) -> None:
        await self._started.wait()
        gc.collect()
        gc.freeze()  # objects that live as long as the process are not traversed by every full collection
        self._deps.health.ok(conditions.STARTING.code)
        ready(urls)

    def _not_ready(self, why: str) -> None:
        self._deps.health.fail(conditions.STARTING.code, why)

    def _dashboard(self, listener: ServerSocket) -> Dashboard:
        deps = self._deps
        return Dashboard(
            DashboardDeps(
                database=deps.database,
                kube=deps.kube,
                health=deps.health,
                freshness=deps.freshness,
                clock=deps.clock,
                rng=deps.rng,
                meter=deps.meter,
                log=deps.log,
                settings=listener.access,
                dispatch=explain_inputs(self._wired),
                read_restarts=self._read_restarts,
            )
        )

    async def _open(
        self, listener: ServerSocket, dashboard: Dashboard, stack: contextlib.AsyncExitStack
    ) -> Listening:
        deps, wired = self._deps, self._wired
        listening = await listen(
            front(
                wired.intake.api,
                dashboard,
                health=deps.health,
                freshness=deps.freshness,
                meter=deps.meter,
                more=wired.rest.routes(),
                results=wired.results,
                secure=listener.tls is not None,
            ),
            sock=listener.sock,
            tls=listener.tls,
            body_limit=deps.settings.body_limit,
            streamed=streamed if wired.results is not None else None,
            timeouts=Timeouts(close=_REQUESTS),
        )
        stack.push_async_callback(listening.close)
        return listening

    async def _shut_down(
        self, listening: list[Listening], work: "asyncio.Task[None]", stop: asyncio.Event
    ) -> None:
        self._not_ready("the server is stopping")
        self._deps.log.info("server is stopping", server=self._deps.name)
        self._wired.shared.waiters.release_idle()
        gc.freeze()  # no garbage collection while ten thousand polls are answered
        try:
            await asyncio.gather(*(each.close() for each in listening))
        finally:
            gc.unfreeze()
        stop.set()
        if not self._started.is_set():
            work.cancel()  # it still waits for its database
        await asyncio.wait((work,), timeout=_MINTS)
        work.cancel()


def explain_inputs(wired: Wired) -> Dispatch:
    """The inputs of `explain`: the matcher, the rate budgets, and this server's deadlines."""
    settings = wired.deps.settings
    limits = DispatchLimits(
        deadlines=settings.deadlines,
        asking_within=settings.asking_within,
        outage_after=settings.outage_after,
        stamped_grace=settings.stamped_grace,
        mint_points=WRITE_POINTS,
        shared_budget_key=APP_KEY,
        inactive_reconcilers=tuple(
            (each.value, mode.value)
            for each in Reconciler
            if (mode := settings.modes.of(each)) is not Mode.ENABLED
        ),
    )
    return Dispatch(
        read_matching=wired.matcher.preview,
        limits=limits,
        rate_budgets=wired.shared.budget.rate_budgets,
    )
