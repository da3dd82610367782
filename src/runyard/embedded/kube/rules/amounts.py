"""Validates the resources of containers and Pods.

`cpu`, `memory` and `ephemeral-storage` can be fractions and can be overcommitted. Huge pages and extended resources
(with a domain in the name) cannot: they are integers, and the request must equal the limit.
"""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    missing,
    qualified,
    required,
    unsupported,
)
from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.status import Cause

_PLAIN = ("cpu", "memory", "ephemeral-storage")
_KNOWN = (*_PLAIN, "storage", "pods", "services", "secrets", "configmaps", "requests.cpu")
_PAGES = "hugepages-"
_NATIVE = "kubernetes.io/"
_RESERVED = "requests."
_OF_A_POD = ("cpu", "hugepages-", "memory")
_NEGATIVE = "must be greater than or equal to 0"


def quantities(field: str, found: dict[str, Any]) -> list[Cause]:
    """Validates amounts; the field is written with `{}` where the name of one goes."""
    causes = []
    for key, value in found.items():
        try:
            if quantity.milli(value) < 0:
                causes.append(invalid(field.format(key), str(value), _NEGATIVE))
        except ValueError as error:
            causes.append(invalid(field.format(key), str(value), str(error)))
    return causes


def overhead(path: str, given: Object) -> list[Cause]:
    """Validates the overhead of a Pod."""
    return _listed(f"{path}.limits", given)


def of_container(path: str, given: Object, claims: dict[str, None]) -> list[Cause]:
    """Validates the resources of a container."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    causes = _listed(f"{path}.limits", limits)
    causes += _listed(f"{path}.requests", requests)
    causes += _compared(path, requests, limits) + _pages(path, (limits, requests))
    if given.get("claims"):
        causes += _claims(f"{path}.claims", given["claims"], claims)
    return causes


def of_pod(path: str, given: Object, claims: dict[str, None]) -> list[Cause]:
    """Validates the resources of a Pod as a whole."""
    causes: list[Cause] = []
    for part in ("limits", "requests"):
        for key in given.get(part) or {}:
            if key not in ("cpu", "memory") and not key.startswith(_PAGES):
                causes.append(unsupported(f"{path}.{part}[{key}]", key, _OF_A_POD))
    if given.get("claims"):
        why = "claims may not be set for Resources at pod-level"
        causes += [
            forbidden(f"{path}.claims", why),
            *_claims(f"{path}.claims", given["claims"], claims),
        ]
    return causes or of_container(path, given, claims)


# ---- one amount


def _listed(field: str, found: Object) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in found.items():
        try:
            amount = quantity.milli(value)
        except ValueError as error:
            causes.append(invalid(f"{field}[{key}]", str(value), str(error)))
            continue
        if amount < 0:
            causes.append(invalid(f"{field}[{key}]", str(value), _NEGATIVE))
        if key not in _PLAIN:
            causes += _named(f"{field}[{key}]", key, value, amount)
    return causes


def _named(field: str, key: str, value: Any, amount: int) -> list[Cause]:
    """Validates an extended resource."""
    if why := qualified(key):
        return [invalid(field, key, why)]
    if key.startswith(_PAGES):
        return _page_multiple(field, key, value, amount)
    if "/" not in key:
        causes = [invalid(field, key, "must be a standard resource for containers")]
        if key not in _KNOWN:
            why = "must be a standard resource type or fully qualified"
            causes.insert(0, invalid(field, key, why))
        return causes
    if _native(key):
        return []
    if key.startswith(_RESERVED):
        return [invalid(field, key, "doesn't follow extended resource name standard")]
    return [invalid(field, str(value), "must be an integer")] if amount % 1000 else []


def _page_multiple(field: str, key: str, value: Any, amount: int) -> list[Cause]:
    try:
        size = quantity.milli(key.removeprefix(_PAGES))
    except ValueError:
        size = 0
    if size > 0 and amount % size == 0:
        return []
    why = f"{value} is not positive integer multiple of {key}"
    return [invalid(field, str(value), why)]


def _native(key: str) -> bool:
    return _NATIVE in key


def _no_overcommit(key: str) -> bool:
    """Whether a resource cannot be overcommitted."""
    return key.startswith(_PAGES) or ("/" in key and not _native(key))


# ---- amounts together


def _compared(path: str, requests: Object, limits: Object) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in requests.items():
        limit = limits.get(key)
        if limit is None:
            if _no_overcommit(key) and not qualified(key):
                why = "a limit must be set for a resource that cannot be overcommitted"
                causes.append(required(f"{path}.limits", why))
            continue
        try:
            wanted, limit_amount = quantity.milli(value), quantity.milli(limit)
        except ValueError:
            continue  # reported already
        if wanted != limit_amount and _no_overcommit(key):
            why = f"must be equal to {key} limit of {limit}"
            causes.append(invalid(f"{path}.requests", str(value), why))
        elif wanted > limit_amount:
            why = f"must be less than or equal to {key} limit of {limit}"
            causes.append(invalid(f"{path}.requests", str(value), why))
    return causes


def _pages(path: str, given: tuple[Object, ...]) -> list[Cause]:
    names = [key for part in given for key in part]
    paged = any(key.startswith(_PAGES) for key in names)
    if not paged or "cpu" in names or "memory" in names:
        return []
    return [forbidden(path, "HugePages require cpu or memory")]


def _claims(field: str, found: list[Object], known: dict[str, None]) -> list[Cause]:
    causes: list[Cause] = []
    seen: dict[str, str] = {}
    for index, claim in enumerate(found):
        here, name, request = f"{field}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            causes.append(required(here))
        elif name in seen and (not request or seen[name] in ("", request)):
            causes.append(duplicate(here, name))
        elif name not in known:
            among = f": {', '.join(known)}" if known else " which is empty"
            causes.append(
                missing(here, name, f"must be one of the names in pod.spec.resourceClaims{among}")
            )
        seen.setdefault(name, request)
    return causes
