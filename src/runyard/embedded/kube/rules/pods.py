"""Validates a Pod.

The Pod's own fields are validated here; volumes, containers, placement and security in the modules of those names,
and changes in `changes`. Absent fields cost nothing.
"""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules import (
    amounts,
    changes,
    containers,
    hosts,
    placement,
    security,
    volumes,
)
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    invalid_value,
    label,
    qualified,
    required,
    subdomain,
    unsupported,
)
from runyard.embedded.kube.status import Cause

_RESTARTS = ("Always", "OnFailure", "Never")
_LARGEST = 2**31 - 1
_CLAIMED = ("resourceClaimName", "resourceClaimTemplateName")


def check(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a Pod (which takes the place of `old`, if given)."""
    if old is None:
        spec = obj.get("spec") or {}
        causes = _spec(spec)
        return [*causes, *_on_create(spec)]
    same = obj["spec"] is old["spec"]
    causes = [] if same else [*_spec(obj["spec"]), *changes.spec(obj["spec"], old["spec"])]
    return [*causes, *changes.status(obj, old)]


def _on_create(spec: Object) -> list[Cause]:
    """Refuses fields that a new Pod may not have."""
    causes: list[Cause] = []
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        causes.append(forbidden("spec.nodeName", why))
    return causes


def _spec(spec: Object) -> list[Cause]:
    mountable, causes = volumes.check(spec.get("volumes") or ())
    claims: dict[str, None] = {}
    if spec.get("resourceClaims"):
        causes += _claims(spec["resourceClaims"], claims)
    causes += containers.check(spec, mountable, claims)
    if (policy := spec.get("restartPolicy")) not in _RESTARTS:
        causes.append(unsupported("spec.restartPolicy", str(policy), _RESTARTS))
    causes += _deadline(spec)
    causes += placement.check(spec)
    causes += hosts.check(spec)
    causes += security.check(spec)
    if spec.get("readinessGates"):
        causes += _readiness(spec["readinessGates"])
    if spec.get("schedulingGates"):
        causes += _gates(spec["schedulingGates"])
    if spec.get("resources"):
        causes += amounts.of_pod("spec.resources", spec["resources"], claims)
    return causes + amounts.overhead("spec.overhead", spec.get("overhead") or {})


def _deadline(spec: Object) -> list[Cause]:
    given = spec.get("activeDeadlineSeconds")
    if given is None or 1 <= given <= _LARGEST:
        return []
    why = f"must be between 1 and {_LARGEST}, inclusive"
    return [invalid_value("spec.activeDeadlineSeconds", given, why)]


def _readiness(found: Any) -> list[Cause]:
    return [
        invalid(f"spec.readinessGates[{index}].conditionType", item.get("conditionType", ""), why)
        for index, item in enumerate(found)
        if (why := qualified(item.get("conditionType", "")))
    ]


def _gates(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    seen: dict[str, None] = {}
    for index, item in enumerate(found):
        field, name = f"spec.schedulingGates[{index}]", item.get("name", "")
        if why := qualified(name):
            causes.append(invalid(field, name, why))
        if name in seen:
            causes.append(duplicate(field, name))
        seen[name] = None
    return causes


def _claims(found: Any, known: dict[str, None]) -> list[Cause]:
    causes: list[Cause] = []
    for index, claim in enumerate(found):
        path, name = f"spec.resourceClaims[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{path}.name"))
        elif name in known:
            causes.append(duplicate(f"{path}.name", name))
        elif why := label(name):
            causes.append(invalid(f"{path}.name", name, why))
        known[name] = None
        given = [key for key in _CLAIMED if claim.get(key) is not None]
        if len(given) != 1:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid_value(path, claim, why))
            continue
        if why := subdomain(claim[given[0]]):
            causes.append(invalid(f"{path}.{given[0]}", claim[given[0]], why))
    return causes
