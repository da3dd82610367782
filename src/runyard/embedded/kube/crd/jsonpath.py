r"""Parses and evaluates the subset of JSONPath that definitions use.

`.spec.image`, `.status.conditions[?(@.type=="Ready")].status`, `.spec.list[0]`, `.spec.list[*].name`,
`.metadata.labels['a.b/c']` and `.metadata.labels.a\.b/c`. Anything else is refused when the definition is validated.
"""

import re
from typing import Any

import msgspec

_FIELD = re.compile(r"\.((?:\\.|[^.\[\\])+)")
_QUOTED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\")\]")
_INDEX = re.compile(r"\[(-?\d+|\*)\]")
_FILTER = re.compile(r"\[\?\(\s*@((?:\.[\w-]+)+)\s*==\s*(?:'([^']*)'|\"([^\"]*)\"|(\w+))\s*\)\]")


class Step(msgspec.Struct, frozen=True):
    """One step into a value."""

    name: str = ""
    index: int | None = None
    every: bool = False
    where: tuple[str, ...] = ()  # a path inside each item whose value must be `equals`
    equals: str = ""


Path = tuple[Step, ...]


def parse(text: str) -> Path:
    """The steps of a path; raises `ValueError`."""
    rest = text.strip()
    if not rest.startswith((".", "[")):
        raise ValueError(f"a JSONPath begins with a dot: {text!r}")
    steps: list[Step] = []
    while rest and rest != ".":
        step, rest = _step(rest, text)
        steps.append(step)
    return tuple(steps)


def _step(rest: str, text: str) -> tuple[Step, str]:
    if match := _FIELD.match(rest):
        return Step(name=re.sub(r"\\(.)", r"\1", match[1])), rest[match.end() :]
    if match := _QUOTED.match(rest):
        return Step(name=match[1] or match[2] or ""), rest[match.end() :]
    if match := _INDEX.match(rest):
        if match[1] == "*":
            return Step(every=True), rest[match.end() :]
        return Step(index=int(match[1])), rest[match.end() :]
    if match := _FILTER.match(rest):
        equals = match[2] or match[3] or match[4] or ""
        return Step(where=tuple(match[1][1:].split(".")), equals=equals), rest[match.end() :]
    raise ValueError(f"not a supported JSONPath: {text!r}")


def find(path: Path, obj: Any) -> list[Any]:
    """Every value at the path, in order."""
    found = [obj]
    for step in path:
        found = [item for value in found for item in _into(step, value)]
    return found


def _into(step: Step, value: Any) -> list[Any]:
    if step.name:
        return [value[step.name]] if isinstance(value, dict) and step.name in value else []
    if isinstance(value, dict) and step.every:
        return list(value.values())
    if not isinstance(value, list):
        return []
    if step.every:
        return value
    if step.index is not None:
        return value[step.index :][:1] if step.index != -1 else value[-1:]
    return [item for item in value if _holds(step, item)]


def _holds(step: Step, item: Any) -> bool:
    for name in step.where:
        item = item.get(name) if isinstance(item, dict) else None
    if isinstance(item, bool):
        return step.equals == ("true" if item else "false")
    return item is not None and str(item) == step.equals
