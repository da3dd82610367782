"""Validates changes of an existing Pod: its spec and its status.

Of the spec only images, a shorter deadline, more tolerations and fewer gates may change. For a Pod with scheduling
gates the node selection may change too, if it only becomes narrower.
"""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules import podstatus
from runyard.embedded.kube.rules.grammar import forbidden, invalid, invalid_value, qualified
from runyard.embedded.kube.rules.placement import REQUIRED
from runyard.embedded.kube.status import Cause

_FIXED = "pod updates may change only images, activeDeadlineSeconds and (by additions) tolerations"
_GRACE = "terminationGracePeriodSeconds"
_ADDED = "only additions are allowed (no mutations or deletions)"
_TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def spec(new: Object, old: Object) -> list[Cause]:
    """Validates a change of the spec."""
    causes: list[Cause] = []
    for part in ("containers", "initContainers"):
        if len(new.get(part) or ()) != len(old.get(part) or ()):
            why = "pod updates may not add or remove containers"
            return [*causes, forbidden(f"spec.{part}", why)]
    causes += _toleration_changes(new.get("tolerations") or (), old.get("tolerations") or ())
    causes += _gate_changes(new.get("schedulingGates") or (), old.get("schedulingGates") or ())
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        why = "must be less than or equal to previous value"
        causes.append(invalid_value("spec.activeDeadlineSeconds", after, why))
    if old.get("schedulingGates"):
        causes += _check_narrower(new, old)
        new = _with_old_placement(new, old)
    if _fixed(new) != _fixed(old) and not _only_fixes_grace(new, old):
        causes.append(forbidden("spec", _FIXED))
    return causes


# ---- a Pod with scheduling gates


def _check_narrower(new: Object, old: Object) -> list[Cause]:
    """Node selection may only become narrower."""
    before, after = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    causes: list[Cause] = []
    if any(after.get(key) != value for key, value in before.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid_value("spec.nodeSelector", new.get("nodeSelector"), why))
    before_terms, after_terms = _terms(old), _terms(new)
    if not before_terms:
        return causes
    if len(before_terms) != len(after_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid_value(_TERMS, after_terms or None, why)]
    for index, (one, two) in enumerate(zip(before_terms, after_terms, strict=True)):
        if one != two and not _narrower(one, two):
            causes.append(invalid_value(f"{_TERMS}[{index}]", two, _ADDED))
    return causes


def _terms(spec: Object) -> list[Object]:
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found: list[Object] = (nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    return found


def _narrower(old: Object, new: Object) -> bool:
    """Whether a term only got more conditions; one without any never matches."""
    kept = [
        (old.get(part) or [], new.get(part) or []) for part in ("matchExpressions", "matchFields")
    ]
    was_not_empty = any(before for before, _ in kept)
    return was_not_empty and all(after[: len(before)] == before for before, after in kept)


def _with_old_placement(new: Object, old: Object) -> Object:
    """The new spec with the old node selection."""
    before, after = old.get("affinity"), new.get("affinity")
    made = {**new, "nodeSelector": old.get("nodeSelector")}
    if after and after.get("nodeAffinity") != (before or {}).get("nodeAffinity"):
        rest = {key: item for key, item in after.items() if key != "nodeAffinity"}
        own = (
            {"nodeAffinity": before["nodeAffinity"]} if before and "nodeAffinity" in before else {}
        )
        made["affinity"] = rest | own or before
    elif before and not after and not [key for key in before if key != "nodeAffinity"]:
        made["affinity"] = before
    return made


def _only_fixes_grace(new: Object, old: Object) -> bool:
    """The only allowed change of a grace period: from a negative one to a second."""
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


def _toleration_changes(new: Any, old: Any) -> list[Cause]:
    remaining = [_untimed(item) for item in new]
    if all(_untimed(item) in remaining for item in old):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", why)]


def _gate_changes(new: Any, old: Any) -> list[Cause]:
    why = "only deletion is allowed, but found new scheduling gate '{}'"
    return [
        forbidden(f"spec.schedulingGates[{index}].name", why.format(item.get("name", "")))
        for index, item in enumerate(new)
        if item not in old
    ]


def _untimed(toleration: Object) -> Object:
    return {key: item for key, item in toleration.items() if key != "tolerationSeconds"}


# ---- status


def status(new: Object, old: Object) -> list[Cause]:
    """Validates a change of the status."""
    before, after = old.get("status"), new.get("status")
    if before is after or not isinstance(after, dict):
        return []
    causes = [
        invalid(f"status.conditions[{index}].Type", str(item.get("type", "")), why)
        for index, item in enumerate(after.get("conditions") or ())
        if (why := qualified(item.get("type", "")))
    ]
    causes += podstatus.check(before or {}, after)
    return [*causes, *_check_stays_terminated(new, before or {}, after)]


def _check_stays_terminated(pod: Object, before: Object, after: Object) -> list[Cause]:
    """Refuses a late status that shows a terminated container as running, if containers are never restarted."""
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
