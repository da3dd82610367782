"""The scale of a custom resource: its count, seen and set without knowing the kind."""

from typing import Any

import msgspec

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import Cause, bad_request, failed

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a kind keeps its counts, as dotted paths."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


def scale_of(told: ScaleSpec, obj: Object) -> Object:
    """The Scale of an object."""
    meta = obj["metadata"]
    status: Object = {"replicas": _number(_at(obj, told.status_replicas_path))}
    selector = _at(obj, told.label_selector_path) if told.label_selector_path else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    spec: Object = {}
    if count := _number(_at(obj, told.spec_replicas_path)):
        spec["replicas"] = count
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _META if key in meta},
        "spec": spec,
        "status": status,
    }


def counted(told: ScaleSpec, obj: Object) -> Object:
    """The Scale of an object for a reader; raises a 500 if the object has no count."""
    if _at(obj, told.spec_replicas_path) is None:
        raise failed(f'the spec replicas field "{told.spec_replicas_path}" does not exist')
    return scale_of(told, obj)


def scaled(told: ScaleSpec, obj: Object, scale: Any) -> Object:
    """The object with the count that a Scale asks for."""
    spec = scale.get("spec", {}) if isinstance(scale, dict) else None
    count = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not -(2**31) <= count < 2**31:
        raise bad_request("spec.replicas of a Scale must be a number")
    return _put(obj, told.spec_replicas_path.strip(".").split("."), count)


def check(told: ScaleSpec, obj: Object) -> list[Cause]:
    """What is wrong with the counts of an object, the wanted and the observed one."""
    return [*_count(told.spec_replicas_path, obj), *_count(told.status_replicas_path, obj)]


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
