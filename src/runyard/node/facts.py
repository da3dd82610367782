"""Converts Pods into the plan's input, and the plan's reports into status patches.

Reading: a struct with the fields that only a node agent uses. Writing: the patch of a Pod's status. It changes no
field that other controllers own: their conditions are written back unchanged.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from runyard.http.addresses import is_loopback
from runyard.kube.objects import ContainerStatus, Meta, Resources
from runyard.node.plans.actions import Report
from runyard.node.plans.pod import PodFacts
from runyard.node.plans.poll_urls import PollUrls, url_for_guest, url_for_host
from runyard.node.plans.spec import EnvVar, UnsupportedSpec, cpu_milli, memory_mb, resolve_env
from runyard.node.plans.values import Phase, Record
from runyard.node.settings import Settings
from runyard.vm.contract import HostPolling, VmSpec
from runyard.wire import names
from runyard.wire.instants import from_rfc3339, to_rfc3339

DEFAULT_GRACE = 30
_OUR_CONDITIONS = ("Ready", "ContainersReady")


class _Read(msgspec.Struct, frozen=True, rename="camel"):
    pass


class HostContainer(_Read, frozen=True):
    """A container, with the fields that a VM is created from."""

    name: str = ""
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[Any, ...] = ()
    resources: Resources = Resources()


class HostToleration(_Read, frozen=True):
    """A toleration; one without a key tolerates every taint."""

    key: str = ""


class HostPodSpec(_Read, frozen=True):
    """The Pod's spec."""

    node_name: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    node_selector: dict[str, str] = {}
    tolerations: tuple[HostToleration, ...] = ()
    containers: tuple[HostContainer, ...] = ()
    init_containers: tuple[Any, ...] = ()
    ephemeral_containers: tuple[Any, ...] = ()


class HostPodStatus(_Read, frozen=True):
    """The Pod's status; conditions stay undecoded, because they are written back unchanged."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[dict[str, Any], ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class HostPod(_Read, frozen=True):
    """A Pod, with the fields that its node uses."""

    metadata: Meta
    spec: HostPodSpec = HostPodSpec()
    status: HostPodStatus = HostPodStatus()


def facts_of(pod: HostPod, settings: Settings, now: float) -> PodFacts:
    """Convert a Pod to the plan's input."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return PodFacts(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        image=spec.containers[0].image if spec.containers else "",
        pool=meta.labels.get(names.RUNNER_POOL, "unknown"),
        fits=_fits(spec),
        opted_in=_opted_in(pod, settings),
        finalizer=names.VM_FINALIZER in meta.finalizers,
        deleting=bool(meta.deletion_timestamp),
        grace=_grace_left(meta, settings, now),
        phase=status.phase,
        reason=status.reason,
        message=status.message,
        pod_ip=status.pod_ip,
        ready=any(
            c.get("type") == "Ready" and c.get("status") == "True" for c in status.conditions
        ),
        container=_container(status),
        progress_at=_instant(meta.annotations.get(names.START_PROGRESS_AT, "")),
    )


def _opted_in(pod: HostPod, settings: Settings) -> bool:
    """Whether the Pod is meant for VMs: a runner, or one that selects hosts of our kind and tolerates their taint.

    DaemonSets that tolerate everything name no taint, so they are never run as VMs.
    """
    if pod.metadata.labels.get(names.RUNNER) == "true":
        return True
    selects = pod.spec.node_selector.get(names.NODE_RUNTIME) == settings.runtime
    return selects and any(each.key == names.NODE_TAINT for each in pod.spec.tolerations)


def vm_spec(pod: HostPod, record: Record, settings: Settings, *, token: str) -> VmSpec:
    """The VM to create for a Pod; raises `UnsupportedSpec`."""
    container = pod.spec.containers[0]
    resources = {**container.resources.requests, **container.resources.limits}
    env, polling = _environment(pod), None
    if given := env.get(names.ENV_DISPATCH_URL, ""):  # it is a runner
        of_pool = pod.metadata.annotations.get(names.GUEST_DISPATCH_URL, "")
        urls = PollUrls(pod=given, pool=of_pool, host=settings.dispatch_url)
        found = _polling(pod, urls, settings)
        polling = found if isinstance(found, HostPolling) else None
        env[names.ENV_DISPATCH_URL] = found.url if isinstance(found, HostPolling) else found
    return VmSpec(
        name=record.vm,
        image=record.source,
        cpu_milli=cpu_milli(resources, settings.vm_cpu_milli),
        memory_mb=memory_mb(resources, settings.vm_memory_mb),
        env=tuple(env.items()),
        token=token,
        polling=polling,
    )


def _polling(pod: HostPod, urls: PollUrls, settings: Settings) -> HostPolling | str:
    """How this host polls for the guest, or the URL that the guest polls; raises `UnsupportedSpec`."""
    poller = pod.metadata.annotations.get(names.POLLER, settings.poller)
    if poller == names.POLLER_HOST:
        return HostPolling(
            url=url_for_host(urls),
            ca=settings.server_ca,
            runner=settings.runner_directory,
            archive=settings.runner_archive,
        )
    if poller != names.POLLER_GUEST:
        raise UnsupportedSpec(f"annotation {names.POLLER} is {poller!r}: use host or guest")
    in_vm = settings.runtime == names.NODE_RUNTIME_TART
    refused = in_vm and settings.refuse_loopback
    url = url_for_guest(urls, reaches=lambda url: not (refused and _is_loopback(url)))
    if url is None:
        raise UnsupportedSpec(
            f"the guest would poll {urls.pool or url_for_host(urls)}, which is the guest itself: give the pool the"
            f" annotation {names.GUEST_DISPATCH_URL} with a URL that reaches the server, or {names.POLLER}: host"
        )
    return url


def polls_itself(spec: VmSpec, settings: Settings) -> bool:
    """Whether the guest is a VM that polls loopback, which is the guest itself."""
    url = dict(spec.env).get(names.ENV_DISPATCH_URL, "")
    in_vm = settings.runtime == names.NODE_RUNTIME_TART
    return spec.polling is None and in_vm and _is_loopback(url)


def _is_loopback(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _environment(pod: HostPod) -> dict[str, str]:
    container = pod.spec.containers[0]
    return dict(resolve_env(container.env, _fields(pod)))


def status_patch(
    pod: HostPod, record: Record, report: Report, settings: Settings, now: float
) -> Any:
    """The merge patch of the status subresource."""
    status: dict[str, Any] = {
        "phase": report.phase,
        "reason": report.reason or None,
        "message": report.message or None,
        "hostIP": settings.node_ip or None,
        "startTime": to_rfc3339(record.recorded_at),
        "conditions": _conditions(pod, report, now),
        "containerStatuses": [_container_status(pod, record, report)],
    }
    if report.pod_ip:
        status["podIP"] = report.pod_ip
        status["podIPs"] = [{"ip": report.pod_ip}]
    return {"status": status}


def created_at(pod: HostPod) -> float | None:
    """Return when the Pod was created; None if it is not known."""
    return _instant(pod.metadata.creation_timestamp)


def _fits(spec: HostPodSpec) -> bool:
    return len(spec.containers) == 1 and not spec.init_containers and not spec.ephemeral_containers


def _grace_left(meta: Meta, settings: Settings, now: float) -> float:
    """The deletion timestamp is when the grace period ends, so it also counts down across a crash."""
    whole = meta.deletion_grace_period_seconds
    whole = DEFAULT_GRACE if whole is None else whole
    end = _instant(meta.deletion_timestamp)
    left = float(whole) if end is None else end - now
    return max(0.0, min(left, float(whole), settings.max_grace))


def _fields(pod: HostPod) -> Mapping[str, str]:
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": account_of(pod),
    }


def account_of(pod: HostPod) -> str:
    """The Pod's ServiceAccount."""
    return pod.spec.service_account_name or "default"


def _container(status: HostPodStatus) -> str:
    if not status.container_statuses:
        return ""
    state = status.container_statuses[0].state
    if state.terminated is not None:
        return "terminated"
    if state.running is not None:
        return "running"
    return "" if state.waiting is None else f"waiting:{state.waiting.reason}"


def _conditions(pod: HostPod, report: Report, now: float) -> list[dict[str, Any]]:
    old = {str(condition.get("type")): condition for condition in pod.status.conditions}
    status = "True" if report.ready else "False"
    for type_ in _OUR_CONDITIONS:
        before = old.get(type_, {})
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        old[type_] = {
            "type": type_,
            "status": status,
            "lastTransitionTime": since or to_rfc3339(now),
        }
        if report.outcome is not None and report.outcome.succeeded:
            old[type_]["reason"] = "PodCompleted"
    return list(old.values())


def _container_status(pod: HostPod, record: Record, report: Report) -> dict[str, Any]:
    """The container's status; which image and which VM it has is empty until that is known."""
    container = pod.spec.containers[0]
    exists = record.phase is not Phase.INTENDED
    return {
        "name": container.name,
        "image": record.image,
        "imageID": record.source if exists or record.pinned else "",
        "containerID": names.CONTAINER_ID_SCHEME + record.vm if exists else "",
        "restartCount": 0,
        "ready": report.ready,
        "started": report.ready,
        "state": _container_state(report),
    }


def _container_state(report: Report) -> dict[str, Any]:
    started = {} if report.started_at is None else {"startedAt": to_rfc3339(report.started_at)}
    outcome = report.outcome
    if outcome is not None:
        ended: dict[str, Any] = {
            "exitCode": outcome.exit_code,
            "reason": outcome.reason,
            "finishedAt": to_rfc3339(outcome.finished_at),
            **started,
        }
        if outcome.message:
            ended["message"] = outcome.message
        return {"terminated": ended}
    if report.ready:
        return {"running": started}
    return {"waiting": {"reason": report.waiting, "message": report.message}}


def _instant(text: str) -> float | None:
    try:
        return from_rfc3339(text)
    except ValueError:
        return None
