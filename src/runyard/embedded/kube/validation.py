"""What an object must look like before it is stored.

First its shape (`shapes`), then names, labels and other grammar, then what may not change any more.
Every broken rule becomes a cause with the path of its field; all of them make one 422.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from runyard.embedded.kube import quantity, shapes
from runyard.embedded.kube.resources import NAMESPACES, PODS, RUNNER_POOLS, Object, Resource
from runyard.embedded.kube.status import Cause, invalid
from runyard.wire.runnerpool import PoolSpec

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DATA_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_AT = re.compile(r"^(?P<what>.*?) - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")
# What an existing Pod's spec may still change.
_POD_MUTABLE = ("tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
_ANNOTATION_BYTES = 256 * 1024


def check(resource: Resource, obj: Object, *, old: Object | None = None) -> None:
    """Raise a 422 unless the object may be stored (in place of `old`, if given)."""
    shape = _shape(resource, obj)
    causes = _names(resource, obj["metadata"], old) if old is None else []
    if old is None or old["metadata"] is not obj["metadata"]:
        causes += _metadata(shape.metadata)
    rule = _RULES.get(resource.plural)
    if rule is not None:
        causes += rule(shape, obj, old)
    if causes:
        raise invalid(resource, str(obj["metadata"]["name"]), causes)


def _shape(resource: Resource, obj: Object) -> shapes.Whole:
    try:
        return msgspec.convert(obj, shapes.SHAPES[resource.plural])
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        what, path = (match["what"], match["path"]) if match else (str(error), "")
        if missing := _MISSING.search(what):
            path = f"{path}.{missing[1]}".lstrip(".")
        meta = obj.get("metadata")
        name = meta.get("name", "") if isinstance(meta, dict) else ""
        raise invalid(resource, str(name), [Cause(path, what)]) from None


def name_cause(resource: Resource, name: str, field: str = "metadata.name") -> Cause | None:
    """What is wrong with a name, if anything."""
    if resource is NAMESPACES:
        if len(name) <= 63 and _LABEL.fullmatch(name):
            return None
        return Cause(field, f"{name[:64]!r} is not a lower-case DNS label of at most 63 characters")
    if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
        return None
    return Cause(field, f"{name[:64]!r} is not a lower-case DNS name of at most 253 characters")


def _names(resource: Resource, meta: dict[str, Any], old: Object | None) -> list[Cause]:
    cause = name_cause(resource, meta["name"])
    return [cause] if cause else []


def _metadata(meta: shapes.Meta) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in meta.labels.items():
        if not qualified(key):
            causes.append(Cause("metadata.labels", f"{key[:80]!r} is not a label key"))
        if not label_value(value):
            causes.append(Cause("metadata.labels", f"{value[:80]!r} is not a label value"))
    size = 0
    for key, value in meta.annotations.items():
        size += len(key) + len(value)
        if not qualified(key):
            causes.append(Cause("metadata.annotations", f"{key[:80]!r} is not an annotation key"))
    if size > _ANNOTATION_BYTES:
        causes.append(Cause("metadata.annotations", f"more than {_ANNOTATION_BYTES} bytes"))
    for item in meta.finalizers:
        if not qualified(item):
            causes.append(Cause("metadata.finalizers", f"{item[:80]!r} is not a finalizer name"))
    if sum(reference.controller for reference in meta.owner_references) > 1:
        causes.append(Cause("metadata.ownerReferences", "only one reference can be the controller"))
    return causes


@lru_cache(maxsize=8192)
def qualified(key: str) -> bool:
    """Whether that is `name` or `prefix/name`, as labels and finalizers want it."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None


@lru_cache(maxsize=8192)
def label_value(value: str) -> bool:
    """Whether that is a label's value."""
    return not value or (len(value) <= 63 and _QUALIFIED.fullmatch(value) is not None)


def _quantities(path: str, found: shapes.Quantities) -> list[Cause]:
    causes = []
    for key, value in found.items():
        try:
            if quantity.milli(value) < 0:
                causes.append(Cause(f"{path}.{key}", "must not be negative"))
        except ValueError as error:
            causes.append(Cause(f"{path}.{key}", str(error)))
    return causes


def _pod(shape: Any, obj: Object, old: Object | None) -> list[Cause]:
    pod: shapes.Pod = shape
    if old is not None:
        return [*_pod_unchanged(obj["spec"], old["spec"]), *_ends_stay(obj, old)]
    causes = _quantities("spec.overhead", pod.spec.overhead)
    seen: dict[str, None] = {}
    for part in ("containers", "init_containers"):
        containers: list[shapes.Container] = getattr(pod.spec, part)
        for index, container in enumerate(containers):
            path = f"spec.{'containers' if part == 'containers' else 'initContainers'}[{index}]"
            causes += _container(path, container)
            if container.name in seen:
                causes.append(Cause(f"{path}.name", "duplicate", "FieldValueDuplicate"))
            seen[container.name] = None
    return causes


def _container(path: str, container: shapes.Container) -> list[Cause]:
    causes = []
    if len(container.name) > 63 or not _LABEL.fullmatch(container.name):
        causes.append(Cause(f"{path}.name", "not a lower-case DNS label"))
    if not container.image:
        causes.append(Cause(f"{path}.image", "required", "FieldValueRequired"))
    resources = container.resources
    causes += _quantities(f"{path}.resources.requests", resources.requests)
    return causes + _quantities(f"{path}.resources.limits", resources.limits)


def _ends_stay(new: Object, old: Object) -> list[Cause]:
    """A container that is never restarted stays terminated: a status that arrives late must not revive it."""
    before, after = old.get("status"), new.get("status")
    if before is after or not before or new["spec"].get("restartPolicy") != "Never":
        return []
    running = [each.get("name") for each in _containers(after) if not _terminated(each)]
    return [
        Cause(f"status.containerStatuses[{index}].state", "may not leave the terminated state")
        for index, each in enumerate(_containers(before))
        if _terminated(each) and each.get("name") in running
    ]


def _containers(status: Any) -> list[dict[str, Any]]:
    found = status.get("containerStatuses") if isinstance(status, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _terminated(container: dict[str, Any]) -> bool:
    state = container.get("state")
    return isinstance(state, dict) and bool(state.get("terminated"))


def _pod_unchanged(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    if new is old or new == old:
        return []
    keys = dict.fromkeys((*old, *new))
    wrong = [
        key
        for key in keys
        if key not in _POD_MUTABLE
        and _imageless(key, new.get(key)) != _imageless(key, old.get(key))
    ]
    why = "a Pod's spec cannot change, except images, tolerations and deadlines"
    return [Cause(f"spec.{key}", why, "FieldValueForbidden") for key in wrong]


def _imageless(key: str, value: Any) -> Any:
    if key not in ("containers", "initContainers") or not isinstance(value, list):
        return value
    return [{name: part for name, part in item.items() if name != "image"} for item in value]


def _node(shape: Any, obj: Object, old: Object | None) -> list[Cause]:
    node: shapes.Node = shape
    if old is not None and old.get("status") is obj.get("status"):
        return []
    causes = _quantities("status.allocatable", node.status.allocatable)
    return causes + _quantities("status.capacity", node.status.capacity)


def _event(shape: Any, obj: Object, old: Object | None) -> list[Cause]:
    event: shapes.Event = shape
    about, own = event.involved_object.namespace, event.metadata.namespace
    if about and about != own:
        return [Cause("involvedObject.namespace", f"does not match metadata.namespace {own!r}")]
    return []


def _bag(shape: Any, obj: Object, old: Object | None) -> list[Cause]:
    bag: shapes.Bag = shape
    return [
        Cause(f"data[{key[:64]}]", "not a data key")
        for key in bag.data
        if len(key) > 253 or not _DATA_KEY.fullmatch(key)
    ]


def _pool(shape: Any, obj: Object, old: Object | None) -> list[Cause]:
    spec: PoolSpec = shape.spec
    numbers = {
        "replicas": spec.replicas,
        "podCPUMilli": spec.pod_cpu_milli,
        "podMemoryMB": spec.pod_memory_mb,
        "idleTimeoutSeconds": spec.idle_timeout_seconds,
        "provisioning.startTimeoutSeconds": spec.provisioning.start_timeout_seconds,
        "autoscaling.minWarmPoolFloor": spec.autoscaling.min_warm_pool_floor,
        "autoscaling.maxReplicas": spec.autoscaling.max_replicas,
        "autoscaling.scaleDownCooldownSeconds": spec.autoscaling.scale_down_cooldown_seconds,
    }
    causes = [
        Cause(f"spec.{path}", "must be between 0 and 2147483647")
        for path, value in numbers.items()
        if not 0 <= value < 2**31
    ]
    if spec.provisioning.max_concurrent_per_fleet_selector < 1:
        causes.append(
            Cause("spec.provisioning.maxConcurrentPerFleetSelector", "must be at least 1")
        )
    if not 1 <= spec.rollout.max_concurrent_percent <= 100:
        causes.append(Cause("spec.rollout.maxConcurrentPercent", "must be between 1 and 100"))
    return causes


_RULES: dict[str, Callable[[Any, Object, Object | None], list[Cause]]] = {
    PODS.plural: _pod,
    "nodes": _node,
    "events": _event,
    "secrets": _bag,
    "configmaps": _bag,
    RUNNER_POOLS.plural: _pool,
}
