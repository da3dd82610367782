"""Validates environment variables of containers, and fields of a Pod in variables and files."""

import re
from collections.abc import Callable

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    data_key,
    invalid,
    qualified,
    required,
    subdomain,
    unsupported,
)
from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.status import Cause

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NAME = "a name of a variable has printable ASCII characters other than '='"
_SUBSCRIPT = re.compile(r"(?P<path>.*?)\['(?P<key>.*)'\]")
_SUBSCRIPTED = ("metadata.annotations", "metadata.labels")
_IN_VARIABLES = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_IN_FILES = (*_SUBSCRIPTED, "metadata.name", "metadata.namespace", "metadata.uid")
_SELECTABLE = (*_IN_VARIABLES, *_SUBSCRIPTED, "spec.restartPolicy", "spec.schedulerName")
_READABLE = dict.fromkeys((*_SELECTABLE, "status.phase"))
_OLD_NAMES = {"spec.host": "spec.nodeName"}
_RESOURCES = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_PAGES = ("limits.hugepages-", "requests.hugepages-")
_UNITS = ("1", *(f"1{unit}" for unit in ("k", "M", "G", "T", "P", "E")))
_BINARY = tuple(f"1{unit}i" for unit in ("K", "M", "G", "T", "P", "E"))
_DIVISORS = {"cpu": ("1m", "1")}


def printable(name: str) -> bool:
    """Whether a variable can have that name."""
    return name.isascii() and name.isprintable() and "=" not in name


def variables(path: str, found: list[Object]) -> list[Cause]:
    """Validates the variables of a container."""
    causes: list[Cause] = []
    for index, item in enumerate(found):
        name = item.get("name", "")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif not printable(name):
            causes.append(invalid(f"{path}[{index}].name", name, _NAME))
        if (source := item.get("valueFrom")) is not None:
            causes += _source(f"{path}[{index}].valueFrom", source, item.get("value", ""))
    return causes


def env_from(path: str, found: list[Object]) -> list[Cause]:
    """Validates `envFrom`: ConfigMaps and Secrets whose keys all become variables."""
    causes: list[Cause] = []
    for index, item in enumerate(found):
        prefix = item.get("prefix", "")
        if prefix and not printable(prefix):
            causes.append(invalid(f"{path}[{index}].prefix", prefix, _NAME))
        given = [key for key in ("configMapRef", "secretRef") if item.get(key) is not None]
        if not given:
            why = "must specify one of: `configMapRef` or `secretRef`"
            causes.append(invalid(path, "", why))
        elif len(given) > 1:
            why = "may not have more than one field specified at a time"
            causes.append(invalid(path, "", why))
        for key in given:
            field, name = f"{path}[{index}].{key}.name", item[key].get("name", "")
            if not name:
                causes.append(required(field))
            elif why := subdomain(name):
                causes.append(invalid(field, name, why))
    return causes


def _source(path: str, given: Object, value: str) -> list[Cause]:
    found = [key for key in _SOURCES if given.get(key) is not None]
    causes: list[Cause] = []
    for key in found:
        causes += _CHECKS[key](f"{path}.{key}", given[key])
    if not found:
        shown = ", ".join(f"`{key}`" for key in _SOURCES[:-1])
        causes.append(invalid(path, "", f"must specify one of: {shown} or `{_SOURCES[-1]}`"))
    elif value:
        causes.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(found) > 1:
        why = "may not have more than one field specified at a time"
        causes.append(invalid(path, "", why))
    return causes


def _key(path: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    if why := subdomain(given.get("name", "")):
        causes.append(invalid(f"{path}.name", given.get("name", ""), why))
    if not (key := given.get("key", "")):
        causes.append(required(f"{path}.key"))
    elif why := data_key(key):
        causes.append(invalid(f"{path}.key", key, why))
    return causes


# ---- fields of a Pod


def field_in_variable(path: str, given: Object) -> list[Cause]:
    """Validates a field of the Pod that a variable shows."""
    return _field(path, given, _IN_VARIABLES)


def field_in_file(path: str, given: Object) -> list[Cause]:
    """Validates a field of the Pod that a file shows."""
    return _field(path, given, _IN_FILES)


def _field(path: str, given: Object, among: tuple[str, ...]) -> list[Cause]:
    wanted, field = given.get("fieldPath", ""), f"{path}.fieldPath"
    if not given.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    if not wanted:
        return [required(field)]
    failed = "error converting fieldPath: "
    if given["apiVersion"] != "v1":
        return [invalid(field, wanted, f"{failed}unsupported pod version: {given['apiVersion']}")]
    match = _SUBSCRIPT.fullmatch(wanted)
    if match is not None and match["path"] in _SUBSCRIPTED:
        key = str(match["key"])
        key = key if match["path"] == "metadata.labels" else key.lower()
        return [invalid(path, key, why)] if (why := qualified(key)) else []
    if match is not None:
        why = "does not support subscript" if match["path"] in _READABLE else "not supported"
        return [invalid(field, wanted, f"{failed}field label {why}: {wanted}")]
    wanted = _OLD_NAMES.get(wanted) or wanted
    if wanted not in _READABLE:
        return [invalid(field, wanted, f"{failed}field label not supported: {wanted}")]
    return [] if wanted in among else [unsupported(field, wanted, among)]


def resource(path: str, given: Object, *, named: bool = False) -> list[Cause]:
    """Validates an amount of a container that is shown; in a file the container is `named`."""
    wanted = given.get("resource", "")
    if named and not given.get("containerName"):
        return [required(f"{path}.containerName")]
    if not wanted:
        return [required(f"{path}.resource")]
    paged = wanted.startswith(_PAGES)
    if wanted not in _RESOURCES and not paged:
        return [unsupported(f"{path}.resource", wanted, _RESOURCES)]
    return _divisor(f"{path}.divisor", wanted, given.get("divisor"))


def _divisor(field: str, wanted: str, given: str | float | None) -> list[Cause]:
    kind = wanted.partition(".")[2]
    allowed = _DIVISORS.get(kind, (*_UNITS, *_BINARY))
    try:
        amount = quantity.milli(given) if given is not None else 0
    except ValueError as error:
        return [invalid(field, str(given), str(error))]
    if not amount or any(amount == quantity.milli(each) for each in allowed):
        return []
    why = f"only divisor's values {', '.join(allowed)} are supported with the {kind} resource"
    return [invalid(field, wanted, why)]


def _no_check(path: str, given: Object) -> list[Cause]:
    return []


_CHECKS: dict[str, Callable[[str, Object], list[Cause]]] = {
    "fieldRef": field_in_variable,
    "resourceFieldRef": resource,
    "configMapKeyRef": _key,
    "secretKeyRef": _key,
    "fileKeyRef": _no_check,
}
