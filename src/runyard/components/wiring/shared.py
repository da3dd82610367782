"""Makes the pieces that all other pieces of a dispatch server share; each exists once in a replica.

Only here are the server's clients wrapped so that their responses become health conditions.
"""

import asyncio
from collections.abc import Callable

import msgspec

from runyard.components.reporting import ReportingDatabase, ReportingTransport, with_reports
from runyard.dispatch.authentication import Authenticator
from runyard.dispatch.budget import SharedBudget
from runyard.dispatch.deps import Deps
from runyard.dispatch.dropped_polls import DroppedPolls
from runyard.dispatch.job_metrics import JobMetrics
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.modes import Reconciler
from runyard.dispatch.pools import Pools
from runyard.dispatch.recorded_tx import JobTransition
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.report import ReconcilerReport
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.seal import Seal
from runyard.dispatch.store import Store
from runyard.dispatch.task_lease import TaskLease
from runyard.dispatch.waiters import Waiters
from runyard.github.client import GitHub
from runyard.telemetry import conditions
from runyard.telemetry.health import Condition, Health


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The shared pieces of a replica, with the dependencies that they were made from."""

    deps: Deps
    github: GitHub
    budget: SharedBudget
    ctx: Context
    store: Store
    waiters: Waiters
    dropped: DroppedPolls
    pools: Pools
    seal: Seal
    prover: Prover
    leases: TaskLease
    deleter: SafeDelete
    authenticator: Authenticator
    closer: Closer
    requeued: asyncio.Event
    """Set when a job goes back to the queue: it is read at GitHub at once, because it is not offered before."""
    swapped: asyncio.Event
    """Set when a runner executes another job than its own: the labels of its Pod are decided again."""

    def report(self, reconciler: Reconciler) -> ReconcilerReport:
        """The report of one reconciler, in the mode that the settings give it."""
        deps = self.deps
        return ReconcilerReport(
            reconciler, modes=deps.settings.modes, meter=deps.meter, log=deps.log
        )

    def reporter(self, condition: Condition) -> Callable[[str], None]:
        """A function that sets this health condition to a text, or clears it with an empty one."""
        return reporter(self.deps.health, condition)


def reporter(health: Health, condition: Condition) -> Callable[[str], None]:
    """A function that sets a health condition to a text, or clears it with an empty one."""

    def report(message: str) -> None:
        if message:
            health.fail(condition.code, message)
        else:
            health.ok(condition.code)

    return report


def wire_shared(given: Deps) -> Shared:
    """Make the shared pieces; their dependencies report to `health`."""
    deps = _reporting(given)
    settings, clock, database, kube = deps.settings, deps.clock, deps.database, deps.kube
    budget = SharedBudget(database, clock=clock, points_per_minute=settings.github_points)
    github = GitHub(deps.github, app=deps.auth, clock=clock, budget=budget)
    prover = Prover(kube, namespace=settings.namespace)
    pools = Pools(kube, namespace=settings.namespace)
    ctx = Context(deadlines=settings.deadlines, rules=deps.guards.rules)
    metrics = JobMetrics(pools=pools, meter=deps.meter)
    requeued, swapped = asyncio.Event(), asyncio.Event()

    def observe(transition: JobTransition) -> None:
        metrics.record(transition)
        if transition.requeued:
            requeued.set()
        if transition.swapped:
            swapped.set()

    waiters = Waiters(notify=None if deps.notices is None else deps.notices.notify)
    store = Store(database, ctx=ctx, actor=deps.name, observer=observe)
    return Shared(
        deps=deps,
        github=github,
        budget=budget,
        ctx=ctx,
        store=store,
        waiters=waiters,
        dropped=DroppedPolls(
            database, waiters=waiters, clock=clock, asking_within=settings.asking_within
        ),
        pools=pools,
        seal=Seal(settings.seal_key, rng=deps.rng),
        prover=prover,
        leases=TaskLease(database, holder=deps.name),
        deleter=SafeDelete(deps, kube=kube, github=github, prover=prover),
        authenticator=Authenticator(
            kube, namespace=settings.namespace, clock=clock, cache_seconds=settings.token_cache
        ),
        closer=Closer(store=store, prover=prover),
        requeued=requeued,
        swapped=swapped,
    )


def _reporting(deps: Deps) -> Deps:
    health = deps.health
    return msgspec.structs.replace(
        deps,
        kube=with_reports(deps.kube, health, meter=deps.meter, log=deps.log),
        github=ReportingTransport(
            deps.github,
            health,
            unreachable=conditions.GITHUB_UNREACHABLE,
            refused=conditions.GITHUB_REFUSED,
        ),
        database=ReportingDatabase(
            deps.database, health, unreachable=conditions.DATABASE_UNREACHABLE
        ),
    )
