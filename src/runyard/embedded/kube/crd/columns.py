"""Renders the printer columns of a definition, and the cells of its objects."""

import json
from typing import Any

import msgspec

from runyard.embedded.kube.crd import jsonpath
from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.tables.cells import Cell, age
from runyard.embedded.kube.tables.tables import Column, Printer

_AGE = Column("Age", type="date", priority=0)


class ColumnSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One column, as a definition describes it."""

    name: str
    type: str
    json_path: str = msgspec.field(name="jsonPath")
    format: str = ""
    description: str = ""
    priority: int = 0


_CREATED = ColumnSpec("Age", "date", ".metadata.creationTimestamp")


def printer(given: tuple[ColumnSpec, ...]) -> Printer:
    """How objects of a definition are shown; by name and age if it defines no columns."""
    columns = given or (_CREATED,)
    paths = tuple((item.type, jsonpath.parse(item.json_path)) for item in columns)

    def cells(obj: Object, now: float) -> list[Cell]:
        return [
            obj["metadata"].get("name", ""),
            *(_cell(kind, path, obj, now) for kind, path in paths),
        ]

    head = Column("Name", format="name")
    rest = (
        Column(
            item.name,
            type=item.type,
            format=item.format,
            description=item.description,
            priority=item.priority,
        )
        for item in columns
    )
    return Printer((head, *rest), cells)


def _cell(kind: str, path: jsonpath.Path, obj: Object, now: float) -> Cell:
    found = jsonpath.find(path, obj)
    return _shown(kind, found[0], now) if found else None


def _shown(kind: str, value: Any, now: float) -> Cell:
    if kind == "string":
        return value if isinstance(value, str) else _as_json(value)
    if kind == "date":
        shown = age(value, now) if isinstance(value, str) else None
        return "<invalid>" if shown == "<unknown>" else shown
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if kind == "integer" else float(value)


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
