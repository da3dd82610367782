"""Explains why a Pod is not ready for a job, from its conditions, its container's state and its host.

The scheduler's condition says why it has no host, the agent's container status what it is doing (`Pulling`,
`ContainerCreating`, a failure with its message), the Node and its lease whether the agent is alive.
"""

import msgspec

from runyard.kube.objects import Condition, Pod, Waiting
from runyard.web.durations import format_duration
from runyard.web.explain import dependencies
from runyard.web.explain.context import Context
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.values import Constraint, Step
from runyard.web.fleet import ENDED, instant, start_failed
from runyard.wire import names
from runyard.wire.reasons import Reason

_WAITS_FOR_GUEST = (
    Constraint.NO_JOB,
    Constraint.NOT_ASKING,
    Constraint.REGISTERING,
    Constraint.RUNNING,
    Constraint.DRAINING,
)


def explain_pod(pod: Pod, context: Context) -> tuple[Step, ...]:
    """Explain a Pod without an active slot, from its status and its host."""
    if pod.metadata.deletion_timestamp:
        down = _host(pod, context)
        return (_leaving(pod, leads=bool(down)), *down)
    if pod.status.phase in ENDED:
        return (_ended(pod),)
    if pod.metadata.labels.get(names.POOL_OWNER):
        return explain_stamp(pod, context)
    if not pod.spec.node_name:
        return (_unplaced(pod, context),)
    down = _host(pod, context)
    return (_starting(pod, leads=bool(down)), *down)


def with_host(steps: tuple[Step, ...], pod: Pod | None, context: Context) -> tuple[Step, ...]:
    """Add the Pod's host if it is down: that is the cause where the guest would act next."""
    down = () if pod is None else _host(pod, context)
    if down and steps[-1].constraint in _WAITS_FOR_GUEST:
        steps = tuple(msgspec.structs.replace(step, leads=True) for step in steps)
    return (*steps, *down)


def explain_stamp(pod: Pod, context: Context) -> tuple[Step, ...]:
    """Explain a Pod that has an owner label and no claim."""
    owner = pod.metadata.labels.get(names.POOL_OWNER, "")
    age = context.at - (instant(pod.metadata.creation_timestamp) or context.at)
    left = max(0.0, context.limits.stamped_grace - age)
    at_age = Ends.RECOVERED_AT_AGE.because(age=format_duration(context.limits.stamped_grace))
    inactive = dependencies.inactive_reconciler(context, "orphaned_stamped_pods")
    step = Step(
        constraint=Constraint.STAMPED,
        subject=f"pod {pod.metadata.name}",
        what=What.STAMPED_UNCLAIMED.because(owner=owner),
        who="dispatch: recovery of stamped Pods",
        since=instant(pod.metadata.creation_timestamp),
        numbers={"age": round(age, 1), "grace": context.limits.stamped_grace},
        ends=at_age if left else Ends.RECOVERED_NEXT.because(),
        leads=bool(inactive),
    )
    return (step, *inactive)


def explain_drain(pod: Pod) -> tuple[Step, ...]:
    """Explain an idle Pod that is marked for removal, by a rollout or by an operator."""
    labels = pod.metadata.labels
    name = f"pod {pod.metadata.name}"
    if labels.get(names.OPERATOR_DRAIN):
        what, ends = What.MARKED_BY_OPERATOR.because(), Ends.POD_REPLACED.because()
        return (
            Step(
                constraint=Constraint.DRAINING,
                subject=name,
                what=what,
                who="an operator",
                ends=ends,
            ),
        )
    if labels.get(names.DRAIN_ELIGIBLE):
        return (
            Step(
                constraint=Constraint.ROLL,
                subject=name,
                what=What.OLDER_IMAGE.because(),
                who="operator: rollout",
                since=instant(pod.metadata.annotations.get(names.DRAIN_ELIGIBLE_AT, "")),
                ends=Ends.IMAGE_REPLACED.because(),
            ),
        )
    return ()


def _leaving(pod: Pod, *, leads: bool) -> Step:
    ends = instant(pod.metadata.deletion_timestamp)  # Kubernetes writes the end of the grace period
    grace = pod.metadata.deletion_grace_period_seconds or 0
    return Step(
        constraint=Constraint.DRAINING,
        subject=f"pod {pod.metadata.name}",
        what=What.BEING_DELETED.because(),
        who="Kubernetes",
        since=None if ends is None else ends - grace,
        ends=Ends.VM_GONE.because(),
        leads=leads,
    )


def _ended(pod: Pod) -> Step:
    status = pod.status
    cause = ": ".join(filter(None, (status.reason, status.message)))
    failed = status.phase == "Failed"
    return Step(
        constraint=Constraint.START_FAILED if failed else Constraint.OVER,
        subject=f"pod {pod.metadata.name}",
        what=(What.POD_FAILED if failed else What.POD_ENDED).because(),
        cause=What.MESSAGE.because(text=cause) if cause else None,
        who=f"agent of {pod.spec.node_name}" if pod.spec.node_name else "Kubernetes",
        ends=Ends.OPERATOR_REPLACES.because(),
    )


def _unplaced(pod: Pod, context: Context) -> Step:
    scheduled = _condition(pod, "PodScheduled")
    cause = "" if scheduled is None else scheduled.message or scheduled.reason
    ready = sum(host.state == "ready" for host in context.hosts)
    return Step(
        constraint=Constraint.NO_HOST,
        subject=f"pod {pod.metadata.name}",
        what=What.NOT_SCHEDULED.because(message=cause) if cause else What.WAITS_FOR_HOST.because(),
        who="the scheduler",
        since=instant(
            pod.metadata.creation_timestamp if scheduled is None else scheduled.last_transition_time
        ),
        numbers={"hosts": len(context.hosts), "hosts_ready": ready},
        ends=Ends.HOST_FREE.because(),
    )


def _starting(pod: Pod, *, leads: bool) -> Step:
    constraint, what, ends = _progress(pod)
    pulled = _waiting(pod).message if constraint is Constraint.IMAGE_STAGING else ""
    bound = _condition(pod, "PodScheduled")
    since = instant(pod.status.start_time) or (
        instant(bound.last_transition_time) if bound is not None else None
    )
    return Step(
        constraint=constraint,
        subject=f"pod {pod.metadata.name}",
        what=what,
        cause=What.MESSAGE.because(text=pulled) if pulled else None,  # how far, at which rate
        who=f"agent of {pod.spec.node_name}",
        since=since or instant(pod.metadata.creation_timestamp),
        ends=ends,
        leads=leads,
    )


def _progress(pod: Pod) -> tuple[Constraint, Reason, Reason]:
    if pod.status.phase == "Running":
        return Constraint.NOT_ASKING, What.UP_NOT_POLLING.because(), Ends.POLLS.because()
    waits = _waiting(pod)
    reason, message = waits.reason, waits.message
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    if reason == names.WAITING_PULL:
        pulls = What.PULLS_IMAGE.because(image=image)
        return Constraint.IMAGE_STAGING, pulls, Ends.PULL_ENDS.because()
    if reason == names.WAITING_SLOT:
        return Constraint.SLOTS_FULL, What.NO_VM_SLOT.because(), Ends.SLOT_FREE.because()
    if start_failed(pod):
        cause = pod.status.message or message or reason
        return (
            Constraint.START_FAILED,
            What.VM_NOT_CREATED.because(message=cause),
            _repaired(reason, pod.spec.node_name),
        )
    if not reason:
        return Constraint.BOOTING, What.NOT_STARTED.because(), Ends.AGENT_STARTS.because()
    return Constraint.BOOTING, What.VM_BOOTS.because(), Ends.GUEST_POLLS.because()


def _repaired(kind: str, host: str) -> Reason:
    """What would end a failure of this kind."""
    match kind:
        case names.WAITING_NO_SPACE:
            return Ends.DISK_FREED.because(host=host)
        case names.WAITING_NO_IMAGE:
            return Ends.IMAGE_CORRECTED.because()
        case names.WAITING_REFUSED:
            return Ends.REGISTRY_LOGIN.because(host=host)
        case names.WAITING_UNREACHABLE | names.WAITING_STALLED:
            return Ends.REGISTRY_ANSWERS.because(host=host)
        case _:
            return Ends.ATTEMPT_OF_AGENT.because()


def _waiting(pod: Pod) -> Waiting:
    """Why the first of its containers that waits does so; empty if none does."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = (each.state.waiting for each in statuses if each.state.waiting is not None)
    return next(waits, Waiting())


def _host(pod: Pod, context: Context) -> tuple[Step, ...]:
    name = pod.spec.node_name
    host = context.host(name) if name else None
    listed = context.cluster is not None and "nodes" not in context.cluster.refused
    if not name or (host is None and not listed) or (host is not None and host.tone != "bad"):
        return ()
    cause: Reason | None = None
    if host is None:
        what, since = What.HOST_GONE.because(), None
    else:
        what, since = What.HOST_DOWN.because(state=host.state), host.heartbeat_at
        cause = What.MESSAGE.because(text=host.reason) if host.reason else None
    numbers = {} if since is None else {"silent": round(context.at - since, 1)}
    return (
        Step(
            constraint=Constraint.HOST_AWAY,
            subject=f"host {name}",
            what=what,
            cause=cause,
            who="the Node and its lease",
            since=since,
            numbers=numbers,
            ends=Ends.AGENT_REPORTS.because(),
        ),
    )


def _condition(pod: Pod, type_: str) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == type_), None)
