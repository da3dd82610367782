"""The dispatch server, wired together: intake, polls, matcher, mints, sweeper, recovery.

`run(deps)` is the whole part; where its clock, transports and database come from is not its
business. All of its loops live in one task group: one that dies takes the server down, loudly, and
whoever supervises it starts it anew. Any number of replicas may run on one database.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine

import msgspec

from runyard.blobs.errors import BlobError
from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError
from runyard.db.notices import Notices
from runyard.dispatch.api import Api
from runyard.dispatch.budget import SharedBudget
from runyard.dispatch.budgetwatch import BudgetWatch
from runyard.dispatch.callers import Callers
from runyard.dispatch.claiming import Claims
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.intake.audit import Audit
from runyard.dispatch.intake.comparing import Comparer
from runyard.dispatch.intake.pull import Puller
from runyard.dispatch.intake.queued import QueuedJobs
from runyard.dispatch.jobmeter import JobMeter
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.matcher import Matcher
from runyard.dispatch.metrics import Gauges
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.minting.stamp import Stamper
from runyard.dispatch.people.jobs import Work
from runyard.dispatch.people.routes import Rest
from runyard.dispatch.people.tenants import People
from runyard.dispatch.polling import Polls
from runyard.dispatch.pools import Pools
from runyard.dispatch.records import Records
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.looking import Lookout
from runyard.dispatch.recovery.modes import Reconciler
from runyard.dispatch.recovery.pods import PodsAgainstSlots
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.reading import Reader
from runyard.dispatch.recovery.reconciling import Desk
from runyard.dispatch.recovery.registrations import GhostRegistrations
from runyard.dispatch.recovery.retiring import Retirer
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.recovery.stamped import OrphanedStampedPods
from runyard.dispatch.recovery.sweeping import Sweeper
from runyard.dispatch.retention import Pruner
from runyard.dispatch.seal import Seal
from runyard.dispatch.settings import Settings
from runyard.dispatch.signals import Signals
from runyard.dispatch.store import Store
from runyard.dispatch.turns import Turns
from runyard.dispatch.waiting import Waiters
from runyard.github.api import GitHub
from runyard.github.app import AppAuth, Auth
from runyard.github.errors import GitHubError
from runyard.http.messages import Handler, Transport
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.parts.results import ObjectsWatch, Results, ResultsSetup, wire_results
from runyard.telemetry.conditions import (
    GITHUB_BUDGET_LOW,
    OBJECTS_UNREACHABLE,
    RECONCILER_OFF,
    STAMPS_OF_STRANGERS,
)
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Condition, Health
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import EXPECTED, run_loop
from runyard.telemetry.meter import Meter
from runyard.xcresult.metrics import WATCH_EVERY, QueueWatch

_LOOK_ANYWAY = 1.0
Step = Callable[[], Coroutine[object, object, None]]


class ServerDeps(msgspec.Struct, kw_only=True):
    """Everything that a replica is given."""

    name: str
    clock: Clock
    rng: random.Random
    kube: Transport
    token: Callable[[], str]
    github: Transport
    app_id: int = 0
    app_key: str = ""  # PEM
    auth: Auth | None = None  # who we are to GitHub, if not the App of the two lines above
    database: Database
    meter: Meter
    log: Logger
    settings: Settings
    listen: Callable[[Handler], None]  # called once, with the handler, when requests may come
    freshness: Freshness | None = None  # told when each loop last succeeded
    health: Health | None = None  # told what the server itself finds wrong
    guards: Guards = SHIPPED  # only the proof and its tests ever switch one off
    notices: Notices | None = None  # between replicas; without them each looks ten times a second
    results: ResultsSetup | None = None  # where test results are kept, if they are


class Wired(msgspec.Struct, kw_only=True):
    """The pieces that `run` starts."""

    api: Api
    pools: Pools
    matcher: Matcher
    sweeper: Sweeper
    reader: Reader
    closer: Closer
    stamped: OrphanedStampedPods
    pods: PodsAgainstSlots
    ghosts: GhostRegistrations
    audit: Audit
    puller: Puller
    budget_watch: BudgetWatch
    gauges: Gauges
    waiters: Waiters
    pruner: Pruner
    budget: SharedBudget
    rest: Rest
    results: Results | None = None


async def run(
    deps: ServerDeps, *, wired: Wired | None = None, stop: asyncio.Event | None = None
) -> None:
    """Serve until cancelled; `wired` are the pieces of `wire(deps)`, for who wants to hold them too.

    After `stop` nothing new is begun, and it returns when the mints under way are through.
    """
    wired = wired or wire(deps)
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[object, object, None]) -> object:
            return group.create_task(work)

        loops = [group.create_task(loop) for loop in _loops(deps, wired)]
        loops.append(group.create_task(wired.matcher.run(spawn)))
        if deps.notices is not None:
            loops.append(group.create_task(deps.notices.run(wired.waiters.bell.set)))
        deps.listen(wired.api.handle)
        if stop is not None:
            await stop.wait()
            for task in loops:
                task.cancel()


def _loops(deps: ServerDeps, wired: Wired) -> tuple[Coroutine[object, object, object], ...]:
    settings = deps.settings
    expected = (*EXPECTED, DatabaseError, KubeError, GitHubError, BlobError)
    prune = settings.retention
    steps: tuple[tuple[str, Step, float, float], ...] = (
        ("pools", wired.pools.refresh, settings.pools_every, 30.0),
        ("tick", wired.sweeper.tick, settings.tick_every, 10.0),
        ("sweep", wired.sweeper.step, settings.sweep_every, 120.0),
        ("read", wired.reader.step, settings.read_every, 120.0),
        ("stale-queued-jobs", wired.reader.step_stale, settings.stale_queued_every, 120.0),
        ("orphaned-stamped-pods", wired.stamped.step, settings.recover_every, 120.0),
        ("pods-against-slots", wired.pods.step, settings.pods_every, 120.0),
        ("ghosts", wired.ghosts.step, settings.ghosts_every, 120.0),
        ("audit", wired.audit.step, settings.audit_every, 300.0),
        ("gauges", wired.gauges.step, settings.gauges_every, 30.0),
        ("prune", wired.pruner.step, prune.every, prune.within + 60.0),
        ("github budget", wired.budget_watch.step, settings.gauges_every, 30.0),
    )
    if settings.intake == "pull":
        steps = (*steps, ("pull", wired.puller.step, settings.pull_every, 60.0))
    if deps.results is not None and wired.results is not None:
        objects = ObjectsWatch(deps.results.blobs, report=_reporter(deps, OBJECTS_UNREACHABLE))
        steps = (*steps, ("look at objects", objects.step, 60.0, 130.0))
        keeping = deps.results.settings.keeping
        keep = wired.results.keeper.step
        steps = (*steps, ("keep test results", keep, keeping.every, keeping.within + 600.0))
        watch = QueueWatch(deps.database, meter=deps.meter, health=deps.health)
        steps = (*steps, ("test results", watch.step, WATCH_EVERY, 30.0))
    return tuple(
        run_loop(
            name,
            step,
            clock=deps.clock,
            meter=deps.meter,
            log=deps.log,
            every=every,
            deadline=deadline,
            jitter_rng=deps.rng,
            expected=expected,
            max_backoff=max(30.0, every),
            freshness=deps.freshness,
        )
        for name, step, every, deadline in steps
        if name not in deps.guards.without_loops
    )


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What the pieces stand on; each exists once in a replica."""

    deps: ServerDeps
    kube: Kube
    github: GitHub
    budget: SharedBudget
    ctx: Context
    store: Store
    waiters: Waiters
    pools: Pools
    seal: Seal
    prover: Prover
    turns: Turns
    deleter: SafeDelete

    def desk(self, reconciler: Reconciler) -> Desk:
        deps = self.deps
        return Desk(reconciler, modes=deps.settings.modes, meter=deps.meter, log=deps.log)


def wire(deps: ServerDeps) -> Wired:
    """The pieces of a replica, put together and not yet started."""
    ground = _ground(deps)
    settings, meter, log = deps.settings, deps.meter, deps.log
    database, github, store = deps.database, ground.github, ground.store
    _tell_what_rests(deps)
    reader = Reader(
        database=database,
        store=store,
        github=github,
        waiters=ground.waiters,
        meter=meter,
        log=log,
        settings=settings,
    )
    fencer = Fencer(github, deleter=ground.deleter, meter=meter, log=log)
    closer = Closer(store=store, prover=ground.prover)
    intake = Intake(
        store=store, waiters=ground.waiters, meter=meter, settings=settings, only=github.only
    )
    audit, puller = _lookers(ground, intake)
    return Wired(
        api=_api(ground, intake, closer),
        pools=ground.pools,
        matcher=_matcher(ground),
        sweeper=_sweeper(ground, reader, fencer),
        reader=reader,
        waiters=ground.waiters,
        rest=Rest(people=People(database), work=Work(database, github=github, log=log), log=log),
        results=wire_results(
            deps.results,
            database=database,
            clock=deps.clock,
            rng=deps.rng,
            meter=meter,
            log=log,
        ),
        closer=closer,
        gauges=Gauges(
            database,
            pools=ground.pools,
            meter=meter,
            log=log,
            settings=settings,
            health=deps.health,
        ),
        budget=ground.budget,
        pruner=Pruner(database, clock=deps.clock, meter=meter, settings=settings.retention),
        stamped=_stamped(ground, fencer),
        pods=_pods(ground, fencer, closer),
        ghosts=GhostRegistrations(
            github=github,
            database=database,
            pools=ground.pools,
            deleter=ground.deleter,
            desk=ground.desk(Reconciler.GHOST_REGISTRATIONS),
            turns=ground.turns,
            log=log,
            settings=settings,
        ),
        audit=audit,
        puller=puller,
        budget_watch=BudgetWatch(
            ground.budget, meter=meter, report=_reporter(deps, GITHUB_BUDGET_LOW)
        ),
    )


def _tell_what_rests(deps: ServerDeps) -> None:
    off = ", ".join(deps.settings.modes.off)
    if off:
        deps.log.warning("reconcilers are switched off", reconcilers=off)
        if deps.health is not None:
            deps.health.fail(RECONCILER_OFF.code, off)


def _ground(deps: ServerDeps) -> _Ground:
    settings, clock = deps.settings, deps.clock
    kube = Kube(deps.kube, token=deps.token)
    budget = SharedBudget(deps.database, clock=clock, points_per_minute=settings.github_points)
    github = GitHub(
        deps.github,
        app=deps.auth or AppAuth(app_id=deps.app_id, private_key=deps.app_key, clock=clock),
        clock=clock,
        budget=budget,
    )
    prover = Prover(kube, namespace=settings.namespace)
    pools = Pools(kube, namespace=settings.namespace)
    ctx = Context(deadlines=settings.deadlines, rules=deps.guards.rules)
    return _Ground(
        deps=deps,
        ctx=ctx,
        kube=kube,
        github=github,
        prover=prover,
        turns=Turns(deps.database, holder=deps.name),
        deleter=SafeDelete(
            kube=kube,
            github=github,
            prover=prover,
            clock=clock,
            meter=deps.meter,
            log=deps.log,
            namespace=settings.namespace,
            most=settings.delete_most,
        ),
        budget=budget,
        store=Store(
            deps.database,
            ctx=ctx,
            actor=deps.name,
            observer=JobMeter(pools=pools, meter=deps.meter).saw,
        ),
        waiters=Waiters(tell=None if deps.notices is None else deps.notices.tell),
        pools=pools,
        seal=Seal(settings.seal_key, rng=deps.rng),
    )


def _reporter(deps: ServerDeps, condition: Condition) -> Callable[[str], None]:
    """Tells the health of the server what is wrong, or with nothing that it is well."""

    def report(wrong: str) -> None:
        if deps.health is None:
            return
        if wrong:
            deps.health.fail(condition.code, wrong)
        else:
            deps.health.ok(condition.code)

    return report


def _lookers(ground: _Ground, intake: Intake) -> tuple[Audit, Puller]:
    """Who looks for what no webhook told."""
    deps, github = ground.deps, ground.github
    settings, database, clock = deps.settings, deps.database, deps.clock
    comparer = Comparer(
        github=github,
        database=database,
        intake=intake,
        meter=deps.meter,
        log=deps.log,
        redeliver=settings.intake == "webhook",
    )
    queued = QueuedJobs(
        github=github,
        database=database,
        intake=intake,
        meter=deps.meter,
        log=deps.log,
        settings=settings,
    )
    audit = Audit(
        github=github,
        database=database,
        comparer=comparer,
        queued=queued,
        turns=ground.turns,
        clock=clock,
        log=deps.log,
        settings=settings,
    )
    puller = Puller(
        github=github,
        comparer=comparer,
        queued=queued,
        turns=ground.turns,
        clock=clock,
        settings=settings,
    )
    return audit, puller


def _sweeper(ground: _Ground, reader: Reader, fencer: Fencer) -> Sweeper:
    deps = ground.deps
    return Sweeper(
        database=deps.database,
        store=ground.store,
        prover=ground.prover,
        fencer=fencer,
        reader=reader,
        deleter=ground.deleter,
        meter=deps.meter,
        log=deps.log,
        settings=deps.settings,
        rules=deps.guards.rules,
    )


def _lookout(ground: _Ground) -> Lookout:
    deps = ground.deps
    return Lookout(
        kube=ground.kube,
        database=deps.database,
        store=ground.store,
        clock=deps.clock,
        settings=deps.settings,
    )


def _retirer(ground: _Ground, fencer: Fencer) -> Retirer:
    return Retirer(
        database=ground.deps.database, store=ground.store, prover=ground.prover, fencer=fencer
    )


def _stamped(ground: _Ground, fencer: Fencer) -> OrphanedStampedPods:
    return OrphanedStampedPods(
        lookout=_lookout(ground),
        retirer=_retirer(ground, fencer),
        desk=ground.desk(Reconciler.ORPHANED_STAMPED_PODS),
        report=_reporter(ground.deps, STAMPS_OF_STRANGERS),
        settings=ground.deps.settings,
    )


def _pods(ground: _Ground, fencer: Fencer, closer: Closer) -> PodsAgainstSlots:
    return PodsAgainstSlots(
        lookout=_lookout(ground),
        closer=closer,
        retirer=_retirer(ground, fencer),
        desk=ground.desk(Reconciler.PODS_AGAINST_SLOTS),
        turns=ground.turns,
        clock=ground.deps.clock,
        settings=ground.deps.settings,
    )


def _matcher(ground: _Ground) -> Matcher:
    deps, namespace = ground.deps, ground.deps.settings.namespace
    settings = deps.settings
    if deps.notices is not None:  # who is told needs to look only now and then
        settings = msgspec.structs.replace(
            settings, match_every=max(_LOOK_ANYWAY, settings.match_every)
        )
    minter = Minter(
        store=ground.store,
        github=ground.github,
        deleter=ground.deleter,
        stamper=Stamper(ground.kube, namespace=namespace, clock=deps.clock, log=deps.log),
        seal=ground.seal,
        waiters=ground.waiters,
        clock=deps.clock,
        meter=deps.meter,
        log=deps.log,
        settings=deps.settings,
        guards=deps.guards,
    )
    return Matcher(
        database=deps.database,
        store=ground.store,
        claims=Claims(ctx=ground.ctx, actor=deps.name),
        pools=ground.pools,
        waiters=ground.waiters,
        minter=minter,
        clock=deps.clock,
        meter=deps.meter,
        log=deps.log,
        settings=settings,
        guards=deps.guards,
    )


def _api(ground: _Ground, intake: Intake, closer: Closer) -> Api:
    deps, settings = ground.deps, ground.deps.settings
    callers = Callers(
        ground.kube,
        namespace=settings.namespace,
        clock=deps.clock,
        remember=settings.token_cache,
    )
    polls = Polls(
        kube=ground.kube,
        callers=callers,
        store=ground.store,
        pools=ground.pools,
        waiters=ground.waiters,
        seal=ground.seal,
        clock=deps.clock,
        meter=deps.meter,
        settings=settings,
        guards=deps.guards,
    )
    return Api(
        polls=polls,
        intake=intake,
        callers=callers,
        closer=closer,
        signals=Signals(
            deps.database,
            pools=ground.pools,
            clock=deps.clock,
            log=deps.log,
            guards=deps.guards,
        ),
        records=Records(deps.database, clock=deps.clock, meter=deps.meter),
        database=deps.database,
        meter=deps.meter,
        log=deps.log,
        settings=settings,
    )
