"""Why a Pod does not serve yet, or no longer: told by its conditions, its container's state, its host.

The scheduler says why it has no host, the agent what it does with it (`PullingImage`, `ContainerCreating`, a failure
with its words), the Node and its lease whether anybody is there to do it.
"""

import msgspec

from runyard.kube.objects import Condition, Pod
from runyard.web.explain import outside
from runyard.web.explain.scene import Scene
from runyard.web.explain.values import Constraint, Step
from runyard.web.fleet import ENDED, instant
from runyard.web.words import lasted
from runyard.wire import names

_GUESTS_TURN = (
    Constraint.NO_JOB,
    Constraint.NOT_ASKING,
    Constraint.REGISTERING,
    Constraint.RUNNING,
    Constraint.DRAINING,
)


def of_pod(pod: Pod, scene: Scene) -> tuple[Step, ...]:
    """A Pod that has no slot, or whose slot says nothing: from its own status to its host."""
    if pod.metadata.deletion_timestamp:
        away = _host(pod, scene)
        return (_leaving(pod, leads=bool(away)), *away)
    if pod.status.phase in ENDED:
        return (_ended(pod),)
    if pod.metadata.labels.get(names.POOL_OWNER):
        return stamped(pod, scene)
    if not pod.spec.node_name:
        return (_unplaced(pod, scene),)
    away = _host(pod, scene)
    return (_starting(pod, leads=bool(away)), *away)


def on_host(steps: tuple[Step, ...], pod: Pod | None, scene: Scene) -> tuple[Step, ...]:
    """The steps of a slot, and its Pod's host if nobody is there: that is why, where the guest would be next."""
    away = () if pod is None else _host(pod, scene)
    if away and steps[-1].constraint in _GUESTS_TURN:
        steps = tuple(msgspec.structs.replace(step, leads=True) for step in steps)
    return (*steps, *away)


def stamped(pod: Pod, scene: Scene) -> tuple[Step, ...]:
    """An owner's stamp, and no claim that speaks for it."""
    owner = pod.metadata.labels.get(names.POOL_OWNER, "")
    age = scene.at - (instant(pod.metadata.creation_timestamp) or scene.at)
    left = max(0.0, scene.terms.stamped_grace - age)
    when = f"once it is {lasted(scene.terms.stamped_grace)} old" if left else "at its next look"
    rests = outside.switched(scene, "orphaned_stamped_pods")
    step = Step(
        constraint=Constraint.STAMPED,
        subject=f"pod {pod.metadata.name}",
        what=f"carries the stamp of {owner} and no claim speaks for it: it counts as busy",
        who="dispatch: recovery of stamped Pods",
        since=instant(pod.metadata.creation_timestamp),
        numbers={"age": round(age, 1), "grace": scene.terms.stamped_grace},
        ends=f"recovery fences, checks again and removes it {when}",
        leads=bool(rests),
    )
    return (step, *rests)


def drained(pod: Pod) -> tuple[Step, ...]:
    """An idle Pod that is told to leave: by a roll, or by a person."""
    labels = pod.metadata.labels
    name = f"pod {pod.metadata.name}"
    if labels.get(names.OPERATOR_DRAIN):
        what = "somebody wants this Pod gone: it is sent away when it asks for work"
        ends = "it leaves, and the pool makes another one"
        return (
            Step(
                constraint=Constraint.DRAINING, subject=name, what=what, who="a person", ends=ends
            ),
        )
    if labels.get(names.DRAIN_ELIGIBLE):
        return (
            Step(
                constraint=Constraint.ROLL,
                subject=name,
                what="is made from an older image and is sent away when it asks for work",
                who="operator: the roll",
                since=instant(pod.metadata.annotations.get(names.DRAIN_ELIGIBLE_AT, "")),
                ends="it leaves, and one with the new image takes its place",
            ),
        )
    return ()


def _leaving(pod: Pod, *, leads: bool) -> Step:
    ends = instant(pod.metadata.deletion_timestamp)  # Kubernetes writes the end of the grace period
    grace = pod.metadata.deletion_grace_period_seconds or 0
    return Step(
        constraint=Constraint.DRAINING,
        subject=f"pod {pod.metadata.name}",
        what="is being deleted",
        who="Kubernetes",
        since=None if ends is None else ends - grace,
        ends="its host confirms that the VM is gone",
        leads=leads,
    )


def _ended(pod: Pod) -> Step:
    status = pod.status
    said = ": ".join(filter(None, (status.reason, status.message)))
    failed = status.phase == "Failed"
    return Step(
        constraint=Constraint.START_FAILED if failed else Constraint.OVER,
        subject=f"pod {pod.metadata.name}",
        what=f"{'failed' if failed else 'has ended'}{f': {said}' if said else ''}",
        who=f"agent of {pod.spec.node_name}" if pod.spec.node_name else "Kubernetes",
        ends="the operator removes it and makes another one",
    )


def _unplaced(pod: Pod, scene: Scene) -> Step:
    told = _condition(pod, "PodScheduled")
    said = "" if told is None else told.message or told.reason
    ready = sum(host.state == "ready" for host in scene.hosts)
    return Step(
        constraint=Constraint.NO_HOST,
        subject=f"pod {pod.metadata.name}",
        what=f"no host takes it: {said}" if said else "waits for a host",
        who="the scheduler",
        since=instant(told.last_transition_time if told else pod.metadata.creation_timestamp),
        numbers={"hosts": len(scene.hosts), "hosts_ready": ready},
        ends="a host of its fleet has a free place, or a new host joins",
    )


def _starting(pod: Pod, *, leads: bool) -> Step:
    constraint, what, ends = _progress(pod)
    bound = _condition(pod, "PodScheduled")
    since = instant(pod.status.start_time) or (
        instant(bound.last_transition_time) if bound is not None else None
    )
    return Step(
        constraint=constraint,
        subject=f"pod {pod.metadata.name}",
        what=what,
        who=f"agent of {pod.spec.node_name}",
        since=since or instant(pod.metadata.creation_timestamp),
        ends=ends,
        leads=leads,
    )


def _progress(pod: Pod) -> tuple[Constraint, str, str]:
    if pod.status.phase == "Running":
        what = "is up and has not asked for work yet"
        return Constraint.NOT_ASKING, what, "its poller asks for work"
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = next((s.state.waiting for s in statuses if s.state.waiting is not None), None)
    reason = "" if waits is None else waits.reason
    said = "" if waits is None else waits.message
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    if reason == names.WAITING_PULL:
        return Constraint.IMAGE_STAGING, f"its host pulls {image}", "the pull ends"
    failed = reason == names.REASON_CREATE_FAILED or reason.startswith(("Err", "ImagePull"))
    if failed or "BackOff" in reason:
        words = pod.status.message or said or reason
        return (
            Constraint.START_FAILED,
            f"its VM could not be made: {words}",
            "the agent tries again",
        )
    if not reason:
        return Constraint.BOOTING, "its host has not begun with it yet", "its agent takes it up"
    return Constraint.BOOTING, "its VM is made and boots", "the guest is up and asks for work"


def _host(pod: Pod, scene: Scene) -> tuple[Step, ...]:
    name = pod.spec.node_name
    host = scene.host(name) if name else None
    listed = scene.cluster is not None and "nodes" not in scene.cluster.refused
    if not name or (host is None and not listed) or (host is not None and host.tone != "bad"):
        return ()
    if host is None:
        what, since = "the host of this Pod does not exist any more", None
    else:
        what = f"{host.state}: {host.reason}" if host.reason else host.state
        since = host.heartbeat_at
    silent = {} if since is None else {"silent": round(scene.at - since, 1)}
    return (
        Step(
            constraint=Constraint.HOST_AWAY,
            subject=f"host {name}",
            what=what,
            who="the Node and its lease",
            since=since,
            numbers=silent,
            ends="its agent reports again, or the Node is removed",
        ),
    )


def _condition(pod: Pod, type_: str) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == type_), None)
