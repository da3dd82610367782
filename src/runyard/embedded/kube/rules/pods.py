"""What a Pod must look like, and what of it may still change."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    label,
    labels,
    qualified,
    required,
    unsupported,
)
from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.status import Cause

_SOURCES = ("emptyDir", "hostPath", "secret", "downwardAPI", "configMap", "projected")
_RESTARTS = ("Always", "OnFailure", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SPREAD = ("DoNotSchedule", "ScheduleAnyway")
_LARGEST = 2**31 - 1
_FIXED = "pod updates may change only images, activeDeadlineSeconds and (by additions) tolerations"
_GRACE = "terminationGracePeriodSeconds"


def check(obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a Pod (which takes the place of `old`, if given)."""
    if old is None:
        return _spec(obj.get("spec") or {})
    causes = [] if obj["spec"] is old["spec"] else _changed(obj["spec"], old["spec"])
    return [*causes, *_status(obj, old)]


# ---- a new Pod


def _spec(spec: Object) -> list[Cause]:
    volumes, causes = _volumes(spec.get("volumes") or ())
    if not spec.get("containers"):
        causes.append(required("spec.containers"))
    seen: dict[str, None] = {}
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            causes += _container(f"spec.{part}[{index}]", container, volumes, seen)
    if (policy := spec.get("restartPolicy")) not in _RESTARTS:
        causes.append(unsupported("spec.restartPolicy", str(policy), _RESTARTS))
    causes += _deadline(spec)
    causes += labels("spec.nodeSelector", spec.get("nodeSelector") or {})
    causes += _tolerations(spec.get("tolerations") or ())
    causes += _affinity((spec.get("affinity") or {}).get("nodeAffinity") or {})
    causes += _spread(spec.get("topologySpreadConstraints") or ())
    return causes + quantities("spec.overhead[{}]", spec.get("overhead") or {})


def _deadline(spec: Object) -> list[Cause]:
    told = spec.get("activeDeadlineSeconds")
    if told is None or 1 <= told <= _LARGEST:
        return []
    why = f"Invalid value: {told}: must be between 1 and {_LARGEST}, inclusive"
    return [Cause("spec.activeDeadlineSeconds", why)]


def _volumes(found: Any) -> tuple[dict[str, None], list[Cause]]:
    names: dict[str, None] = {}
    causes: list[Cause] = []
    for index, volume in enumerate(found):
        name, field = volume.get("name", ""), f"spec.volumes[{index}].name"
        if not name:
            causes.append(required(field))
        elif why := label(name):
            causes.append(invalid(field, name, why))
        elif name in names:
            causes.append(duplicate(field, name))
        told = [key for key in _SOURCES if volume.get(key) is not None]
        for key in told[1:]:
            why = "may not specify more than 1 volume type"
            causes.append(forbidden(f"spec.volumes[{index}].{key}", why))
        if len(told) <= 1:
            names[name] = None
    return names, causes


def _container(
    path: str, container: Object, volumes: dict[str, None], seen: dict[str, None]
) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif why := label(name):
        causes.append(invalid(f"{path}.name", name, why))
    elif name in seen:
        causes.append(duplicate(f"{path}.name", name))
    seen[name] = None
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    causes += _ports(f"{path}.ports", container.get("ports") or ())
    for index, item in enumerate(container.get("env") or ()):
        if not item.get("name"):
            causes.append(required(f"{path}.env[{index}].name"))
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or (), volumes)
    return causes + _resources(f"{path}.resources", container.get("resources") or {})


def _ports(path: str, found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, port in enumerate(found):
        for key in ("containerPort", "hostPort"):
            number = port.get(key, 0)
            if number == 0 and key == "containerPort":
                causes.append(required(f"{path}[{index}].{key}"))
            elif not 0 <= number <= 65535:
                why = f"Invalid value: {number}: must be between 1 and 65535, inclusive"
                causes.append(Cause(f"{path}[{index}].{key}", why))
        if (protocol := port.get("protocol", "TCP")) not in _PROTOCOLS:
            causes.append(unsupported(f"{path}[{index}].protocol", protocol, _PROTOCOLS))
    return causes


def _mounts(path: str, found: Any, volumes: dict[str, None]) -> list[Cause]:
    causes: list[Cause] = []
    for index, mount in enumerate(found):
        name = mount.get("name", "")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif name not in volumes:
            told = f'Not found: "{name}"'
            causes.append(Cause(f"{path}[{index}].name", told, "FieldValueNotFound"))
        if not mount.get("mountPath"):
            causes.append(required(f"{path}[{index}].mountPath"))
    return causes


def quantities(field: str, found: dict[str, Any]) -> list[Cause]:
    """What is wrong with amounts; the field is written with `{}` where the name of one goes."""
    causes = []
    for key, value in found.items():
        try:
            if quantity.milli(value) < 0:
                why = "must be greater than or equal to 0"
                causes.append(invalid(field.format(key), str(value), why))
        except ValueError as error:
            causes.append(invalid(field.format(key), str(value), str(error)))
    return causes


def _resources(path: str, told: Object) -> list[Cause]:
    requests, limits = told.get("requests") or {}, told.get("limits") or {}
    causes = quantities(f"{path}.limits[{{}}]", limits)
    causes += quantities(f"{path}.requests[{{}}]", requests)
    if causes:
        return causes
    for key, value in requests.items():
        limit = limits.get(key)
        if limit is not None and quantity.milli(value) > quantity.milli(limit):
            why = f"must be less than or equal to {key} limit of {limit}"
            causes.append(invalid(f"{path}.requests", str(value), why))
    return causes


# ---- where it may run


def _tolerations(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(found):
        path = f"spec.tolerations[{index}]"
        key, operator = item.get("key", ""), item.get("operator", "") or "Equal"
        value, effect = item.get("value", ""), item.get("effect", "")
        if key and (why := qualified(key)):
            causes.append(invalid(f"{path}.key", key, why))
        if operator not in ("Equal", "Exists"):
            causes.append(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
        elif not key and operator == "Equal":
            why = "operator must be Exists when `key` is empty"
            causes.append(invalid(f"{path}.operator", operator, why))
        elif operator == "Exists" and value:
            why = "value must be empty when `operator` is 'Exists'"
            causes.append(invalid(f"{path}.operator", value, why))
        if effect and effect not in EFFECTS:
            causes.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if item.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{path}.effect", effect, why))
    return causes


def _affinity(told: Object) -> list[Cause]:
    causes: list[Cause] = []
    path = "spec.affinity.nodeAffinity"
    needed = told.get(_REQUIRED)
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or ()
        if not terms:
            why = "must have at least one node selector term"
            causes.append(required(f"{path}.{_REQUIRED}.nodeSelectorTerms", why))
        for index, term in enumerate(terms):
            causes += _term(f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", term)
    for index, item in enumerate(told.get(_PREFERRED) or ()):
        here, weight = f"{path}.{_PREFERRED}[{index}]", item.get("weight", 0)
        if not 1 <= weight <= 100:
            why = f"Invalid value: {weight}: must be in the range 1-100"
            causes.append(Cause(f"{here}.weight", why))
        causes += _term(f"{here}.preference", item.get("preference") or {})
    return causes


def _term(path: str, term: Object) -> list[Cause]:
    causes: list[Cause] = []
    for part in ("matchExpressions", "matchFields"):
        for index, item in enumerate(term.get(part) or ()):
            here = f"{path}.{part}[{index}]"
            operator, values = item.get("operator", ""), item.get("values") or ()
            if operator not in _OPERATORS:
                causes.append(
                    invalid(f"{here}.operator", operator, "not a valid selector operator")
                )
            elif operator in ("In", "NotIn") and not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                causes.append(required(f"{here}.values", why))
            elif operator in ("Exists", "DoesNotExist") and values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(forbidden(f"{here}.values", why))
            elif operator in ("Gt", "Lt") and len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                causes.append(required(f"{here}.values", why))
            if part == "matchExpressions" and (why := qualified(item.get("key", ""))):
                causes.append(invalid(f"{here}.key", item.get("key", ""), why))
    return causes


def _spread(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(found):
        path = f"spec.topologySpreadConstraints[{index}]"
        if (skew := item.get("maxSkew", 0)) <= 0:
            causes.append(
                Cause(f"{path}.maxSkew", f"Invalid value: {skew}: must be greater than zero")
            )
        if not item.get("topologyKey"):
            causes.append(required(f"{path}.topologyKey", "can not be empty"))
        if (mode := item.get("whenUnsatisfiable", "")) not in _SPREAD:
            causes.append(unsupported(f"{path}.whenUnsatisfiable", mode, _SPREAD))
    return causes


# ---- a Pod that is there


def _changed(new: Object, old: Object) -> list[Cause]:
    causes = _spec(new)
    for part in ("containers", "initContainers"):
        if len(new.get(part) or ()) != len(old.get(part) or ()):
            why = "pod updates may not add or remove containers"
            return [*causes, forbidden(f"spec.{part}", why)]
    causes += _later_tolerations(new.get("tolerations") or (), old.get("tolerations") or ())
    causes += _later_gates(new.get("schedulingGates") or (), old.get("schedulingGates") or ())
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        why = "must be less than or equal to previous value"
        causes.append(Cause("spec.activeDeadlineSeconds", f"Invalid value: {after}: {why}"))
    if _fixed(new) != _fixed(old) and not _shorter(new, old):
        causes.append(forbidden("spec", _FIXED))
    return causes


def _shorter(new: Object, old: Object) -> bool:
    """The one change of a grace period there is: from a negative one to a second."""
    if new.get(_GRACE) != 1 or old.get(_GRACE, 0) >= 0:
        return False
    return _fixed({**new, _GRACE: 0}) == _fixed({**old, _GRACE: 0})


def _fixed(spec: Object) -> Object:
    kept = {key: item for key, item in spec.items() if item is not None}
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        kept.pop(key, None)
    for key in ("containers", "initContainers"):
        if isinstance(kept.get(key), list):
            kept[key] = [{**item, "image": ""} for item in kept[key]]
    return kept


def _later_tolerations(new: Any, old: Any) -> list[Cause]:
    lasting = [_untimed(item) for item in new]
    if all(_untimed(item) in lasting for item in old):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", why)]


def _later_gates(new: Any, old: Any) -> list[Cause]:
    why = "only deletion is allowed, but found new scheduling gate '{}'"
    return [
        forbidden(f"spec.schedulingGates[{index}].name", why.format(item.get("name", "")))
        for index, item in enumerate(new)
        if item not in old
    ]


def _untimed(toleration: Object) -> Object:
    return {key: item for key, item in toleration.items() if key != "tolerationSeconds"}


def _status(new: Object, old: Object) -> list[Cause]:
    before, after = old.get("status"), new.get("status")
    if before is after or not isinstance(after, dict):
        return []
    causes = [
        invalid(f"status.conditions[{index}].Type", str(item.get("type", "")), why)
        for index, item in enumerate(after.get("conditions") or ())
        if (why := qualified(item.get("type", "")))
    ]
    return [*causes, *_ends_stay(new, before or {}, after)]


def _ends_stay(pod: Object, before: Object, after: Object) -> list[Cause]:
    """A container that is never restarted stays terminated: a status that arrives late must not revive it."""
    if pod["spec"].get("restartPolicy") != "Never":
        return []
    running = [each.get("name") for each in _containers(after) if not _terminated(each)]
    return [
        forbidden(
            f"status.containerStatuses[{index}].state",
            "may not be transitioned to non-terminated state",
        )
        for index, each in enumerate(_containers(before))
        if _terminated(each) and each.get("name") in running
    ]


def _containers(status: Object) -> list[Object]:
    found = status.get("containerStatuses")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _terminated(container: Object) -> bool:
    state = container.get("state")
    return isinstance(state, dict) and bool(state.get("terminated"))
