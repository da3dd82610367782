"""Renders the tables that `kubectl get` prints, which a client requests by its Accept header.

The columns are the ones that users know from a stock server. Columns of priority 1 are shown by `-o wide`
only. A row also has the object, or just its metadata, according to `includeObject`.

Fields that the server does not validate may have any shape, and events are encoded for watchers inside
another client's request, so nothing in here raises: unreadable values are shown as `<unknown>`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from runyard.embedded.kube.resources import PODS, Object, Resource
from runyard.embedded.kube.tables import cells, podcells
from runyard.embedded.kube.tables.cells import NONE, Cell, age, at, text

_GROUP = "meta.k8s.io"
_NEVER = "0001-01-01T00:00:00Z"


class Column(msgspec.Struct, frozen=True):
    """One column, as a Table describes it."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Form(msgspec.Struct, frozen=True):
    """The requested form of a table."""

    version: str
    include: str  # Metadata, Object or None


class Printer(msgspec.Struct, frozen=True):
    """The columns of a kind, and the cells of an object in them."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, float], list[Cell]]
    empty: tuple[()] | None = ()  # the cells of a table without rows


def table(
    resource: Resource,
    objects: list[Object],
    form: Form,
    meta: Object,
    *,
    now: float,
    columns: bool = True,
) -> Object:
    """A Table of these objects."""
    rules = resource.definition
    printer: Printer = _PRINTERS.get(resource.key, _ANY) if rules is None else rules.printer
    rows = [_row(resource, printer, obj, form, now) for obj in objects]
    found: Object = {
        "kind": "Table",
        "apiVersion": f"{_GROUP}/{form.version}",
        "metadata": meta,
        "columnDefinitions": msgspec.to_builtins(printer.columns) if columns else None,
        "rows": rows or printer.empty,
    }
    return found


def _row(resource: Resource, printer: Printer, obj: Object, form: Form, now: float) -> Object:
    row: Object = {"cells": printer.cells(obj, now)}
    if resource is PODS and (given := _ENDED.get(text(at(obj, "status", "phase")))):
        row["conditions"] = [given]
    return row | _included(obj, form)


def _ended(phase: str, given: str) -> Object:
    return {"type": "Completed", "status": "True", "reason": phase, "message": given}


# Marks finished Pods, for clients that hide them.
_ENDED = {
    "Succeeded": _ended("Succeeded", "The pod has completed successfully."),
    "Failed": _ended("Failed", "The pod failed."),
}


def _included(obj: Object, form: Form) -> Object:
    if form.include == "None":
        return {}
    if form.include == "Object":
        return {"object": obj}
    head = {"kind": "PartialObjectMetadata", "apiVersion": f"{_GROUP}/{form.version}"}
    return {"object": head | {"metadata": obj["metadata"]}}


# ---- the kinds


def _columns(*shown: str) -> tuple[Column, ...]:
    """Columns by their names; a plus in front: with `-o wide` only."""
    return tuple(
        Column(
            name=(plain := name.removeprefix("+")),
            format="name" if plain == "Name" else "",
            priority=int(name != plain),
        )
        for name in shown
    )


def _name(obj: Object) -> str:
    return text(at(obj, "metadata", "name"))


def _age_of(obj: Object, now: float) -> str:
    return age(at(obj, "metadata", "creationTimestamp"), now)


def _any(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), _age_of(obj, now)]


def _namespace(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), text(at(obj, "status", "phase")), _age_of(obj, now)]


def _lease(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), text(at(obj, "spec", "holderIdentity")), _age_of(obj, now)]


def _config_map(obj: Object, now: float) -> list[Cell]:
    both = cells.size(obj.get("data")) + cells.size(obj.get("binaryData"))
    return [_name(obj), both, _age_of(obj, now)]


def _secret(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), text(obj.get("type")), cells.size(obj.get("data")), _age_of(obj, now)]


def _created(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), text(at(obj, "metadata", "creationTimestamp"), _NEVER)]


def _runtime(obj: Object, now: float) -> list[Cell]:
    return [_name(obj), text(obj.get("handler")), _age_of(obj, now)]


def _binding(obj: Object, now: float) -> list[Cell]:
    kinds = ("User", "Group", "ServiceAccount")
    granted = [cells.subjects(obj, kind) for kind in kinds]
    return [_name(obj), cells.role(obj), _age_of(obj, now), *granted]


def _certificate(obj: Object, now: float) -> list[Cell]:
    return [
        _name(obj),
        _age_of(obj, now),
        text(at(obj, "spec", "signerName")),
        text(at(obj, "spec", "username")),
        cells.requested(obj),
        cells.decision(obj),
    ]


def _pod(obj: Object, now: float) -> list[Cell]:
    return [
        _name(obj),
        podcells.ready(obj),
        podcells.status(obj),
        podcells.restarts(obj, now),
        _age_of(obj, now),
        text(at(obj, "status", "podIP"), NONE),
        text(at(obj, "spec", "nodeName"), NONE),
        text(at(obj, "status", "nominatedNodeName"), NONE),
        podcells.gates(obj),
    ]


def _node(obj: Object, now: float) -> list[Cell]:
    info: Any = at(obj, "status", "nodeInfo")
    return [
        _name(obj),
        cells.node_status(obj),
        cells.node_roles(obj),
        _age_of(obj, now),
        text(at(info, "kubeletVersion")),
        cells.address(obj, "InternalIP"),
        cells.address(obj, "ExternalIP"),
        text(at(info, "osImage"), cells.UNKNOWN),
        cells.kernel(info),
        text(at(info, "containerRuntimeVersion"), cells.UNKNOWN),
    ]


def _event(obj: Object, now: float) -> list[Cell]:
    about: Any = obj.get("involvedObject")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = at(obj, "series", "lastObservedTime") or obj.get("lastTimestamp") or first
    return [
        age(last, now),
        text(obj.get("type")),
        text(obj.get("reason")),
        "/".join(filter(None, (text(at(about, "kind")).lower(), text(at(about, "name"))))),
        text(at(about, "fieldPath")),
        cells.event_source(obj),
        text(obj.get("message")).strip(),
        age(first, now),
        cells.count(at(obj, "series", "count") or obj.get("count") or 1),
        _name(obj),
    ]


_ANY = Printer(_columns("Name", "Age"), _any)
_CREATED = Printer((*_columns("Name"), Column("Created At", type="date")), _created, empty=None)
_BINDING = _columns("Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts")
_PRINTERS = {
    "namespaces": Printer(_columns("Name", "Status", "Age"), _namespace),
    "runtimeclasses": Printer(_columns("Name", "Handler", "Age"), _runtime),
    "roles": _CREATED,
    "clusterroles": _CREATED,
    "customresourcedefinitions": _CREATED,
    "rolebindings": Printer(_BINDING, _binding),
    "clusterrolebindings": Printer(_BINDING, _binding),
    "certificatesigningrequests": Printer(
        _columns("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"),
        _certificate,
    ),
    "leases": Printer(_columns("Name", "Holder", "Age"), _lease),
    "configmaps": Printer(_columns("Name", "Data", "Age"), _config_map),
    "secrets": Printer(_columns("Name", "Type", "Data", "Age"), _secret),
    "pods": Printer(
        _columns(
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "+IP",
            "+Node",
            "+Nominated Node",
            "+Readiness Gates",
        ),
        _pod,
    ),
    "nodes": Printer(
        _columns(
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    "events": Printer(
        _columns(
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "+Subobject",
            "+Source",
            "Message",
            "+First Seen",
            "+Count",
            "+Name",
        ),
        _event,
    ),
}
