"""Converts objects to their types: known fields only, values of the right type, empty values as a server encodes them.

Everything that a client sends to a built-in kind is converted here first, as in a server whose objects are structs: an
unknown field is dropped (and reported, on request of `validation`), a value of the wrong type is refused, an empty list
or string that its type omits disappears, and a member that is always encoded appears. So two writes with the same
meaning are equal, and a write without a change is recognised.

The conversion uses generated msgspec structs; a part that is the same Python object as before is not converted again.
"""

from functools import cache
from types import GenericAlias
from typing import Annotated, Any

import msgspec

from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.schema import model
from runyard.embedded.kube.schema.model import Code, Type
from runyard.embedded.kube.schema.scalars import Amount, Bytes, MicroTime, Quantity, Time, read

_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_SCALARS: dict[str, Any] = {
    "s": str,
    "b": bool,
    "i": _INT32,
    "l": _INT64,
    "f": float,
    "q": Quantity,
    "t": Time,
    "u": MicroTime,
    "o": _INT32 | str,
    "y": Bytes,
    "any": Any,
}
_ZERO: dict[str, Any] = {"s": "", "b": False, "i": 0, "l": 0, "f": 0, "q": "0", "o": 0, "y": ""}
_OWNERS = "managedFields"


class TypedError(ValueError):
    """A value of the wrong type, and its path."""


class Part(msgspec.Struct, frozen=True):
    """One top-level member of a kind."""

    kind: Any
    strict: Any  # the same, but refuses unknown fields
    code: Code
    absent: Any  # what is written for an absent value; None: nothing


def known(resource: Resource) -> bool:
    """Whether the objects of that kind have a type here."""
    return not resource.custom and model.known(resource.kind)


def typed(resource: Resource, obj: Object, old: Object | None = None) -> Object:
    """Converts an object of a built-in kind to its type; of a custom one only the metadata is converted.

    Raises `TypedError`. Parts that are those of `old` are taken as they are.
    """
    if not known(resource):
        meta = _metadata(obj.get("metadata"), old)
        return obj if meta is obj.get("metadata") else {**obj, "metadata": meta}
    result: Object = {"kind": resource.kind, "apiVersion": resource.api_version}
    for key, part in _parts(resource.kind).items():
        value = obj.get(key)
        if old is not None and value is not None and value is old.get(key):
            result[key] = value
        elif key == "metadata":
            result[key] = _metadata(value, old)
        else:
            _put(result, key, part, value)
    return result


@cache
def blank(resource: Resource) -> Object:
    """An empty object of that kind. Not to be changed."""
    given: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    return typed(resource, given) if known(resource) else given


def _metadata(value: Any, old: Object | None) -> Object:
    if old is not None and value is old["metadata"]:
        kept: Object = old["metadata"]
        return kept
    owners = value.get(_OWNERS) if isinstance(value, dict) else None
    if owners is not None:
        value = {key: item for key, item in value.items() if key != _OWNERS}
    read_meta: Object = _read(value or {}, _struct("ObjectMeta"), "metadata")
    if isinstance(owners, list):
        read_meta[_OWNERS] = owners
    return read_meta


def _put(result: Object, key: str, part: Part, value: Any) -> None:
    if value is None:
        if part.absent is not None:
            result[key] = part.absent
        elif not part.code.pointer and (part.code.always or part.code.core in ("t", "u")):
            result[key] = None if part.code.core[0] in "[{tu" else _ZERO[part.code.core]
        return
    made = _read(value, part.kind, key)
    if made or part.code.pointer or part.code.always or _structured(part.code.core):
        result[key] = made


def _structured(core: str) -> bool:
    return core[0].isupper() or core in ("t", "u")


def _read(value: Any, kind: Any, where: str) -> Any:
    try:
        made = msgspec.convert(value, kind, dec_hook=read)
    except msgspec.ValidationError as error:
        given, _, path = str(error).partition(" - at `$")
        raise TypedError(f"{given} at {where}{path.rstrip('`')}") from None
    return msgspec.to_builtins(made, enc_hook=str)


@cache
def _parts(kind: str) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for key, code in model.named(kind).codes.items():
        if key in ("kind", "apiVersion"):
            continue
        always = code.core[0].isupper() and not code.pointer
        absent = msgspec.to_builtins(_struct(code.core)()) if always else None
        found[key] = Part(_kind(code.core), _kind(code.core, strict=True), code, absent)
    return found


@cache
def _struct(name: str, *, strict: bool = False) -> Any:
    """The structure that reads and writes that type."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    for index, (key, code) in enumerate(model.named(name).codes.items()):
        if name == "ObjectMeta" and key == _OWNERS:
            continue
        attribute = f"f{index}"
        names[attribute] = key
        fields.append((attribute, *_field(code, strict=strict)))
    return msgspec.defstruct(
        name,
        fields,
        rename=names,
        omit_defaults=True,
        kw_only=True,
        gc=False,
        forbid_unknown_fields=strict,
    )


def _field(code: Code, *, strict: bool) -> tuple[Any, Any]:
    """The type of a member and what it is when absent; a factory is never left out when written."""
    kind, core = _kind(code.core, strict=strict), code.core
    if code.pointer or code.omit_zero:
        return kind | None, None
    if core[0] in "[{":
        if code.always:
            return kind | None, msgspec.field(default_factory=_nothing)
        return kind | None, msgspec.field(default_factory=list if core[0] == "[" else dict)
    if core in ("t", "u"):
        return kind | None, msgspec.field(default_factory=_nothing)
    if core[0].isupper():
        return kind | None, msgspec.field(default_factory=kind)
    if core == "any":
        return kind, None
    zero = _ZERO[core]
    if code.always or core == "q":
        return kind, msgspec.field(default_factory=lambda: zero)
    return kind, zero


def _nothing() -> None:
    return None


def _kind(core: str, *, strict: bool = False) -> Any:
    if core == "{q}":
        return dict[str, Amount]
    if core.startswith("{"):
        return GenericAlias(dict, (str, _kind(core[1:-1], strict=strict)))
    if core.startswith("["):
        return GenericAlias(list, (_kind(core[1:-1], strict=strict),))
    return _struct(core, strict=strict) if core[0].isupper() else _SCALARS[core]


# ---- unknown fields


def unknown(kind: Type, value: Any, path: str = "", *, old: Any = None) -> list[str]:
    """The paths of fields that the type does not have; parts shared with `old` are skipped."""
    found: list[str] = []
    _collect_unknown(kind, value, path, old, found)
    return found


def may_have_unknown(resource: Resource, obj: Object, old: Object | None) -> bool:
    """Whether an object of a built-in kind may have unknown fields; a fast check without false negatives."""
    parts = _parts(resource.kind)
    before = _NOTHING if old is None else old
    for key, value in obj.items():
        if key in ("kind", "apiVersion") or value is None or value is before.get(key):
            continue
        part = parts.get(key)
        if part is None:
            return True
        if key == "metadata" and isinstance(value, dict) and _OWNERS in value:
            value = {name: item for name, item in value.items() if name != _OWNERS}
        try:
            msgspec.convert(value, part.strict, dec_hook=read)
        except msgspec.ValidationError:
            return True
    return False


def _collect_unknown(kind: Type, value: Any, path: str, old: Any, found: list[str]) -> None:
    if type(value) is dict and kind.is_map:
        fields = kind.fields
        if not kind.open and not value.keys() <= fields.keys():
            lead = f"{path}." if path else ""
            found += [lead + key for key in value if key not in fields]
        before = old if type(old) is dict else _NOTHING
        for key, item in value.items():
            child = fields.get(key, kind.element)
            if child.deep and item is not (was := before.get(key)):
                _collect_unknown(child, item, f"{path}.{key}" if path else key, was, found)
    elif type(value) is list and kind.is_list:
        for index, item in enumerate(value):
            _collect_unknown(kind.element, item, f"{path}[{index}]", None, found)


_NOTHING: dict[str, Any] = {}
