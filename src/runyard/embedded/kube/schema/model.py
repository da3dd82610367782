"""Describes the types of Kubernetes objects: their members, and how each member merges and is encoded.

One table serves four rules that a real server derives from one source: which fields exist (`typed`), how a
strategic patch merges lists (`strategic`), which fields a manager can own (`fields`, `apply`), and which empty
values are written out. The notation of the tables, one type a line:

    Name@ = member member:code ...      `@`: owned and replaced as one value

    s b f      text, boolean, number; without a code a member is text
    i l        integer of 32 bits, of 64 bits
    q t u o y  quantity, time, time with microseconds, integer or text, base64
    any        any value
    Name       a type of its own
    {x}        a map; `@` after it: owned as one value
    [x]        a list, owned as one value; [x=] is a set; [x|key,...] has items found by their keys
    *x         absent and empty differ, so an empty value is kept
    !          written even when empty (a list or a time then as null)
    ^          not written when empty, although it is a time (those are null otherwise)
    +key       a strategic patch merges by that key (lists with keys do so unless marked `-`)
    ~          a strategic patch of an item may name the keys to retain

A `Type` is shared and never changed once it is built.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from runyard.embedded.kube.schema.others import OTHERS
from runyard.embedded.kube.schema.pods import PODS
from runyard.embedded.kube.schema.volumes import VOLUMES

_CODE = re.compile(
    r"(?P<pointer>\*?)(?P<core>\[.*\]|\{.*\}|\w+)(?P<marks>[@!^~-]*)(\+(?P<key>\w*))?~?$"
)
_DEFAULT_KEYS = {"protocol": "TCP"}  # what a key is when an item leaves it out


class Code(msgspec.Struct, frozen=True):
    """One member as the table describes it."""

    core: str  # s, Name, [..] or {..} without any mark
    pointer: bool
    always: bool
    omit_zero: bool


class Type:
    """How the values of one member merge: a leaf, a map, a list with keys or a set."""

    __slots__ = (
        "atomic",
        "codes",
        "deep",
        "defaults",
        "element",
        "fields",
        "is_list",
        "is_map",
        "is_set",
        "keys",
        "merge_key",
        "name",
        "open",
        "patch_merge",
    )

    def __init__(self) -> None:
        self.name = ""
        self.atomic = False  # owned and applied as one value, whatever is inside
        self.is_map = False
        self.is_list = False
        self.is_set = False
        self.open = False  # members that are not declared are kept and belong to `element`
        self.deep = False  # something inside declares its members
        self.fields: dict[str, Type] = {}
        self.codes: dict[str, Code] = {}
        self.element: Type = self
        self.keys: tuple[str, ...] = ()
        self.defaults: Mapping[str, str] = {}
        self.patch_merge = False  # a strategic patch merges this list, else it replaces it
        self.merge_key = ""

    def member(self, name: str) -> "Type":
        """The type of a map's member."""
        return self.fields.get(name, self.element)

    @property
    def granular(self) -> bool:
        """Whether managers own what is inside one by one."""
        return not self.atomic and (self.is_map or self.is_set or bool(self.keys))


def _scalar() -> Type:
    made = Type()
    made.atomic = True
    return made


def _any() -> Type:
    """Values without a type: maps merge member by member, lists and the rest are one value."""
    made = Type()
    made.is_map = made.open = True
    return made


SCALAR = _scalar()
ANY = _any()


@cache
def _lines() -> dict[str, tuple[bool, str]]:
    text = re.sub(r"\n +", " ", PODS + VOLUMES + OTHERS)
    found: dict[str, tuple[bool, str]] = {}
    for line in filter(None, text.splitlines()):
        name, _, members = line.partition(" =")
        found[name.rstrip("@")] = (name.endswith("@"), members.strip())
    return found


@cache
def named(name: str) -> Type:
    """The type of that name; raises `KeyError` if the tables have none."""
    atomic, members = _lines()[name]
    made = Type()
    made.name, made.is_map, made.atomic, made.deep = name, True, atomic, True
    made.element = SCALAR
    for member in members.split():
        key, _, code = member.partition(":")
        made.codes[key], made.fields[key] = _member(code or "s")
    return made


def _member(text: str) -> tuple[Code, Type]:
    match = _matched(text)
    core, marks = match["core"], match["marks"]
    made = _type(core)
    if core.startswith("{"):
        made.atomic = "@" in marks
    elif core.startswith("["):
        made.patch_merge = (bool(made.keys) and "-" not in marks) or match["key"] is not None
        made.merge_key = match["key"] or (made.keys[0] if made.keys else "")
    return code_of(text), made


def _matched(text: str) -> re.Match[str]:
    match = _CODE.match(text)
    assert match is not None, text
    return match


def code_of(text: str) -> Code:
    """The code of a member in the notation of the tables."""
    match = _matched(text)
    plain = re.sub(r"(=|\|[\w,]+)\]$", "]", match["core"])
    return Code(plain, bool(match["pointer"]), "!" in match["marks"], "^" in match["marks"])


def _type(core: str) -> Type:
    if core.startswith("{"):
        made = Type()
        made.is_map = made.open = True
        made.element = _type(core[1:-1])
        made.deep = made.element.deep
        return made
    if core.startswith("["):
        return _list(core[1:-1])
    if core == "any":
        return ANY
    return named(core) if core[0].isupper() else SCALAR


def _list(inside: str) -> Type:
    item, _, keys = inside.partition("|")
    made = Type()
    made.is_list = True
    made.is_set = item.endswith("=")
    made.element = _type(item.rstrip("="))
    made.deep = made.element.deep
    made.keys = tuple(filter(None, keys.split(",")))
    made.defaults = {key: _DEFAULT_KEYS[key] for key in made.keys if key in _DEFAULT_KEYS}
    made.atomic = not made.is_set and not made.keys
    return made


def known(name: str) -> bool:
    """Whether the tables have that type."""
    return name in _lines()


# ---- custom resources


def of_definition(kind: str, schema: Any) -> Type:
    """The type of a custom resource, from the compiled schema of its definition (`crd.schema.Schema`) or None."""
    made = _map_of(schema) if schema is not None else _any()
    made.name = kind
    made.fields["metadata"] = named("ObjectMeta")
    made.fields["kind"] = made.fields["apiVersion"] = SCALAR
    return made


def _of_schema(schema: Any) -> Type:
    """One level of a structural schema; what it does not describe is untyped."""
    if schema.properties or schema.extra is not None:
        return _map_of(schema)
    if schema.type == "array":
        return _list_of(schema)
    untyped = schema.preserve or schema.type == "object"
    return ANY if untyped and schema.map_type != "atomic" else SCALAR


def _map_of(schema: Any) -> Type:
    made = Type()
    made.is_map = made.deep = True
    made.open = schema.extra is not None or schema.preserve
    made.atomic = schema.map_type == "atomic"
    made.element = ANY if schema.extra is None else _of_schema(schema.extra)
    made.fields.update((key, _of_schema(item)) for key, item in schema.properties.items())
    return made


def _list_of(schema: Any) -> Type:
    made = Type()
    made.is_list = True
    made.element = ANY if schema.items is None else _of_schema(schema.items)
    made.deep = made.element.deep
    made.is_set = schema.list_type == "set"
    if schema.list_type == "map" and schema.items is not None:
        made.keys = schema.list_keys
        inside = schema.items.properties
        given = {key: inside[key].default for key in made.keys if key in inside}
        made.defaults = {key: item for key, item in given.items() if item is not msgspec.UNSET}
    made.atomic = not made.is_set and not made.keys
    return made
