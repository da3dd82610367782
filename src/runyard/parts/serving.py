"""A replica of the dispatch server on its sockets: how it comes up, and how it ends.

Whoever starts one (`runyard server` on a cluster, `runyard up` on one machine) brings ways to the world and sockets;
the rest is said here once: senses around the ways, the dashboard, the doors, the order of the start and of the end.

The doors open first. Until the database is there, with a schema that this release can work on, the probes answer and
`/readyz` says what is missing; a replica that waits for its database is not restarted in vain.

The end has an order too: polls that wait are sent away (they ask again, elsewhere), no connection is accepted any
more, what is short is finished, mints under way are carried through; then the loops stop.

Invariants:
- The end lasts less than `END_WITHIN` seconds; what is not done by then, recovery does.
- What fails takes the replica down: nothing here is caught and forgotten.
"""

import asyncio
import contextlib
import gc
import random
import socket
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database
from runyard.db.notices import PostgresNotices
from runyard.dispatch.recovery.modes import Mode, Reconciler
from runyard.dispatch.settings import Settings
from runyard.github.app import Auth
from runyard.github.budget import APP_KEY, WRITE_POINTS
from runyard.http.messages import Transport
from runyard.http.server import Listening, Patience, listen
from runyard.kube.client import Kube
from runyard.parts import server
from runyard.parts.front import front
from runyard.parts.reporting import ReportingDatabase, ReportingTransport, reporting_kube
from runyard.parts.results import ResultsSetup, streamed
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard
from runyard.web.explain.explainer import Dispatch
from runyard.web.explain.scene import Terms
from runyard.web.settings import Settings as Looking

END_WITHIN = 10.0
# Its shares: requests under way (a mint that a poll waits for is among them), then mints nobody waits for.
_REQUESTS, _MINTS = 6.5, 1.0

Tell = Callable[[str], None]
Prepare = Callable[[Tell], Awaitable[None]]


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """A socket, and what is asked of those who look at the dashboard through it."""

    sock: socket.socket
    looking: Looking
    tls: ssl.SSLContext | None = None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is given by whoever starts it."""

    name: str
    clock: Clock
    rng: random.Random
    log: Logger
    settings: Settings
    kube: Transport
    token: Callable[[], str]  # for the Kubernetes API; empty where the transport shows who we are
    github: Transport
    auth: Auth  # who we are to GitHub
    database: Database
    doors: tuple[Door, ...]
    direct_url: str = ""  # of the database, past any pooler: replicas then wake each other at once
    results: ResultsSetup | None = None  # where test results are kept, if they are


class Replica:
    """One server, with its senses."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._health = Health(setup.clock, conditions.ALL)
        self._freshness = Freshness(setup.clock)
        self._works = asyncio.Event()
        meter = Meter()
        self.deps = server.ServerDeps(
            name=setup.name,
            clock=setup.clock,
            rng=setup.rng,
            kube=reporting_kube(setup.kube, self._health, setup.log, meter=meter),
            token=setup.token,
            github=ReportingTransport(
                setup.github,
                self._health,
                unreachable=conditions.GITHUB_UNREACHABLE,
                refused=conditions.GITHUB_REFUSED,
            ),
            auth=setup.auth,
            database=ReportingDatabase(
                setup.database, self._health, unreachable=conditions.DATABASE_UNREACHABLE
            ),
            meter=meter,
            log=setup.log,
            settings=setup.settings,
            listen=lambda _: self._works.set(),
            freshness=self._freshness,
            health=self._health,
            notices=_notices(setup, meter),
            results=setup.results,
        )
        self._wired = server.wire(self.deps)

    async def run(
        self,
        *,
        prepare: Prepare,
        ready: Callable[[tuple[str, ...]], None],
        ending: asyncio.Event | None = None,
    ) -> None:
        """Serve until cancelled, or until `ending` and then in order; `ready` is told where it serves."""
        ending = ending or asyncio.Event()
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            self._waiting("the server has not begun yet")
            looks = [self._dashboard(door) for door in self._setup.doors]
            watching = [group.create_task(look.run()) for look in looks]
            doors = [
                await self._open(door, look, stack)
                for door, look in zip(self._setup.doors, looks, strict=True)
            ]
            stack.callback(self._wired.waiters.send_away)
            self._setup.log.info("open", urls=[door.url for door in doors])
            stop = asyncio.Event()
            work = group.create_task(self._work(prepare, stop))
            begun = group.create_task(self._begun(tuple(door.url for door in doors), ready))
            await ending.wait()
            begun.cancel()
            await self._end(doors, work, stop)
            for task in watching:
                task.cancel()

    async def _work(self, prepare: Prepare, stop: asyncio.Event) -> None:
        await prepare(self._waiting)
        await server.run(self.deps, wired=self._wired, stop=stop)

    async def _begun(self, urls: tuple[str, ...], ready: Callable[[tuple[str, ...]], None]) -> None:
        await self._works.wait()
        self._health.ok(conditions.STARTING.code)
        ready(urls)

    def _waiting(self, what: str) -> None:
        """Not ready, and why."""
        self._health.fail(conditions.STARTING.code, what)

    def _dashboard(self, door: Door) -> Dashboard:
        return Dashboard(
            self.deps.database,
            kube=Kube(self.deps.kube, token=self.deps.token),
            health=self._health,
            freshness=self._freshness,
            clock=self._setup.clock,
            meter=self.deps.meter,
            log=self.deps.log,
            settings=door.looking,
            dispatch=explaining(self.deps, self._wired),
        )

    async def _open(
        self, door: Door, look: Dashboard, stack: contextlib.AsyncExitStack
    ) -> Listening:
        listening = await listen(
            front(
                self._wired.api,
                look,
                health=self._health,
                freshness=self._freshness,
                meter=self.deps.meter,
                more=self._wired.rest.routes(),
                results=self._wired.results,
                secure=door.tls is not None,
            ),
            sock=door.sock,
            tls=door.tls,
            body_limit=self._setup.settings.body_limit,
            streamed=streamed if self._setup.results is not None else None,
            patience=Patience(close=_REQUESTS),
        )
        stack.push_async_callback(listening.close)
        return listening

    async def _end(
        self, doors: list[Listening], work: "asyncio.Task[None]", stop: asyncio.Event
    ) -> None:
        self._waiting("the server is ending")
        self._setup.log.info("ending", server=self._setup.name)
        self._wired.waiters.send_away()
        gc.freeze()  # ten thousand polls that are to go are not looked through for garbage meanwhile
        try:
            await asyncio.gather(*(door.close() for door in doors))
        finally:
            gc.unfreeze()
        stop.set()
        if not self._works.is_set():
            work.cancel()  # it still waits for its database
        await asyncio.wait((work,), timeout=_MINTS)
        work.cancel()


def explaining(deps: server.ServerDeps, wired: server.Wired) -> Dispatch:
    """What explanations stand on: the matcher's word, the budget's, and how long this server lets things be."""
    settings = deps.settings
    terms = Terms(
        deadlines=settings.deadlines,
        outage_after=settings.outage_after,
        stamped_grace=settings.stamped_grace,
        mint_points=WRITE_POINTS,
        shared_purse=APP_KEY,
        resting=tuple(
            (each.value, mode.value)
            for each in Reconciler
            if (mode := settings.modes.of(each)) is not Mode.ENABLED
        ),
    )
    return Dispatch(look=wired.matcher.look, terms=terms, purses=wired.budget.purses)


def _notices(setup: Setup, meter: Meter) -> PostgresNotices | None:
    if not setup.direct_url:
        return None
    return PostgresNotices(
        setup.direct_url, clock=setup.clock, rng=setup.rng, meter=meter, log=setup.log
    )
