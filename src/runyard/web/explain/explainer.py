"""Explains the state of a job, a Pod, a pool or a runner as a chain of reasons.

    explainer = Explainer(database, snapshot=dashboard.snapshot, dispatch=Dispatch(…), …)
    await explainer.explain("job", "48190300")

The fleet's state is the dashboard's snapshot, so explanations add no load on Kubernetes; only the rows of the job or
slot in question are read for a request. If a source that the explanation needs does not answer, that is the
explanation.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError
from runyard.dispatch.machine.values import JobState, SlotState
from runyard.dispatch.matching.values import Matching
from runyard.telemetry.log import redact
from runyard.web.explain import dependencies
from runyard.web.explain.context import (
    Context,
    DispatchLimits,
    RateBudget,
    SlotFacts,
    build_context,
)
from runyard.web.explain.facts import label_facts, slot_facts, trust_fact
from runyard.web.explain.jobs import explain_job, is_examined
from runyard.web.explain.pods import explain_drain, explain_pod, explain_stamp, with_host
from runyard.web.explain.pools import explain_pool
from runyard.web.explain.queries import Rows, number, read_job, read_slot
from runyard.web.explain.slots import explain_slot
from runyard.web.explain.values import Explanation, Step, Subject, Unknown, explained
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import Source
from runyard.wire import names
from runyard.wire.reasons import Reason

JOBS = "the jobs that GitHub reported (a job whose webhook was lost is found within minutes)"
SLOTS = "the slots, open and closed (by runner id: only while the runner may exist at GitHub)"
PODS = "the runner Pods in Kubernetes"
POOLS = "the RunnerPools in Kubernetes"
_MESSAGE = 300


async def _no_rate_budgets() -> tuple[RateBudget, ...]:
    return ()


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """The dispatch server's matching, limits and rate budgets, which explanations refer to."""

    read_matching: Callable[[], Awaitable[Matching]]
    limits: DispatchLimits = DispatchLimits()
    rate_budgets: Callable[[], Awaitable[tuple[RateBudget, ...]]] = _no_rate_budgets


class Explainer:
    """Builds explanations; stateless."""

    def __init__(
        self,
        database: Database,
        *,
        snapshot: Callable[[], Awaitable[Snapshot]],
        dispatch: Dispatch,
        settings: Settings,
    ) -> None:
        self._database = database
        self._snapshot = snapshot
        self._dispatch = dispatch
        self._settings = settings

    async def explain(self, subject: Subject, id_: str) -> Explanation | Unknown:
        """Explain one object; `Unknown` if it does not exist."""
        snapshot = await self._snapshot()
        unknown = _unread(snapshot)
        down = _down(snapshot)
        chain: tuple[Step, ...] | None
        facts: tuple[Reason, ...] = ()
        try:
            chain, facts = await self._chain(subject, id_, await self._context(snapshot))
        except DatabaseError as error:
            source = Source(
                name="Postgres", state="down", message=str(redact(str(error)))[:_MESSAGE]
            )
            chain = (dependencies.database(down or source),)
        if not chain:
            if not unknown:
                return Unknown(subject=subject, id=id_, searched=_SEARCHED[subject])
            chain = (
                dependencies.kubernetes(snapshot.kubernetes)
                if down is None
                else dependencies.database(down),
            )
        return explained(subject, id_, chain, at=snapshot.at, facts=facts, unknown=unknown)

    async def _chain(
        self, subject: Subject, id_: str, context: Context
    ) -> tuple[tuple[Step, ...], tuple[Reason, ...]]:
        if subject == "job":
            return await self._job(id_, context)
        if subject == "pool":
            pool = context.pool(id_)
            return (() if pool is None else explain_pool(pool, context)), ()
        rows = await read_slot(self._database, id_, self._dispatch.limits)
        return explain_runner(id_, rows.slot, context), slot_facts(rows.slot)

    async def _job(self, id_: str, context: Context) -> tuple[tuple[Step, ...], tuple[Reason, ...]]:
        job_id = number(id_)
        if job_id is None:
            return (), ()
        rows: Rows = await read_job(self._database, job_id, self._dispatch.limits)
        if rows.job is None:
            return (), ()
        waits = rows.job.state == JobState.QUEUED and rows.job.verified
        if waits and not is_examined(context.matching, rows.job):
            # The snapshot is older than the job: with a new one every replica gives the same answer.
            fresh = await self._dispatch.read_matching()
            context = msgspec.structs.replace(context, matching=fresh)
        never_ran = rows.job.state == JobState.DONE and not rows.job.trust
        trust = () if never_ran else (trust_fact(rows.job.trust),)
        return explain_job(rows.job, rows.slot, context), (*trust, *label_facts(rows.slot, job_id))

    async def _context(self, snapshot: Snapshot) -> Context:
        rate_budgets = await self._dispatch.rate_budgets()
        return build_context(
            snapshot, self._settings, self._dispatch.limits, rate_budgets=rate_budgets
        )


def explain_runner(name: str, slot: SlotFacts | None, context: Context) -> tuple[Step, ...]:
    """Explain a Pod and its slot: the slot decides what it works on, the Pod whether it exists."""
    pod = context.pod(name if slot is None else slot.slot.pod_uid)
    if slot is None or (slot.slot.state is SlotState.CLOSED and pod is not None):
        return () if pod is None else explain_pod(pod, context)
    if slot.slot.state is SlotState.IDLE and pod is not None:
        if pod.metadata.labels.get(names.POOL_OWNER):
            return explain_stamp(pod, context)
        if pod.metadata.deletion_timestamp:
            return explain_pod(pod, context)
        leaving = explain_drain(pod)
        if leaving:
            return leaving
    return with_host(explain_slot(slot, context), pod, context)


_SEARCHED: dict[Subject, tuple[str, ...]] = {
    "job": (JOBS,),
    "pod": (PODS, SLOTS),
    "runner": (SLOTS, PODS),
    "pool": (POOLS,),
}


def _down(snapshot: Snapshot) -> Source | None:
    return snapshot.postgres if snapshot.postgres.state == "down" else None


def _unread(snapshot: Snapshot) -> tuple[str, ...]:
    sources = (snapshot.postgres, snapshot.kubernetes)
    return tuple(f"{s.name}: {s.message}" for s in sources if s.state == "down")
