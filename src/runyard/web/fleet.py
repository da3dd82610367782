"""Combines Pods, slots, Nodes and pools into the runners, pools and hosts of the dashboard.

The slot decides what a runner is working on, the Pod whether it exists. Where only one of them is known, the state
says so: a Pod without a slot has not polled for work yet, a slot without a Pod is `unseen`. All functions are pure.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from textwrap import shorten

import msgspec

from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.pools import view_of
from runyard.kube.objects import Condition, Node, Pod, RunnerPool
from runyard.web.cluster import Cluster
from runyard.web.links import run_url
from runyard.web.records import SlotRow
from runyard.web.settings import Settings
from runyard.web.values import Host, Pool, PoolState, Runner, RunnerState, Tone
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

ENDED = ("Succeeded", "Failed")
TONES: dict[RunnerState, Tone] = {
    "idle": "good",
    "silent": "warn",
    "taking": "work",
    "busy": "work",
    "starting": "wait",
    "stopping": "off",
    "failed": "bad",
    "unseen": "warn",
}
# States that need an operator come first.
_ORDER = {
    state: place
    for place, state in enumerate(
        ("failed", "unseen", "silent", "busy", "taking", "starting", "idle", "stopping")
    )
}
_LONGEST = 300  # characters of a reason; a reference with its digest takes a hundred
_JUST_NOW = 5.0  # a younger slot may belong to a Pod that was created after the list


@lru_cache(maxsize=20_000)
def instant(text: str) -> float | None:
    """Parse a Kubernetes timestamp; None if it is empty or invalid."""
    try:
        return from_rfc3339(text) if text else None
    except ValueError:
        return None


def runners(
    cluster: Cluster | None,
    slots: tuple[SlotRow, ...],
    *,
    cluster_at: float | None,
    github: str = "",
) -> tuple[Runner, ...]:
    """Return all runners, those that need an operator first; `github` is the address for links to runs."""
    by_uid = {slot.pod_uid: slot for slot in slots}
    images = {} if cluster is None else {p.metadata.name: p.spec.image for p in cluster.pools}
    pods = () if cluster is None else cluster.pods
    seen = {pod.metadata.uid for pod in pods}
    listed = cluster is not None and "pods" not in cluster.refused
    found = [_from_pod(pod, by_uid.get(pod.metadata.uid), images, github) for pod in pods]
    found += [
        _from_slot(
            slot, github, missing=listed and slot.opened_at < (cluster_at or 0.0) - _JUST_NOW
        )
        for slot in slots
        if slot.pod_uid not in seen
    ]
    return tuple(sorted(found, key=lambda each: (_ORDER[each.state], each.pool, each.name)))


def pools(
    cluster: Cluster | None, all_runners: tuple[Runner, ...], waiting: Counter[str]
) -> tuple[Pool, ...]:
    """Return all pools, including those that are known from their runners only."""
    counts: dict[str, Counter[str]] = {}
    stale: Counter[str] = Counter()
    for runner in all_runners:
        counts.setdefault(runner.pool, Counter())[runner.state] += 1
        stale[runner.pool] += runner.stale
    known = {} if cluster is None else {pool.metadata.name: pool for pool in cluster.pools}
    return tuple(
        _pool(name, known.get(name), counts.get(name, Counter()), stale[name], waiting[name])
        for name in sorted({*known, *counts})
    )


def hosts(cluster: Cluster | None, *, now: float, settings: Settings) -> tuple[Host, ...]:
    """Return all hosts, those with a problem first."""
    if cluster is None:
        return ()
    beats = {lease.metadata.name: instant(lease.spec.renew_time) for lease in cluster.leases}
    used = Counter(pod.spec.node_name for pod in cluster.pods if pod.status.phase not in ENDED)
    running = Counter(pod.spec.node_name for pod in cluster.pods if pod.status.phase == "Running")
    found = [
        msgspec.structs.replace(
            _host(node, beats.get(node.metadata.name), now, settings),
            used=used[node.metadata.name],
            running=running[node.metadata.name],
        )
        for node in cluster.nodes
    ]
    order = {"bad": 0, "warn": 1}
    return tuple(sorted(found, key=lambda host: (order.get(host.tone, 2), host.name)))


def _from_pod(pod: Pod, slot: SlotRow | None, images: dict[str, str], github: str) -> Runner:
    meta = pod.metadata
    pool = meta.labels.get(names.RUNNER_POOL, "")
    state, text = _pod_state(pod, slot)
    created = instant(meta.creation_timestamp)
    wanted = images.get(pool, "")
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    shown = Runner(
        uid=meta.uid,
        name=meta.name,
        pool=pool,
        state=state,
        tone=TONES[state],
        words=text,
        since=created if slot is None else _since(slot),
        host=pod.spec.node_name,
        blocked=_blocked(pod) if slot is None and state in ("starting", "failed") else "",
        stale=bool(wanted and image) and image != wanted,
    )
    return shown if slot is None else _with_job(shown, slot, github)


def _with_job(runner: Runner, slot: SlotRow, github: str) -> Runner:
    """Add the job that the slot runs or is assigned to."""
    url = run_url(github, slot.repository, run_id=slot.run_id, job_id=slot.job_id or 0)
    return msgspec.structs.replace(
        runner,
        job_id=slot.job_id,
        job_name=slot.job_name,
        job_workflow=slot.job_workflow,
        job_url=url,
        repository=slot.repository,
    )


def _from_slot(slot: SlotRow, github: str, *, missing: bool) -> Runner:
    state, text = _slot_state(slot)
    if missing and state != "stopping":
        state, text = "unseen", f"{text}; its Pod is not in Kubernetes"
    shown = Runner(
        uid=slot.pod_uid,
        name=slot.pod_name,
        pool=slot.pool,
        state=state,
        tone=TONES[state],
        words=text,
        since=_since(slot),
    )
    return _with_job(shown, slot, github)


def _since(slot: SlotRow) -> float:
    running = slot.state == SlotState.EXECUTING and slot.started_at is not None
    return slot.started_at or slot.opened_at if running else slot.opened_at


def _pod_state(pod: Pod, slot: SlotRow | None) -> tuple[RunnerState, str]:
    if slot is not None:
        state, text = _slot_state(slot)
        if pod.metadata.deletion_timestamp and state != "stopping":
            return "stopping", f"{text}; being deleted"
        return state, text
    if pod.metadata.deletion_timestamp:
        return "stopping", "being deleted"
    if pod.status.phase == "Failed":
        return "failed", _with_reason("failed", pod.status.reason or pod.status.message)
    if pod.status.phase == "Succeeded":
        return "stopping", "ended"
    if pod.metadata.labels.get(names.POOL_OWNER):
        return "busy", "has an owner label and no slot"
    if not pod.spec.node_name:
        return "starting", _with_reason(
            "waiting for a host", _unscheduled_reason(pod.status.conditions)
        )
    if pod.status.phase == "Running":
        return "starting", "started, has not polled for work yet"
    return "starting", _with_reason("starting", _waiting_reason(pod))


def _blocked(pod: Pod) -> str:
    """Why a Pod that has not started cannot; empty while it may get there."""
    if pod.status.phase == "Failed":
        return pod.status.reason or "Failed"
    if not pod.spec.node_name:
        scheduled = _condition(pod.status.conditions, "PodScheduled")
        return scheduled.reason if scheduled is not None and scheduled.status == "False" else ""
    reason = waiting_reason(pod)
    if pod.status.phase != "Running" and (reason == names.WAITING_SLOT or start_failed(pod)):
        return reason or pod.status.reason
    return ""


def waiting_reason(pod: Pod) -> str:
    """Why the first of a Pod's containers that waits does so, as a code."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = [status.state.waiting for status in statuses if status.state.waiting is not None]
    return waiting[0].reason if waiting else ""


def start_failed(pod: Pod) -> bool:
    """Whether the last attempt of a Pod's host to start it has failed; it is repeated."""
    reason = waiting_reason(pod)
    failed = names.REASON_CREATE_FAILED in (pod.status.reason, reason)
    return failed or reason.startswith(("Err", "ImagePull")) or "BackOff" in reason


def _slot_state(slot: SlotRow) -> tuple[RunnerState, str]:
    match slot.state:
        case SlotState.IDLE if slot.silent:
            return "silent", "no longer polls for work"
        case SlotState.IDLE:
            return "idle", "waiting for work"
        case SlotState.OFFERED:
            return "taking", "being registered at GitHub"
        case SlotState.ARMED:
            return "taking", "registered, starting its job"
        case SlotState.EXECUTING:
            return (
                "busy",
                "running a job"
                if slot.job_id is not None
                else "running a job, number not known yet",
            )
        case _:
            return "stopping", "stopping"


def _with_reason(text: str, reason: str) -> str:
    return f"{text}: {shorten(reason, _LONGEST, placeholder=' …')}" if reason else text


def _unscheduled_reason(conditions: tuple[Condition, ...]) -> str:
    scheduled = _condition(conditions, "PodScheduled")
    return "" if scheduled is None else scheduled.message or scheduled.reason


def _waiting_reason(pod: Pod) -> str:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = [status.state.waiting for status in statuses if status.state.waiting is not None]
    return next((each.message or each.reason for each in waiting), pod.status.reason)


def _condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def _pool(
    name: str, pool: RunnerPool | None, counts: Counter[str], stale: int, waiting: int
) -> Pool:
    shown = Pool(
        name=name or "(no pool)",
        known=pool is not None,
        idle=counts["idle"],
        busy=counts["busy"] + counts["taking"],
        starting=counts["starting"],
        other=sum(counts[state] for state in ("silent", "stopping", "failed", "unseen")),
        stale=stale,
        waiting=waiting,
    )
    if pool is None:
        return shown
    view = view_of(pool)
    return msgspec.structs.replace(
        shown,
        platform=view.platform,
        image=view.image,
        labels=view.mint_labels,
        desired=pool.spec.replicas,
        rolled_at=instant(pool.status.image_rolled_at),
        leaving=bool(pool.metadata.deletion_timestamp),
        conditions=tuple(
            PoolState(
                type=each.type,
                holds=each.status == "True",
                reason=each.reason,
                text=each.message[:300],
                since=instant(each.last_transition_time),
            )
            for each in pool.status.conditions
        ),
    )


def _host(node: Node, renewed: float | None, now: float, settings: Settings) -> Host:
    ready = _condition(node.status.conditions, "Ready")
    beat = renewed or (instant(ready.last_heartbeat_time) if ready else None)
    tone, state, reason = _host_state(node, ready)
    if beat is not None and now - beat > settings.heartbeat_late:
        tone, state, reason = "bad", "silent", "no heartbeat"
    info = node.status.node_info
    platform = info.operating_system or node.metadata.labels.get(names.NODE_OS, "")
    arch = info.architecture or node.metadata.labels.get(names.NODE_ARCH, "")
    return Host(
        name=node.metadata.name,
        tone=tone,
        state=state,
        reason=reason[:300],
        platform="/".join(filter(None, (platform, arch))),
        capacity=_count(node.status.allocatable.get("pods", "")),
        cordoned=node.spec.unschedulable,
        pressure=tuple(condition.type for condition in _pressed(node)),
        isolation=node.metadata.labels.get(names.NODE_ISOLATION, ""),
        heartbeat_at=beat,
    )


def _host_state(node: Node, ready: Condition | None) -> tuple[Tone, str, str]:
    if ready is None:
        return "warn", "unknown", "has not reported its status yet"
    if ready.status != "True":
        state = "not ready" if ready.status == "False" else "unknown"
        return "bad", state, ready.message or ready.reason
    if pressed := _pressed(node):
        return "warn", "under pressure", _describe(pressed)
    if node.spec.unschedulable:
        return "warn", "cordoned", "accepts no new runners"
    return "good", "ready", ""


def _pressed(node: Node) -> list[Condition]:
    return [
        condition
        for condition in node.status.conditions
        if condition.type.endswith("Pressure") and condition.status == "True"
    ]


def _describe(conditions: Iterable[Condition]) -> str:
    return "; ".join(f"{c.type}: {c.message or c.reason}" for c in conditions)


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
