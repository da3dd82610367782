"""Encodes typed objects as the object store of a result bundle contains them.

A property's Python type determines its type in the bundle: str is String, int is Int, float is Double, bool is
Bool, an iterable is an Array, and everything else is a `Typed` or a `Scalar` that names its type. A type
is defined at its first use in a blob, with its supertypes, and called by name afterwards. None is always
left out. Empty arrays, zeros and false are left out, too, unless `explicit` (format 3.60 writes them).

An array may be a generator: a large tree is encoded while it is made and is never in memory as objects.
References are collected on the way, each once, in order.
"""

from collections.abc import Iterable
from functools import cache
from typing import Union

import msgspec

SUPERTYPES = {
    "ActionTestPlanRunSummary": "ActionAbstractTestSummary",
    "ActionTestableSummary": "ActionAbstractTestSummary",
    "ActionTestSummaryIdentifiableObject": "ActionAbstractTestSummary",
    "ActionTestSummaryGroup": "ActionTestSummaryIdentifiableObject",
    "ActionTestMetadata": "ActionTestSummaryIdentifiableObject",
    "ActionTestSummary": "ActionTestSummaryIdentifiableObject",
    "ActivityLogMajorSection": "ActivityLogSection",
    "ActivityLogCommandInvocationSection": "ActivityLogSection",
    "ActivityLogUnitTestSection": "ActivityLogSection",
    "TestFailureIssueSummary": "IssueSummary",
}

OMITTED = frozenset({tuple, int, bool})


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A value of a type that has no Python equivalent: Date, URL, Data, UInt8."""

    type: str
    value: bytes


class Typed(msgspec.Struct, frozen=True):
    """An object with properties."""

    type: str
    fields: "dict[str, Value]"


Value = Union[str, int, float, bool, Scalar, Typed, "Iterable[Value]", None]


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A blob, and the ids of the objects that it references."""

    payload: bytes
    refs: tuple[str, ...]


def typed(name: str, /, **fields: Value) -> Typed:
    """An object, its properties by name."""
    return Typed(name, fields)


def reference(object_id: str | None, target: str = "") -> Typed | None:
    """A reference to another object of the store, with its type if it is a typed object."""
    if object_id is None:
        return None
    fields: dict[str, Value] = {"id": object_id}
    if target:
        fields["targetType"] = _definition(target)
    return Typed("Reference", fields)


@cache
def _definition(name: str) -> Typed:
    above = SUPERTYPES.get(name)
    supertype = _definition(above) if above else None
    return Typed("TypeDefinition", {"name": name, "supertype": supertype})


def encode(value: Typed, *, explicit: bool = False) -> Encoded:
    """Encode one object as a blob."""
    encoder = _Encoder(explicit=explicit)
    encoder.value(value)
    return Encoded(payload=bytes(encoder.out), refs=tuple(encoder.refs))


class _Encoder:
    def __init__(self, *, explicit: bool) -> None:
        self.out = bytearray()
        self.refs: dict[str, None] = {}
        self._explicit = explicit
        self._known: set[str] = set()

    def value(self, value: Value) -> None:
        if isinstance(value, str):
            self._scalar("String", value.encode())
        elif isinstance(value, bool):
            self._scalar("Bool", b"true" if value else b"false")
        elif isinstance(value, int):
            self._scalar("Int", b"%d" % value)
        elif isinstance(value, float):
            self._scalar("Double", repr(value).encode())
        elif isinstance(value, Typed):
            self._object(value)
        elif isinstance(value, Scalar):
            self._scalar(value.type, value.value)
        elif isinstance(value, Iterable):
            self._array(value)
        else:
            raise TypeError(f"a {type(value).__name__} has no type in a result bundle")

    def _head(self, name: str) -> bytes:
        if name in self._known:
            return _later(name)
        self._known.add(name)
        return _first(name)

    def _scalar(self, name: str, text: bytes) -> None:
        self.out += b"%bK2:_vV%d:%b]" % (self._head(name), len(text), text)

    def _array(self, values: "Iterable[Value]") -> None:
        self.out += self._head("Array")
        for each in values:
            self.value(each)
        self.out += b"]"

    def _object(self, value: Typed) -> None:
        self.out += self._head(value.type)
        for key, each in sorted(value.fields.items()):
            if each is None or (not each and not self._explicit and type(each) in OMITTED):
                continue
            self.out += _key(key)
            self.value(each)
        self.out += b"]"
        if value.type == "Reference":
            self.refs[str(value.fields["id"])] = None


def _sized(text: str) -> bytes:
    data = text.encode()
    return b"%d:%b" % (len(data), data)


@cache
def _key(name: str) -> bytes:
    return b"K" + _sized(name)


@cache
def _later(name: str) -> bytes:
    return b"[S" + _sized(name)


@cache
def _first(name: str) -> bytes:
    return b"[T" + _typedef(name)


def _typedef(name: str) -> bytes:
    above = SUPERTYPES.get(name)
    supertype = b"K2:_s" + _typedef(above) if above else b""
    return b"[K2:_nV" + _sized(name) + supertype + b"]"
