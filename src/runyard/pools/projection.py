"""Converts Kubernetes objects into the views that plans read.

Instants are parsed here and nowhere else. An object may hold invalid values (edited by hand, or written by another
version). A runner with a field that cannot be read becomes `readable=False`, which protects it: it counts as busy.
"""

from typing import get_args

from runyard.kube.objects import Condition, ContainerStatus, Node, Pod, RunnerPool, ServiceAccount
from runyard.pools.plans.template import POLLER
from runyard.pools.plans.views import (
    AccountView,
    NodeView,
    Phase,
    Poller,
    PoolView,
    RunnerView,
)
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

_PHASES: dict[str, Phase] = {phase: phase for phase in get_args(Phase)}
_PHASES[""] = "Pending"
DEFAULT_GRACE = 30
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def project_runner(pod: Pod, *, readable: bool = True) -> RunnerView:
    """One Pod; `readable=False`: this is not its newest version."""
    meta = pod.metadata
    times = _Times()
    phase = _PHASES.get(pod.status.phase)
    scheduled = _condition(pod.status.conditions, "PodScheduled")
    changed = times.read(scheduled.last_transition_time) if scheduled else None
    bound = bool(pod.spec.node_name)
    grace = meta.deletion_grace_period_seconds
    created_at = times.read(meta.creation_timestamp)
    deleting_at = times.read(meta.deletion_timestamp)
    if meta.deletion_timestamp and deleting_at is None:
        deleting_at = created_at or 0.0  # the time is unreadable, the deletion is not
    bound_at = _bound_at(pod, scheduled, changed, times) if bound else None
    finished_at = _finished_at(pod.status.container_statuses, times)
    return RunnerView(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        phase=phase or "Unknown",
        owner=meta.labels.get(names.POOL_OWNER, ""),
        node=pod.spec.node_name,
        readable=readable and times.readable and phase is not None and bool(meta.uid),
        poller=_poller(pod.status.init_container_statuses),
        runtime_revision=meta.annotations.get(names.RUNTIME_REVISION, ""),
        marked=meta.labels.get(names.DRAIN_ELIGIBLE) == "true",
        grace_seconds=DEFAULT_GRACE if grace is None else grace,
        bound_at=bound_at,
        unschedulable_since=changed if _unschedulable(scheduled) and not bound else None,
        created_at=created_at,
        progress_at=_hint(meta.annotations, names.START_PROGRESS_AT),
        marked_at=_hint(meta.annotations, names.DRAIN_ELIGIBLE_AT),
        finished_at=finished_at,
        deleting_at=deleting_at,
    )


def project_account(account: ServiceAccount) -> AccountView:
    """One ServiceAccount; one whose age cannot be read has none and is never an orphan."""
    meta = account.metadata
    return AccountView(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        created_at=_Times().read(meta.creation_timestamp),
        deleting=bool(meta.deletion_timestamp),
    )


def project_node(node: Node) -> NodeView:
    """One host that exists."""
    leaving = node.spec.unschedulable or bool(node.metadata.deletion_timestamp)
    return NodeView(name=node.metadata.name, leaving=leaving)


def healthy(node: Node) -> bool:
    """Able to start a runner: not leaving, not under pressure, and explicitly ready."""
    if project_node(node).leaving:
        return False
    states = {condition.type: condition.status for condition in node.status.conditions}
    if any(states.get(pressure) == "True" for pressure in PRESSURES):
        return False
    return states.get("Ready") == "True"


def project_pool(pool: RunnerPool) -> PoolView:
    """The pool itself."""
    meta = pool.metadata
    return PoolView(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        spec=pool.spec,
        status=pool.status,
        deleting=bool(meta.deletion_timestamp),
        finalizers=meta.finalizers,
        runtime_revision=meta.annotations.get(names.RUNTIME_REVISION, ""),
        poller=meta.annotations.get(names.POLLER, ""),
        dispatch_url=meta.annotations.get(names.GUEST_DISPATCH_URL, ""),
    )


class _Times:
    """Parses instants; `readable` is False once one of them was invalid."""

    def __init__(self) -> None:
        self.readable = True

    def read(self, text: str) -> float | None:
        if not text:
            return None
        try:
            return from_rfc3339(text)
        except ValueError:
            self.readable = False
            return None


def _hint(annotations: dict[str, str], name: str) -> float | None:
    """An instant in an annotation; a malformed one counts as missing and keeps the runner readable."""
    return _Times().read(annotations.get(name, ""))


def _condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def _unschedulable(scheduled: Condition | None) -> bool:
    if scheduled is None:
        return False
    return scheduled.status == "False" and scheduled.reason == "Unschedulable"


def _bound_at(
    pod: Pod, scheduled: Condition | None, changed: float | None, times: _Times
) -> float | None:
    if scheduled is not None and scheduled.status == "True" and changed is not None:
        return changed
    return times.read(pod.status.start_time)


def _poller(statuses: tuple[ContainerStatus, ...]) -> Poller:
    for status in statuses:
        if status.name == POLLER and status.state.terminated is not None:
            return "terminated"
        if status.name == POLLER and status.state.running is not None:
            return "running"
    return ""


def _finished_at(statuses: tuple[ContainerStatus, ...], times: _Times) -> float | None:
    ends = [
        times.read(status.state.terminated.finished_at)
        for status in statuses
        if status.state.terminated is not None
    ]
    return max((end for end in ends if end is not None), default=None)
