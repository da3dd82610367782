"""Label and field selectors: parsed once, matched often.

A `Selector` is immutable and cached by its text, because every list and watch of a loop sends the
same text. `pin` is the one equality that the watch fan-out can index by, so that a thousand agents
that each watch "Pods on my node" do not each look at every Pod.
"""

import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.status import bad_request

Operator = Literal["in", "notin", "exists", "absent"]

_SPLIT = re.compile(r",(?![^(]*\))")
_KEY = re.compile(
    r"^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$"
)
_VALUE = re.compile(r"^([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?$")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!\s]*)$")
_PINS = ("metadata.name", "spec.nodeName")


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label or field."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Whether a value (None: the key is absent) satisfies this."""
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "exists")


class Selector(msgspec.Struct, frozen=True):
    """All conditions of a list or a watch."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[tuple[str, ...], Requirement], ...] = ()
    pin: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: Object) -> bool:
        """Whether the object satisfies every condition."""
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            for requirement in self.labels:
                if not requirement.holds(labels.get(requirement.key)):
                    return False
        for path, requirement in self.fields:
            if not requirement.holds(field_value(obj, path)):
                return False
        return True


def field_value(obj: Object, path: tuple[str, ...]) -> str:
    """The field as a selector sees it: text, empty when absent."""
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


@lru_cache(maxsize=4096)
def parse(resource: Resource, labels: str, fields: str) -> Selector:
    """Read both selectors; raises a 400 on what is no selector or no field of this kind."""
    parsed = tuple(_label(part.strip()) for part in _SPLIT.split(labels)) if labels.strip() else ()
    named = tuple(_field(resource, part) for part in fields.split(",") if part.strip())
    pin = next(
        (
            (requirement.key, requirement.values[0])
            for _, requirement in named
            if requirement.operator == "in" and requirement.key in _PINS
        ),
        None,
    )
    return Selector(parsed, named, pin)


def _label(text: str) -> Requirement:
    requirement = _label_parts(text)
    if requirement is None or not _KEY.match(requirement.key):
        raise bad_request(f"unable to parse requirement: {text!r}")
    if bad := [value for value in requirement.values if not _VALUE.match(value)]:
        raise bad_request(f"unable to parse requirement: invalid label value {bad[0]!r}")
    return requirement


def _label_parts(text: str) -> Requirement | None:
    if match := _SET.match(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "in" if match["op"] == "in" else "notin", values)
    if match := _EQUAL.match(text):
        return Requirement(
            match["key"], "notin" if match["op"] == "!=" else "in", (match["value"],)
        )
    if text.startswith("!"):
        return Requirement(text[1:].strip(), "absent")
    return Requirement(text, "exists") if text else None


def _field(resource: Resource, text: str) -> tuple[tuple[str, ...], Requirement]:
    match = _EQUAL.match(text.strip())
    if match is None:
        raise bad_request(f"invalid field selector: {text!r}")
    if match["key"] not in resource.fields:
        raise bad_request(f"field label not supported: {match['key']}")
    operator: Operator = "notin" if match["op"] == "!=" else "in"
    key = match["key"]
    return tuple(key.split(".")), Requirement(key, operator, (match["value"],))
