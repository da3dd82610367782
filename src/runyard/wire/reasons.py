"""Reason codes: why something was done, refused or left unchanged, as a slug with typed detail.

    class Why(Code):
        JOB_STARTED = "job-started", "job {job:d} started"

    reason = Why.JOB_STARTED.because(job=7)
    reason.slug      "job-started"      stored, counted and compared
    reason.fields    {"job": 7}         stored beside the slug
    render(reason)   "job 7 started"    for people, at the edge

Rows, metric labels, events and REST bodies carry the slug and the fields; the text can be reworded at any time. A
`Catalogue` renders what was stored.

Invariants:
- A slug is kebab-case and names one member of its enum.
- A reason has exactly the fields of its template, each of the type that the template gives it: `{name}` is text,
  `{count:d}` an integer, `{age:.0f}` any number.
- Rendering a stored reason never fails: a slug of another release is shown as it is, with its fields.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from string import Formatter
from typing import Self

import msgspec

Value = str | int | float
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_TYPES: dict[str, tuple[type, ...]] = {"d": (int,), "f": (int, float), "g": (int, float)}


class Code(StrEnum):
    """Base of every enum of reasons: a member is its slug and carries a template for people."""

    template: str
    types: dict[str, tuple[type, ...]]

    def __new__(cls, slug: str, template: str) -> Self:
        """Make one member; a slug that is malformed or used twice is a `ValueError`."""
        if not _SLUG.fullmatch(slug):
            raise ValueError(f"{slug!r} is not a kebab-case slug")
        if slug in cls._value2member_map_:
            raise ValueError(f"{slug!r} is used twice in {cls.__name__}")
        member = str.__new__(cls, slug)
        member._value_ = slug
        member.template = template
        member.types = {
            name: _TYPES.get((spec or "")[-1:], (str,))
            for _, name, spec, _ in Formatter().parse(template)
            if name is not None
        }
        return member

    def because(self, **detail: Value) -> "Reason":
        """A reason with this code; `TypeError` if a field is missing, unknown or of another type."""
        if detail.keys() != self.types.keys():
            raise TypeError(f"{self.value} takes {sorted(self.types)}, not {sorted(detail)}")
        for name, value in detail.items():
            if not isinstance(value, self.types[name]) or isinstance(value, bool):
                raise TypeError(f"{self.value}: {name} is {value!r}")
        return Reason(self, tuple(sorted(detail.items())))


class Reason(msgspec.Struct, frozen=True):
    """A code with its detail; hashable, so that plans may hold it."""

    code: Code
    detail: tuple[tuple[str, Value], ...] = ()

    @property
    def slug(self) -> str:
        """What is stored, counted and compared."""
        return self.code.value

    @property
    def fields(self) -> dict[str, Value]:
        """The detail by name, as it is stored beside the slug."""
        return dict(self.detail)


class Common(Code):
    """Codes that every catalogue knows."""

    UNKNOWN = "unknown", "{text}"  # a sentence of a release that had no codes


class Catalogue:
    """Renders stored reasons of the given enums."""

    def __init__(self, *enums: type[Code]) -> None:
        self._codes: dict[str, Code] = {}
        every: tuple[type[Code], ...] = (Common, *enums)
        for code in (code for enum in every for code in enum):
            if self._codes.setdefault(code.value, code) is not code:
                raise ValueError(f"{code.value!r} is in two enums of one catalogue")

    @property
    def slugs(self) -> tuple[str, ...]:
        """Every slug that is known here."""
        return tuple(self._codes)

    def read(self, slug: str, detail: Mapping[str, Value] | None = None) -> Reason:
        """A stored reason as a value; one that is not known here becomes `unknown` with its text."""
        code = self._codes.get(slug)
        if code is not None:
            try:
                return code.because(**(detail or {}))
            except TypeError:
                pass  # the fields of another release
        return Common.UNKNOWN.because(text=self.text(slug, detail))

    def text(self, slug: str, detail: Mapping[str, object] | None = None) -> str:
        """A stored reason for people; a slug that is not known here is shown with its fields."""
        fields = {} if detail is None else dict(detail)
        code = self._codes.get(slug)
        if code is not None:
            try:
                return code.template.format_map(fields)
            except (KeyError, ValueError, TypeError):
                pass  # the fields of another release: shown below
        shown = ", ".join(f"{name}={value}" for name, value in fields.items())
        return f"{slug} ({shown})" if shown else slug


def render(reason: Reason) -> str:
    """A reason for people."""
    return reason.code.template.format_map(reason.fields)


def logged(reason: Reason) -> dict[str, Value]:
    """A reason as fields of a log line: its slug, and its detail by name."""
    return {"reason": reason.slug, **{f"reason_{name}": value for name, value in reason.detail}}
