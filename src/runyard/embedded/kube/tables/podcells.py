"""Renders the cells of Pods; the status is the most specific known reason. Nothing here raises."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.tables.cells import NONE, age, at, count, items, text

_FINISHED = ("Succeeded", "Failed")
_INITIALIZING = "PodInitializing"


def ready(pod: Object) -> str:
    """How many containers are ready, of how many."""
    sidecars = _sidecars(pod)
    statuses = items(pod, "status", "containerStatuses")
    good = sum(
        1
        for item in statuses
        if item.get("ready") is True and at(item, "state", "running") is not None
    )
    ready_sidecars = sum(
        1
        for item in items(pod, "status", "initContainerStatuses")
        if item.get("name") in sidecars and item.get("started") and item.get("ready")
    )
    return f"{good + ready_sidecars}/{len(items(pod, 'spec', 'containers')) + len(sidecars)}"


def status(pod: Object) -> str:
    """The state of a Pod."""
    phase = text(at(pod, "status", "phase"))
    found = text(at(pod, "status", "reason"), phase)
    for item in items(pod, "status", "conditions"):
        if item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated":
            found = "SchedulingGated"
    starting = _starting(pod)
    if starting is not None:
        found = starting
    else:
        found = _running(pod, found)
    if at(pod, "metadata", "deletionTimestamp"):
        if at(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in _FINISHED:
            return "Terminating"
    return found


def restarts(pod: Object, now: float) -> str:
    """How often containers were restarted, and when the last one was."""
    inits = items(pod, "status", "initContainerStatuses")
    if _starting(pod) is None:
        sidecars = _sidecars(pod)
        kept = [item for item in inits if item.get("name") in sidecars]
        statuses = [*kept, *items(pod, "status", "containerStatuses")]
    else:
        statuses = inits
    total = sum(count(item.get("restartCount")) for item in statuses)
    ends = [text(at(item, "lastState", "terminated", "finishedAt")) for item in statuses]
    last = max(ends, default="")
    return f"{total} ({age(last, now)} ago)" if total and last else str(total)


def gates(pod: Object) -> str:
    """How many readiness gates are met, of how many."""
    wanted = items(pod, "spec", "readinessGates")
    if not wanted:
        return NONE
    true = [
        item.get("type")
        for item in items(pod, "status", "conditions")
        if item.get("status") == "True"
    ]
    met = sum(1 for item in wanted if item.get("conditionType") in true)
    return f"{met}/{len(wanted)}"


def _sidecars(pod: Object) -> list[Any]:
    """The names of sidecar containers."""
    found = items(pod, "spec", "initContainers")
    return [item.get("name") for item in found if item.get("restartPolicy") == "Always"]


def _starting(pod: Object) -> str | None:
    """The state of a Pod's init containers; None once they are done."""
    sidecars = _sidecars(pod)
    total = len(items(pod, "spec", "initContainers"))
    for index, item in enumerate(items(pod, "status", "initContainerStatuses")):
        ended = at(item, "state", "terminated")
        if isinstance(ended, dict) and count(ended.get("exitCode")) == 0:
            continue
        if item.get("name") in sidecars and item.get("started"):
            continue
        if isinstance(ended, dict):
            return f"Init:{_end(ended)}"
        waiting = text(at(item, "state", "waiting", "reason"))
        return f"Init:{waiting}" if waiting not in ("", _INITIALIZING) else f"Init:{index}/{total}"
    return None


def _running(pod: Object, found: str) -> str:
    running = False
    for item in reversed(items(pod, "status", "containerStatuses")):
        ended = at(item, "state", "terminated")
        if isinstance(ended, dict):
            found = _end(ended)
        else:
            found = text(at(item, "state", "waiting", "reason")) or found
        running = running or (
            item.get("ready") is True and at(item, "state", "running") is not None
        )
    if found == "Completed" and running:
        conditions = items(pod, "status", "conditions")
        good = any(
            (item.get("type"), item.get("status")) == ("Ready", "True") for item in conditions
        )
        return "Running" if good else "NotReady"
    return found


def _end(ended: Object) -> str:
    if reason := text(ended.get("reason")):
        return reason
    signal = count(ended.get("signal"))
    return f"Signal:{signal}" if signal else f"ExitCode:{count(ended.get('exitCode'))}"
