"""The scale subresource of a custom resource: reads and sets its replicas at the paths of its definition."""

from typing import Any

import msgspec

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import Cause, bad_request, failed

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The paths of a kind's replicas."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


def scale_of(given: ScaleSpec, obj: Object) -> Object:
    """The Scale of an object."""
    meta = obj["metadata"]
    status: Object = {"replicas": _number(_at(obj, given.status_replicas_path))}
    selector = _at(obj, given.label_selector_path) if given.label_selector_path else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    spec: Object = {}
    if count := _number(_at(obj, given.spec_replicas_path)):
        spec["replicas"] = count
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _META if key in meta},
        "spec": spec,
        "status": status,
    }


def existing_scale(given: ScaleSpec, obj: Object) -> Object:
    """The Scale of an object for a client; raises a 500 if the object has no replicas."""
    if _at(obj, given.spec_replicas_path) is None:
        raise failed(f'the spec replicas field "{given.spec_replicas_path}" does not exist')
    return scale_of(given, obj)


def scaled(given: ScaleSpec, obj: Object, scale: Any) -> Object:
    """The object with the replicas of a Scale."""
    spec = scale.get("spec", {}) if isinstance(scale, dict) else None
    count = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not -(2**31) <= count < 2**31:
        raise bad_request("spec.replicas of a Scale must be a number")
    return _put(obj, given.spec_replicas_path.strip(".").split("."), count)


def check(given: ScaleSpec, obj: Object) -> list[Cause]:
    """Validates the replicas of an object, wanted and observed."""
    return [*_count(given.spec_replicas_path, obj), *_count(given.status_replicas_path, obj)]


def _count(path: str, obj: Object) -> list[Cause]:
    value: Any = obj
    for step in path.strip(".").split("."):
        if not isinstance(value, dict):
            return [_unreadable(path, value, "map[string]interface{}")]
        if step not in value:
            return []
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, int):
        return [_unreadable(path, value, "int64")]
    if value < 0:
        return [Cause(path, f"Invalid value: {value}: should be a non-negative integer")]
    return []


def _unreadable(path: str, value: Any, wanted: str) -> Cause:
    kinds = {str: "string", bool: "bool", float: "float64", int: "int64", list: "[]interface {}"}
    found = kinds.get(type(value), "map[string]interface {}" if value is not None else "<nil>")
    shown = msgspec.json.encode(value).decode() if not isinstance(value, str) else value
    shown = "<nil>" if value is None else shown
    why = f"{path} accessor error: {shown} is of the type {found}, expected {wanted}"
    return Cause(path, f"Invalid value: 0: {why}")


def _at(obj: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _put(obj: Any, steps: list[str], value: int) -> Object:
    base: Object = obj if isinstance(obj, dict) else {}
    step, *rest = steps
    return {**base, step: _put(base.get(step), rest, value) if rest else value}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
