"""Validates where a Pod may run: selectors, affinity, spread and tolerations."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    invalid_value,
    label,
    label_value,
    labels,
    qualified,
    required,
    subdomain,
    unsupported,
)
from runyard.embedded.kube.status import Cause

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_TOLERATED = ("Equal", "Exists")
_SPREAD = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_VALUES_REQUIRED = "must be specified when `operator` is 'In' or 'NotIn'"
_VALUES_FORBIDDEN = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_NO_OPERATOR = "not a valid selector operator"


def check(spec: Object) -> list[Cause]:
    """Validates a Pod's placement."""
    causes = labels("spec.nodeSelector", spec.get("nodeSelector") or {})
    causes += _tolerations(spec.get("tolerations") or ())
    if affinity := spec.get("affinity"):
        causes += _affinity(affinity.get("nodeAffinity") or {})
        for key in ("podAffinity", "podAntiAffinity"):
            if given := affinity.get(key):
                causes += _pod_affinity(f"spec.affinity.{key}", given)
    return causes + _spread(spec.get("topologySpreadConstraints") or ())


def _tolerations(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(found):
        path = f"spec.tolerations[{index}]"
        key, operator = item.get("key", ""), item.get("operator", "") or "Equal"
        value, effect = item.get("value", ""), item.get("effect", "")
        if key and (why := qualified(key)):
            causes.append(invalid(f"{path}.key", key, why))
        if operator not in _TOLERATED:
            causes.append(unsupported(f"{path}.operator", operator, _TOLERATED))
        elif not key and operator == "Equal":
            why = "operator must be Exists when `key` is empty"
            causes.append(invalid(f"{path}.operator", operator, why))
        elif operator == "Exists" and value:
            why = "value must be empty when `operator` is 'Exists'"
            causes.append(invalid(f"{path}.operator", value, why))
        elif value and (why := label_value(value)):
            causes.append(invalid(f"{path}.operator", value, why))
        if effect and effect not in EFFECTS:
            causes.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if item.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{path}.effect", effect, why))
    return causes


# ---- nodes


def _affinity(given: Object) -> list[Cause]:
    causes: list[Cause] = []
    path = "spec.affinity.nodeAffinity"
    needed = given.get(REQUIRED)
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or ()
        if not terms:
            why = "must have at least one node selector term"
            causes.append(required(f"{path}.{REQUIRED}.nodeSelectorTerms", why))
        for index, term in enumerate(terms):
            causes += _term(f"{path}.{REQUIRED}.nodeSelectorTerms[{index}]", term)
    for index, item in enumerate(given.get(PREFERRED) or ()):
        here = f"{path}.{PREFERRED}[{index}]"
        causes += _weight(here, item)
        causes += _term(f"{here}.preference", item.get("preference") or {})
    return causes


def _weight(path: str, item: Object) -> list[Cause]:
    weight = item.get("weight", 0)
    return (
        []
        if 1 <= weight <= 100
        else [invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]
    )


def _term(path: str, term: Object) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(term.get("matchExpressions") or ()):
        causes += _expression(f"{path}.matchExpressions[{index}]", item)
    for index, item in enumerate(term.get("matchFields") or ()):
        causes += _field(f"{path}.matchFields[{index}]", item)
    return causes


def _expression(path: str, item: Object) -> list[Cause]:
    causes: list[Cause] = []
    operator, values = item.get("operator", ""), item.get("values") or ()
    if operator not in _OPERATORS:
        causes.append(invalid(f"{path}.operator", operator, _NO_OPERATOR))
    elif operator in ("In", "NotIn") and not values:
        causes.append(required(f"{path}.values", _VALUES_REQUIRED))
    elif operator in ("Exists", "DoesNotExist") and values:
        causes.append(forbidden(f"{path}.values", _VALUES_FORBIDDEN))
    elif operator in ("Gt", "Lt") and len(values) != 1:
        why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        causes.append(required(f"{path}.values", why))
    if why := qualified(item.get("key", "")):
        causes.append(invalid(f"{path}.key", item.get("key", ""), why))
    for index, value in enumerate(values):
        if why := label_value(value):
            causes.append(invalid(f"{path}.values[{index}]", value, why))
    return causes


def _field(path: str, item: Object) -> list[Cause]:
    """Validates a condition on a node's own fields: there is one, its name."""
    causes: list[Cause] = []
    key, values = item.get("key", ""), item.get("values") or ()
    operator = item.get("operator", "")
    if operator not in ("In", "NotIn"):
        causes.append(invalid(f"{path}.operator", operator, _NO_OPERATOR))
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{path}.values", why))
    if key != "metadata.name":
        return [*causes, invalid(f"{path}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        if why := subdomain(value):
            causes.append(invalid(f"{path}.values[{index}]", value, why))
    return causes


# ---- Pod affinity


def _pod_affinity(path: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    for index, term in enumerate(given.get(REQUIRED) or ()):
        causes += _pod_affinity_term(f"{path}.{REQUIRED}[{index}]", term)
    for index, item in enumerate(given.get(PREFERRED) or ()):
        here = f"{path}.{PREFERRED}[{index}]"
        causes += _weight(here, item)
        causes += _pod_affinity_term(f"{here}.podAffinityTerm", item.get("podAffinityTerm") or {})
    return causes


def _pod_affinity_term(path: str, term: Object) -> list[Cause]:
    causes: list[Cause] = []
    for key in ("labelSelector", "namespaceSelector"):
        causes += selector(f"{path}.{key}", term.get(key))
    for name in term.get("namespaces") or ():
        if why := label(name):
            causes.append(invalid(f"{path}.namespace", name, why))
    causes += _label_keys(path, term, ("matchLabelKeys", "mismatchLabelKeys"))
    mismatch = term.get("mismatchLabelKeys") or ()
    for index, key in enumerate(term.get("matchLabelKeys") or ()):
        if key in mismatch:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            causes.append(invalid(f"{path}.matchLabelKeys[{index}]", key, why))
    if not (key := term.get("topologyKey", "")):
        causes.append(required(f"{path}.topologyKey", "can not be empty"))
    if why := qualified(key):
        causes.append(invalid(f"{path}.topologyKey", key, why))
    return causes


def _label_keys(path: str, given: Object, parts: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    for part in parts:
        keys = given.get(part)
        if keys and given.get("labelSelector") is None:
            why = "must not be specified when labelSelector is not set"
            causes.append(forbidden(f"{path}.{part}", why))
            continue
        for index, key in enumerate(keys or ()):
            if why := qualified(key):
                causes.append(invalid(f"{path}.{part}[{index}]", key, why))
    return causes


def selector(path: str, given: Object | None) -> list[Cause]:
    """Validates a selector of labels."""
    if not given:
        return []
    causes = labels(f"{path}.matchLabels", given.get("matchLabels") or {})
    for index, item in enumerate(given.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = item.get("operator", ""), item.get("values") or ()
        if operator not in _OPERATORS[:4]:
            causes.append(invalid(f"{here}.operator", operator, _NO_OPERATOR))
        elif operator in ("In", "NotIn") and not values:
            causes.append(required(f"{here}.values", _VALUES_REQUIRED))
        elif operator in ("Exists", "DoesNotExist") and values:
            causes.append(forbidden(f"{here}.values", _VALUES_FORBIDDEN))
        if why := qualified(item.get("key", "")):
            causes.append(invalid(f"{here}.key", item.get("key", ""), why))
        for position, value in enumerate(values):
            if why := label_value(value):
                causes.append(invalid(f"{here}.values[{position}]", value, why))
    return causes


# ---- spread


def _spread(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(found):
        path = f"spec.topologySpreadConstraints[{index}]"
        if (skew := item.get("maxSkew", 0)) <= 0:
            causes.append(invalid_value(f"{path}.maxSkew", skew, "must be greater than zero"))
        if not (key := item.get("topologyKey")):
            causes.append(required(f"{path}.topologyKey", "can not be empty"))
        if (mode := item.get("whenUnsatisfiable", "")) not in _SPREAD:
            causes.append(unsupported(f"{path}.whenUnsatisfiable", mode, _SPREAD))
        later = found[index + 1 :]
        if any(
            (key, mode) == (each.get("topologyKey"), each.get("whenUnsatisfiable", ""))
            for each in later
        ):
            field = f"{path}.{{topologyKey, whenUnsatisfiable}}"
            causes.append(duplicate(field, f"{{{key}, {mode}}}"))
        causes += _min_domains(f"{path}.minDomains", item.get("minDomains"), mode)
        for part in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (policy := item.get(part)) is not None and policy not in _POLICIES:
                causes.append(unsupported(f"{path}.{part}", policy, _POLICIES))
        causes += _label_keys(path, item, ("matchLabelKeys",))
        causes += selector(f"{path}.labelSelector", item.get("labelSelector"))
    return causes


def _min_domains(field: str, given: int | None, mode: str) -> list[Cause]:
    if given is None:
        return []
    causes = [] if given > 0 else [invalid_value(field, given, "must be greater than zero")]
    if mode != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {mode}"
        causes.append(invalid_value(field, given, why))
    return causes
