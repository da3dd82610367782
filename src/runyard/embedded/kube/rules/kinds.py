"""Validates Nodes, Events, Leases, roles and RuntimeClasses, and changes of them."""

import json
from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.amounts import quantities
from runyard.embedded.kube.rules.grammar import (
    forbidden,
    invalid,
    invalid_value,
    is_ipv6,
    label,
    label_value,
    network,
    qualified,
    required,
    unsupported,
)
from runyard.embedded.kube.rules.placement import EFFECTS
from runyard.embedded.kube.status import Cause

_REPORTED = ("reportingInstance", "action", "reason")
_LONGEST, _LONGEST_MESSAGE = 128, 1024
_SUBJECTS = ("ServiceAccount", "User", "Group")


def node(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a Node."""
    causes: list[Cause] = []
    if old is None or obj.get("spec") is not old.get("spec"):
        causes += _taints((obj.get("spec") or {}).get("taints") or ())
        causes += _networks((obj.get("spec") or {}).get("podCIDRs") or [])
        causes += _fixed((old or {}).get("spec") or {}, obj.get("spec") or {})
    status = obj.get("status") or {}
    if old is None or status is not old.get("status"):
        for key in ("capacity", "allocatable"):
            causes += quantities(f"status.{key}.{{}}", status.get(key) or {})
    return causes


def _networks(found: list[str]) -> list[Cause]:
    field = "spec.podCIDRs"
    causes = [
        invalid(f"{field}[{index}]", given, why)
        for index, given in enumerate(found)
        if (why := network(given))
    ]
    if not causes and len({is_ipv6(given): None for given in found}) < len(found):
        why = "may specify no more than one CIDR for each IP family"
        causes.append(invalid_value(field, found, why))
    return causes


def _fixed(old: Object, new: Object) -> list[Cause]:
    """Validates immutable fields of a Node."""
    causes: list[Cause] = []
    networks = old.get("podCIDRs") or []
    if networks and networks != (new.get("podCIDRs") or []):
        why = 'node updates may not change podCIDR except from "" to valid'
        causes.append(forbidden("spec.podCIDRs", why))
    if old.get("providerID") and old["providerID"] != new.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden("spec.providerID", why))
    return causes


def _taints(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    seen: list[tuple[Any, Any]] = []
    for index, taint in enumerate(found):
        path = f"metadata.taints[{index}]"  # the field's name in a real server
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if why := qualified(key):
            causes.append(invalid(f"{path}.key", key, why))
        if why := label_value(taint.get("value", "")):
            causes.append(invalid(f"{path}.value", taint["value"], why))
        if not effect:
            causes.append(required(f"{path}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            message = f"Duplicate value: {json.dumps(taint)}: taints must be unique by key and effect pair"
            causes.append(Cause(path, message, "FieldValueDuplicate"))
        seen.append((key, effect))
    return causes


def event(obj: Object, old: Object | None) -> list[Cause]:
    """Validates an Event; one with an event time also needs its reporter."""
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    own = obj["metadata"].get("namespace", "")
    if involved != own and (involved or own != "default"):
        return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
    return _reported(obj) if old is None and obj.get("eventTime") else []


def _reported(obj: Object) -> list[Cause]:
    reporter = obj.get("reportingComponent", "")
    causes = [] if reporter else [required("reportingComponent")]
    if why := qualified(reporter):
        causes.append(invalid("reportingComponent", reporter, why))
    for key in _REPORTED:
        if not (given := obj.get(key, "")):
            causes.append(required(key))
        elif len(given) > _LONGEST:
            causes.append(invalid(key, "", f"can have at most {_LONGEST} characters"))
    if len(obj.get("message", "")) > _LONGEST_MESSAGE:
        why = f"can have at most {_LONGEST_MESSAGE} characters"
        causes.append(invalid("message", "", why))
    return causes


def lease(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a Lease."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        why = f"Invalid value: {duration}: must be greater than 0"
        causes.append(Cause("spec.leaseDurationSeconds", why))
    if transitions is not None and transitions < 0:
        why = f"Invalid value: {transitions}: must be greater than or equal to 0"
        causes.append(Cause("spec.leaseTransitions", why))
    return causes


def role(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a Role or a ClusterRole."""
    causes: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if paths := rule.get("nonResourceURLs"):
            if obj["kind"] == "Role":
                shown = json.dumps(paths, separators=(",", ":"))
                why = "namespaced rules cannot apply to non-resource URLs"
                causes.append(Cause(f"{path}.nonResourceURLs", f"Invalid value: {shown}: {why}"))
            elif rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid(f"{path}.nonResourceURLs", "", why))
            continue
        if not rule.get("apiGroups"):
            why = "resource rules must supply at least one api group"
            causes.append(required(f"{path}.apiGroups", why))
        if not rule.get("resources"):
            why = "resource rules must supply at least one resource"
            causes.append(required(f"{path}.resources", why))
    return causes


def role_binding(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a RoleBinding."""
    return _binding(obj, old, ("Role", "ClusterRole"))


def cluster_role_binding(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a ClusterRoleBinding."""
    return _binding(obj, old, ("ClusterRole",))


def _binding(obj: Object, old: Object | None, kinds: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    given = obj.get("roleRef") or {}
    if given.get("kind") not in kinds:
        causes.append(unsupported("roleRef.kind", str(given.get("kind", "")), kinds))
    if not given.get("name"):
        causes.append(required("roleRef.name"))
    if old is not None and given != old.get("roleRef"):
        named = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
        ref = {shown: given.get(key, "") for shown, key in named.items()}
        shown = json.dumps(ref, separators=(",", ":"))
        causes.append(Cause("roleRef", f"Invalid value: {shown}: cannot change roleRef"))
    for index, subject in enumerate(obj.get("subjects") or ()):
        path = f"subjects[{index}]"
        if not subject.get("name"):
            causes.append(required(f"{path}.name"))
        if (kind := subject.get("kind", "")) not in _SUBJECTS:
            causes.append(unsupported(f"{path}.kind", kind, _SUBJECTS))
        no_namespace = kind == "ServiceAccount" and not subject.get("namespace")
        if (
            no_namespace and obj["kind"] == "ClusterRoleBinding"
        ):  # elsewhere the namespace is the binding's
            causes.append(required(f"{path}.namespace"))
    return causes


def runtime_class(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a RuntimeClass."""
    handler = obj.get("handler", "")
    causes: list[Cause] = []
    if not handler:
        causes.append(required("handler"))
    elif why := label(handler):
        causes.append(invalid("handler", handler, why))
    if old is not None and handler != old.get("handler"):
        causes.append(invalid("handler", handler, "field is immutable"))
    return causes + quantities(
        "overhead.podFixed[{}]", (obj.get("overhead") or {}).get("podFixed") or {}
    )
