"""Puts the pieces of the dispatch server together and makes their loops; starts nothing."""

from collections.abc import Callable, Coroutine

import msgspec

from runyard.blobs.errors import BlobError
from runyard.components.results import ObjectsWatch, Results, ResultsSetup, wire_results
from runyard.components.wiring.intake import IntakePieces, wire_intake
from runyard.components.wiring.minting import wire_marker, wire_matcher
from runyard.components.wiring.recovery import RecoveryPieces, wire_recovery
from runyard.components.wiring.shared import Shared, wire_shared
from runyard.db.contract import DatabaseError
from runyard.dispatch.budget_metrics import BudgetMetrics
from runyard.dispatch.deps import Deps
from runyard.dispatch.matcher import Matcher
from runyard.dispatch.metrics import Gauges
from runyard.dispatch.minting.marking import Marker
from runyard.dispatch.rest.jobs import JobService
from runyard.dispatch.rest.routes import Rest
from runyard.dispatch.rest.tenants import TenantService
from runyard.dispatch.retention import Pruner
from runyard.github.errors import GitHubError
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.kube.errors import KubeError
from runyard.telemetry.conditions import (
    GITHUB_BUDGET_LOW,
    OBJECT_STORE_UNREACHABLE,
    RECONCILER_OFF,
)
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.xcresult.processor.metrics import WATCH_EVERY, QueueWatch

Step = Callable[[], Coroutine[object, object, None]]
Steps = tuple[tuple[Loop, Step, float, float], ...]
"""Loops: name, step, seconds between two steps, deadline of one step in seconds."""

_EXPECTED = (*TRANSPORT_ERRORS, DatabaseError, KubeError, GitHubError, BlobError)


class Wired(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of one replica."""

    shared: Shared
    intake: IntakePieces
    recovery: RecoveryPieces
    matcher: Matcher
    marker: Marker
    budget_metrics: BudgetMetrics
    gauges: Gauges
    pruner: Pruner
    rest: Rest
    results: Results | None

    @property
    def deps(self) -> Deps:
        """The dependencies of every piece; their responses become health conditions."""
        return self.shared.deps


def wire(given: Deps, results: ResultsSetup | None = None) -> Wired:
    """Put a replica together; with `results`, it also serves test results."""
    shared = wire_shared(given)
    deps = shared.deps
    _report_modes(deps)
    database, meter, log, settings = deps.database, deps.meter, deps.log, deps.settings
    marker = wire_marker(shared)
    return Wired(
        shared=shared,
        intake=wire_intake(shared),
        recovery=wire_recovery(shared),
        matcher=wire_matcher(shared, marker),
        marker=marker,
        budget_metrics=BudgetMetrics(
            shared.budget, meter=meter, report=shared.reporter(GITHUB_BUDGET_LOW)
        ),
        gauges=Gauges(
            database,
            pools=shared.pools,
            meter=meter,
            log=log,
            settings=settings,
            health=deps.health,
        ),
        pruner=Pruner(database, clock=deps.clock, meter=meter, settings=settings.retention),
        rest=Rest(
            tenants=TenantService(database),
            jobs=JobService(database, github=shared.github, log=log),
            log=log,
        ),
        results=wire_results(
            results, database=database, clock=deps.clock, rng=deps.rng, meter=meter, log=log
        ),
    )


def _report_modes(deps: Deps) -> None:
    off = ", ".join(deps.settings.modes.off)
    if off:
        deps.log.warning("reconcilers are switched off", reconcilers=off)
        deps.health.fail(RECONCILER_OFF.code, off)


def loops(wired: Wired) -> tuple[Coroutine[object, object, object], ...]:
    """The loops of a replica, without those that its guards leave out."""
    deps, shared = wired.deps, wired.shared
    wakeups = {
        Loop.JOB_READ: shared.requeued,
        Loop.POD_MARKS: shared.swapped,
        Loop.DROPPED_POLLS: shared.dropped.wakeup,
    }
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
            expected=_EXPECTED,
            max_backoff=max(30.0, every),
            freshness=deps.freshness,
            wakeup=wakeups.get(name),
        )
        for name, step, every, deadline in (*_dispatch_steps(wired), *_results_steps(wired))
        if name not in deps.guards.without_loops
    )


def _dispatch_steps(wired: Wired) -> Steps:
    settings, prune = wired.deps.settings, wired.deps.settings.retention
    intake, recovery = wired.intake, wired.recovery
    steps: Steps = (
        (Loop.RUNNER_POOL_REFRESH, wired.shared.pools.refresh, settings.pools_every, 30.0),
        (Loop.SERVICE_HEARTBEAT, recovery.sweeper.tick, settings.tick_every, 10.0),
        (Loop.SLOT_SWEEP, recovery.sweeper.step, settings.sweep_every, 120.0),
        (Loop.JOB_READ, recovery.reader.step, settings.read_every, 120.0),
        (Loop.STALE_QUEUED_JOBS, recovery.reader.step_stale, settings.stale_queued_every, 120.0),
        (Loop.ORPHANED_STAMPED_PODS, recovery.stamped.step, settings.recover_every, 120.0),
        (Loop.PODS_AGAINST_SLOTS, recovery.pods.step, settings.pods_every, 120.0),
        (Loop.DROPPED_POLLS, wired.shared.dropped.step, settings.dropped_every, 10.0),
        (Loop.POD_MARKS, wired.marker.step, settings.marks_every, 60.0),
        (Loop.GHOST_REGISTRATIONS, recovery.ghosts.step, settings.ghosts_every, 120.0),
        (Loop.DELIVERY_AUDIT, intake.audit.step, settings.audit_every, 300.0),
        (Loop.QUEUE_GAUGES, wired.gauges.step, settings.gauges_every, 30.0),
        (Loop.ROW_RETENTION, wired.pruner.step, prune.every, prune.within + 60.0),
        (Loop.GITHUB_RATE_BUDGET, wired.budget_metrics.step, settings.gauges_every, 30.0),
    )
    if settings.intake == "pull":
        return (*steps, (Loop.DELIVERY_PULL, intake.puller.step, settings.pull_every, 60.0))
    return steps


def _results_steps(wired: Wired) -> Steps:
    deps, results = wired.deps, wired.results
    if results is None:
        return ()
    objects = ObjectsWatch(
        results.setup.blobs, report=wired.shared.reporter(OBJECT_STORE_UNREACHABLE)
    )
    retention = results.setup.settings.retention
    queue = QueueWatch(deps.database, meter=deps.meter, health=deps.health)
    return (
        (Loop.OBJECT_STORE_CHECK, objects.step, 60.0, 130.0),
        (
            Loop.TEST_RESULT_RETENTION,
            results.retention.step,
            retention.every,
            retention.within + 600.0,
        ),
        (Loop.TEST_RESULT_QUEUE, queue.step, WATCH_EVERY, 30.0),
    )
