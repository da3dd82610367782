"""Encodes objects, lists and events of a watch as protobuf, byte for byte as a real server does.

A field that is not optional is always written, also when it is empty; fields are in the order of their numbers, entries
of a map in the order of their keys.
"""

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from runyard.embedded.kube.protobuf import wire
from runyard.embedded.kube.protobuf.decoding import MAGIC, PROTOBUF
from runyard.embedded.kube.protobuf.messages import Field, Message, message, message_of
from runyard.embedded.kube.resources import Object
from runyard.http.messages import Response

STREAM = f"{PROTOBUF};stream=watch"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_SCHEMA = "JSONSchemaProps"
_SUFFIX = wire.text(3, "") + wire.text(4, "")  # of an envelope: no encoding, no other content type

Writer = Callable[[Any], bytes]


def encoded(obj: Object) -> bytes | None:
    """An object or a list in its envelope; None for a kind that exists in JSON only."""
    version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    known = message_of(version, kind)
    if known is None:
        return None
    what = wire.text(1, version) + wire.text(2, kind)
    raw = _writer(known)(obj)
    return MAGIC + _field(1, what) + _field(2, raw) + _SUFFIX


def transcoded(answer: Response) -> Response:
    """The same response in protobuf; one whose body exists in JSON only is returned as it is."""
    if answer.header("content-type") != "application/json":
        return answer
    body = encoded(answer.json())
    if body is None:
        return answer
    rest = tuple(pair for pair in answer.headers if pair[0] != "content-type")
    return msgspec.structs.replace(answer, headers=(("content-type", PROTOBUF), *rest), body=body)


def event(change: str, obj: Object) -> bytes:
    """An event of a watch, after its length."""
    raw = encoded(obj)
    assert raw is not None, obj.get("kind")
    made = wire.text(1, change) + _field(2, _field(1, raw))
    return len(made).to_bytes(4, "big") + made


def _field(number: int, value: bytes) -> bytes:
    return wire.tag(number, wire.BYTES) + wire.delimited(value)


# ---- messages


@cache
def _writer(known: Message) -> Writer:
    """The writer of a message, made once."""
    members = tuple((field.name, _member(field)) for field in known.fields.values())

    def write(obj: Object) -> bytes:
        return b"".join([put(obj.get(name) if name else obj) for name, put in members])

    return write


def _member(field: Field) -> Writer:
    """The writer of a field, from the value of its member to bytes."""
    core, number = field.core, field.number
    if field.inside is not None:
        inside = _writer(field.inside)
        return lambda obj: _field(number, inside(obj))
    if core[0] == "[":
        one = _one(number, core[1:-1])
        return lambda value: b"".join([one(item) for item in value]) if value else b""
    if core[0] == "{":
        return _map(number, core[1:-1])
    one = _one(number, core)
    if field.pointer or core == "y":
        return lambda value: b"" if value is None else one(value)
    if core in _EMPTY:
        absent = one(_EMPTY[core])
        return lambda value: absent if value is None else one(value)
    return one


def _one(number: int, core: str) -> Writer:
    """The writer of one value with its tag."""
    if core[0].isupper():
        return _nested(number, core)
    kind, write = _SCALARS[core]
    tag = wire.tag(number, kind)
    if kind != wire.BYTES:
        return lambda value: tag + write(value)
    return lambda value: tag + wire.delimited(write(value))


def _nested(number: int, name: str) -> Writer:
    tag = wire.tag(number, wire.BYTES)

    def write(value: Any) -> bytes:  # not before the first value: schemas contain schemas
        return tag + wire.delimited(_writer(message(name))(value or {}))

    return write


def _map(number: int, core: str) -> Writer:
    tag = wire.tag(number, wire.BYTES)
    one = _list_of_texts if core == "[s]" else _one(2, core)

    def write(value: Any) -> bytes:
        keys = sorted(value, key=str.encode) if value else ()
        entries = [wire.text(1, key) + one(value[key]) for key in keys]
        return b"".join([tag + wire.delimited(entry) for entry in entries])

    return write


def _list_of_texts(value: Any) -> bytes:
    return _field(2, b"".join([wire.text(1, item) for item in value]))


# ---- values


def _time(value: str | None) -> bytes:
    """A time in seconds; an absent one is an empty message."""
    return b"" if not value else _timestamp(datetime.fromisoformat(value).replace(microsecond=0))


def _micro(value: str | None) -> bytes:
    return b"" if not value else _timestamp(datetime.fromisoformat(value))


def _timestamp(moment: datetime) -> bytes:
    seconds = wire.number((moment - _EPOCH) // _SECOND)
    return b"\x08" + seconds + b"\x10" + wire.number(moment.microsecond * 1000)


def _number_or_text(value: int | str) -> bytes:
    number, text = (value, "") if isinstance(value, int) else (0, value)
    kind = b"\x08\x00\x10" if isinstance(value, int) else b"\x08\x01\x10"
    return kind + wire.number(number) + wire.text(3, text)


def _json(value: Any) -> bytes:
    return b"" if value is None else _field(1, msgspec.json.encode(value))


def _schema(number: int, value: Any) -> bytes:
    return _nested(number, _SCHEMA)(value)


def _many(value: Any) -> bytes:
    if isinstance(value, dict):
        return _schema(1, value)
    return b"".join([_schema(2, item) for item in value])


def _flag(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"\x08\x01" + _schema(2, value)
    return b"\x08\x01" if value else b"\x08\x00"


def _texts(value: Any) -> bytes:
    if isinstance(value, dict):
        return _schema(1, value)
    return b"".join([wire.text(2, item) for item in value])


_SCALARS: dict[str, tuple[int, Writer]] = {
    "s": (wire.BYTES, str.encode),
    "y": (wire.BYTES, base64.b64decode),
    "b": (wire.VARINT, lambda value: b"\x01" if value else b"\x00"),
    "i": (wire.VARINT, wire.number),
    "l": (wire.VARINT, wire.number),
    "f": (wire.EIGHT, lambda value: struct.pack("<d", value)),
    "q": (wire.BYTES, lambda value: wire.text(1, str(value))),
    "t": (wire.BYTES, _time),
    "u": (wire.BYTES, _micro),
    "o": (wire.BYTES, _number_or_text),
    "json": (wire.BYTES, _json),
    "many": (wire.BYTES, _many),
    "flag": (wire.BYTES, _flag),
    "texts": (wire.BYTES, _texts),
}
# What an absent field that is not optional is written as.
_EMPTY: dict[str, Any] = {"s": "", "b": False, "i": 0, "l": 0, "f": 0, "q": "0", "o": 0}
