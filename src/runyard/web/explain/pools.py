"""Why a pool has no runner for a job: told by the operator's own conditions, and by the Pods that are on their way."""

from collections import Counter

from runyard.kube.objects import RunnerPool
from runyard.web.explain.pods import of_pod
from runyard.web.explain.scene import Scene
from runyard.web.explain.values import Constraint, Step
from runyard.web.fleet import instant
from runyard.wire import names
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
    Constraint.BACKOFF: "the next attempt succeeds; look at what its last runners failed with",
    Constraint.NO_HOST: "a host of this fleet is Ready and takes Pods",
    Constraint.PROVISIONING_CEILING: "one of the runners that start is up, or the ceiling is raised",
    Constraint.POOL_DELETED: "its last runners leave; another pool must serve these labels",
}


def of_pool(pool: RunnerPool, scene: Scene) -> tuple[Step, ...]:
    """The pool's first hindrance, then what that one waits for."""
    told = {condition.type: condition for condition in pool.status.conditions}
    filled, rolled = told.get(names.POOL_FILLED), told.get(names.POOL_ROLLED)
    counts = _counts(pool, scene)
    if pool.metadata.deletion_timestamp:
        return (_deleted(pool, filled),)
    if filled is not None and filled.status == "False":
        return (_unfilled(pool, filled, counts), *_first_start(pool, scene))
    starting = _first_start(pool, scene)
    stale = rolled is not None and rolled.status == "False"
    if rolled is not None and stale and rolled.numbers.get("unavailable", 0) > 0:
        return (_rolling(pool, rolled, counts), *starting)
    if starting:
        return (_starts(pool, starting[0], counts), *starting)
    still = _still(pool, counts)
    if rolled is not None and stale and still.constraint is Constraint.AS_ASKED:
        return (_rolling(pool, rolled, counts),)
    return (still,)


def _counts(pool: RunnerPool, scene: Scene) -> dict[str, float]:
    """How its runners are, as numbers for every step about it."""
    states = Counter(r.state for r in scene.runners if r.pool == pool.metadata.name)
    return {
        "replicas": pool.spec.replicas,
        "idle": states["idle"],
        "busy": states["busy"] + states["taking"],
        "starting": states["starting"],
        "leaving": states["stopping"],
    }


def _deleted(pool: RunnerPool, filled: PoolCondition | None) -> Step:
    said = "" if filled is None or filled.status != "False" else filled.message
    return Step(
        constraint=Constraint.POOL_DELETED,
        subject=_named(pool),
        what=said or "the pool is being deleted",
        who=OPERATOR,
        since=instant(pool.metadata.deletion_timestamp),
        ends=_ENDS[Constraint.POOL_DELETED],
    )


def _unfilled(pool: RunnerPool, filled: PoolCondition, counts: dict[str, float]) -> Step:
    constraint = _FILLED.get(filled.reason, Constraint.BACKOFF)
    return Step(
        constraint=constraint,
        subject=_named(pool),
        what=filled.message,
        who=OPERATOR,
        since=instant(filled.last_transition_time),
        numbers={**counts, **filled.numbers},
        ends=_ENDS[constraint],
    )


def _rolling(pool: RunnerPool, rolled: PoolCondition, counts: dict[str, float]) -> Step:
    return Step(
        constraint=Constraint.ROLL,
        subject=_named(pool),
        what=rolled.message,
        who="operator: the roll",
        since=instant(rolled.last_transition_time),
        numbers={**counts, **rolled.numbers},
        ends="the runners with the new image are up; the cap is spec.rollout.maxConcurrentPercent",
    )


def _starts(pool: RunnerPool, first: Step, counts: dict[str, float]) -> Step:
    return Step(
        constraint=first.constraint,
        subject=_named(pool),
        what=f"{counts['starting']:g} of {pool.spec.replicas} runners start, {counts['busy']:g} busy",
        who=OPERATOR,
        since=first.since,
        numbers=counts,
        ends="the first of them is up",
        leads=True,
    )


def _still(pool: RunnerPool, counts: dict[str, float]) -> Step:
    """Nothing hinders the pool: it is as it was asked to be, and perhaps that is too small."""
    busy, replicas = counts["busy"], pool.spec.replicas
    if not replicas:
        constraint, what = Constraint.SCALED_TO_ZERO, "the pool is scaled to zero"
        ends = "somebody, or the autoscaler, asks for replicas"
    elif busy and not counts["idle"]:
        constraint, what = Constraint.ALL_BUSY, f"all runners are busy: {busy:g} of {replicas}"
        ends = "a job ends and its runner is replaced, or the pool gets more replicas"
    elif counts["leaving"] and not counts["idle"]:
        constraint, what = (
            Constraint.DRAINING,
            f"{counts['leaving']:g} runners are on their way out",
        )
        ends = "their hosts confirm that they are gone, and others are made"
    else:
        constraint, what = Constraint.AS_ASKED, f"{counts['idle']:g} of {replicas} runners are idle"
        ends = ""
    return Step(
        constraint=constraint,
        subject=_named(pool),
        what=what,
        who=OPERATOR,
        numbers=counts,
        ends=ends,
    )


def _first_start(pool: RunnerPool, scene: Scene) -> tuple[Step, ...]:
    """The Pod that is on its way for longest, and what it waits for."""
    starting = [r for r in scene.runners if r.pool == pool.metadata.name and r.state == "starting"]
    starting.sort(key=lambda runner: (runner.since or scene.at, runner.name))
    pod = scene.pod(starting[0].uid) if starting else None
    return () if pod is None else of_pod(pod, scene)


def _named(pool: RunnerPool) -> str:
    return f"pool {pool.metadata.name}"
