"""Explains why a pool has no runner for a job, from the operator's conditions and the Pods that are starting."""

from collections import Counter

from runyard.kube.objects import RunnerPool
from runyard.web.explain.context import Context
from runyard.web.explain.pods import explain_pod
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.values import Constraint, Step
from runyard.web.fleet import instant
from runyard.wire import names
from runyard.wire.reasons import Reason
from runyard.wire.runnerpool import PoolCondition

OPERATOR = "operator"
_FILLED = {
    names.REASON_BACKOFF: Constraint.BACKOFF,
    names.REASON_NO_HEALTHY_HOST: Constraint.NO_HOST,
    names.REASON_PROVISIONING_CEILING: Constraint.PROVISIONING_CEILING,
    names.REASON_PROVISIONING_SHARE: Constraint.PROVISIONING_CEILING,
    names.REASON_DELETING: Constraint.POOL_DELETED,
}
_ENDS = {
    Constraint.BACKOFF: Ends.ATTEMPT_SUCCEEDS,
    Constraint.NO_HOST: Ends.HOST_READY,
    Constraint.PROVISIONING_CEILING: Ends.CEILING_FREE,
    Constraint.POOL_DELETED: Ends.OTHER_POOL,
}


def explain_pool(pool: RunnerPool, context: Context) -> tuple[Step, ...]:
    """Explain why the pool has no idle runner, then what its oldest starting Pod waits for."""
    conditions = {condition.type: condition for condition in pool.status.conditions}
    filled, rolled = conditions.get(names.POOL_FILLED), conditions.get(names.POOL_ROLLED)
    counts = _counts(pool, context)
    if pool.metadata.deletion_timestamp:
        return (_deleted(pool, filled),)
    if filled is not None and filled.status == "False":
        return (_unfilled(pool, filled, counts), *_first_start(pool, context))
    starting = _first_start(pool, context)
    stale = rolled is not None and rolled.status == "False"
    if rolled is not None and stale and rolled.numbers.get("unavailable", 0) > 0:
        return (_rolling(pool, rolled, counts), *starting)
    if starting:
        return (_starts(pool, starting[0], counts), *starting)
    settled = _settled(pool, counts)
    if rolled is not None and stale and settled.constraint is Constraint.AS_ASKED:
        return (_rolling(pool, rolled, counts),)
    return (settled,)


def _counts(pool: RunnerPool, context: Context) -> dict[str, float]:
    """Count its runners by state, for the numbers of its steps."""
    states = Counter(r.state for r in context.runners if r.pool == pool.metadata.name)
    return {
        "replicas": pool.spec.replicas,
        "idle": states["idle"],
        "busy": states["busy"] + states["taking"],
        "starting": states["starting"],
        "leaving": states["stopping"],
    }


def _deleted(pool: RunnerPool, filled: PoolCondition | None) -> Step:
    message = "" if filled is None or filled.status != "False" else filled.message
    return Step(
        constraint=Constraint.POOL_DELETED,
        subject=_subject(pool),
        what=What.POOL_CONDITION.because(message=message)
        if message
        else What.POOL_DELETED.because(),
        who=OPERATOR,
        since=instant(pool.metadata.deletion_timestamp),
        ends=Ends.OTHER_POOL.because(),
    )


def _unfilled(pool: RunnerPool, filled: PoolCondition, counts: dict[str, float]) -> Step:
    constraint = _FILLED.get(filled.reason, Constraint.BACKOFF)
    return Step(
        constraint=constraint,
        subject=_subject(pool),
        what=What.POOL_CONDITION.because(message=filled.message),
        who=OPERATOR,
        since=instant(filled.last_transition_time),
        numbers={**counts, **filled.numbers},
        ends=_ENDS[constraint].because(),
    )


def _rolling(pool: RunnerPool, rolled: PoolCondition, counts: dict[str, float]) -> Step:
    return Step(
        constraint=Constraint.ROLL,
        subject=_subject(pool),
        what=What.POOL_CONDITION.because(message=rolled.message),
        who="operator: rollout",
        since=instant(rolled.last_transition_time),
        numbers={**counts, **rolled.numbers},
        ends=Ends.ROLLED.because(),
    )


def _starts(pool: RunnerPool, first: Step, counts: dict[str, float]) -> Step:
    return Step(
        constraint=first.constraint,
        subject=_subject(pool),
        what=What.RUNNERS_STARTING.because(
            starting=counts["starting"], replicas=pool.spec.replicas, busy=counts["busy"]
        ),
        who=OPERATOR,
        since=first.since,
        numbers=counts,
        ends=Ends.FIRST_POLLS.because(),
        leads=True,
    )


def _settled(pool: RunnerPool, counts: dict[str, float]) -> Step:
    """Explain a pool that has its desired replicas, which may be too few."""
    busy, replicas = counts["busy"], pool.spec.replicas
    ends: Reason | None = None
    if not replicas:
        constraint, what = Constraint.SCALED_TO_ZERO, What.SCALED_TO_ZERO.because()
        ends = Ends.REPLICAS_RAISED.because()
    elif busy and not counts["idle"]:
        constraint = Constraint.ALL_BUSY
        what = What.ALL_BUSY.because(busy=busy, replicas=replicas)
        ends = Ends.JOB_ENDS_OR_REPLICAS.because()
    elif counts["leaving"] and not counts["idle"]:
        constraint = Constraint.DRAINING
        what = What.RUNNERS_STOPPING.because(stopping=counts["leaving"])
        ends = Ends.HOSTS_REPORT.because()
    else:
        constraint = Constraint.AS_ASKED
        what = What.RUNNERS_IDLE.because(idle=counts["idle"], replicas=replicas)
    return Step(
        constraint=constraint,
        subject=_subject(pool),
        what=what,
        who=OPERATOR,
        numbers=counts,
        ends=ends,
    )


def _first_start(pool: RunnerPool, context: Context) -> tuple[Step, ...]:
    """Explain the Pod that has been starting for longest."""
    starting = [
        r for r in context.runners if r.pool == pool.metadata.name and r.state == "starting"
    ]
    starting.sort(key=lambda runner: (runner.since or context.at, runner.name))
    pod = context.pod(starting[0].uid) if starting else None
    return () if pod is None else explain_pod(pod, context)


def _subject(pool: RunnerPool) -> str:
    return f"pool {pool.metadata.name}"
