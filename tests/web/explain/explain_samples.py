"""Sample contexts, jobs, slots and Pods for tests of explanations."""

from typing import Any

from runyard.dispatch.machine.table import Deadlines, time_limit
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.kube.objects import Pod, Reader, RunnerPool
from runyard.web.cluster import Cluster
from runyard.web.explain.context import Context, JobFacts, LogEntry, SlotFacts
from runyard.web.values import Alarm, Host, Runner
from runyard.wire import names

NOW = 1_800_000_000.0
LABELS = ("self-hosted", "macos", "shape-mac")


def a_pool(
    name: str = "mac", *, replicas: int = 2, conditions: Any = (), **meta: Any
) -> RunnerPool:
    spec = {
        "image": "vm:1",
        "fleetSelector": "minis",
        "dispatchLabel": "shape-mac",
        "runnerLabels": ["self-hosted", "macOS"],
        "replicas": replicas,
    }
    body = {"metadata": {"name": name, **meta}, "spec": spec}
    return Reader(RunnerPool).of({**body, "status": {"conditions": list(conditions)}})


def condition(type_: str, reason: str, message: str = "", **numbers: float) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2027-01-15T07:58:00Z",
        "numbers": numbers,
    }


def a_pod(name: str = "mac-1", *, node: str = "mini-1", status: Any = None, **meta: Any) -> Pod:
    labels = {names.RUNNER: "true", names.RUNNER_POOL: "mac", **meta.pop("labels", {})}
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "runner", "image": "vm:1"}]},
        "status": status or {"phase": "Pending"},
    }
    return Reader(Pod).of(body)


def waits(reason: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": reason, "message": message}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "runner", "state": {"waiting": waiting}}],
    }


def a_runner(name: str = "mac-1", *, state: Any = "starting", pool: str = "mac") -> Runner:
    return Runner(
        uid=f"uid-{name}", name=name, pool=pool, state=state, tone="wait", words="", since=NOW - 9
    )


def a_job(**more: Any) -> JobFacts:
    values: dict[str, Any] = {
        "job_id": 7,
        "tenant": "acme",
        "repository": "acme/app",
        "labels": LABELS,
        "state": "queued",
        "verified": True,
        "runner_name": "",
        "conclusion": "",
        "installation_id": 1,
        "enqueued_at": NOW - 60,
        "look_at": NOW + 20,
    }
    return JobFacts(**{**values, **more})


def a_slot(state: SlotState = SlotState.IDLE, *, late: float = -30.0, **more: Any) -> SlotFacts:
    slot = Slot(
        pod_uid="uid-mac-1",
        pod_name="mac-1",
        pool="mac",
        state=state,
        runner_name="mac-1",
        installation_id=1,
        **more.pop("slot", {}),
    )
    moved = NOW - late - time_limit(slot, Deadlines())
    values: dict[str, Any] = {
        "slot": slot,
        "opened_at": NOW - 600,
        "last_beat": NOW - 2,
        "deadline": NOW - late,
        "overdue": late >= 0,
        "settled": True,
        "settles_at": NOW - 100,
        "last": LogEntry(at=moved, source="", target=state, reason="queued", actor="server-1"),
    }
    return SlotFacts(**{**values, **more})


def an_alarm(code: str) -> Alarm:
    return Alarm(
        code=code, severity="error", title="GitHub does not answer", text="wait", since=NOW
    )


def a_context(*, pools: Any = (), pods: Any = (), hosts: Any = None, **more: Any) -> Context:
    ready = Host(name="mini-1", tone="good", state="ready", heartbeat_at=NOW - 3)
    cluster = Cluster(pools=tuple(pools), pods=tuple(pods))
    return Context(at=NOW, cluster=cluster, hosts=(ready,) if hosts is None else hosts, **more)
