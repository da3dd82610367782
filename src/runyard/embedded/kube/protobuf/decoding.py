"""Decodes protobuf bodies to the equivalent JSON.

A body is the four bytes `k8s\\0` and an envelope with the type and the message. The fields of the messages are in
`messages`; other fields are skipped, as a real server does. Of a message that occurs twice the second one adds to the
first.

Empty strings and zeroes are left out, as in JSON, except for optional fields that are set to zero.
"""

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from runyard.embedded.kube.protobuf import wire
from runyard.embedded.kube.protobuf.messages import Field, Message, message, message_named
from runyard.embedded.kube.protobuf.wire import Raw
from runyard.embedded.kube.status import bad_request

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = "JSONSchemaProps"


def decode(body: bytes, expected: str = "") -> dict[str, Any]:
    """Decodes the object in an envelope, of the expected kind if it names none; raises 400."""
    if not body.startswith(MAGIC) or body == MAGIC:
        raise bad_request("the body of the request is not a protobuf object of Kubernetes")
    try:
        version, kind, raw = _opened(body[len(MAGIC) :])
        known = message_named(kind or expected)
        if known is None:
            raise bad_request(f'no kind "{kind}" is registered for version "{version}"')
        named = {"apiVersion": version, "kind": kind}
        return {key: text for key, text in named.items() if text} | _read(raw, known, {})
    except ValueError as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from None


def _opened(data: bytes) -> tuple[str, str, bytes]:
    """The version, the kind and the message in an envelope."""
    what: dict[int, str] = {}
    raw = b""
    for number, _, value in wire.fields(data):
        if number == 1:
            what |= {field: _text(given) for field, _, given in wire.fields(_data(value))}
        elif number == 2:
            raw = _data(value)
    return what.get(1, ""), what.get(2, ""), raw


def _read(data: bytes, known: Message, found: dict[str, Any]) -> dict[str, Any]:
    """Adds the members of a message to an object, and returns it."""
    for number, _, raw in wire.fields(data):
        field = known.fields.get(number)
        if field is None:
            continue
        if field.inside is not None:
            _read(_data(raw), field.inside, found)
        else:
            _put(found, field, raw)
    return found


def _put(found: dict[str, Any], field: Field, raw: Raw) -> None:
    core, name = field.core, field.name
    if core[0] == "[":
        found.setdefault(name, []).extend(_items(core[1:-1], raw))
    elif core[0] == "{":
        key, value = _entry(_data(raw), core[1:-1])
        found.setdefault(name, {})[key] = value
    elif core[0].isupper():
        _read(_data(raw), message(core), found.setdefault(name, {}))
    else:
        value = _SCALARS[core](raw)
        if value is not None and (value or field.pointer or core == "flag"):
            found[name] = value


def _items(core: str, raw: Raw) -> list[Any]:
    """The items of a list in one field: one, or many numbers in a row."""
    if core in "il" and isinstance(raw, bytes):
        found: list[Any] = []
        position = 0
        while position < len(raw):
            value, position = wire.varint(raw, position)
            found.append(_SCALARS[core](value))
        return found
    return [_value(core, raw)]


def _value(core: str, raw: Raw) -> Any:
    return _read(_data(raw), message(core), {}) if core[0].isupper() else _SCALARS[core](raw)


def _entry(data: bytes, core: str) -> tuple[str, Any]:
    """The key and the value of an entry of a map; a list in it is a message of its own."""
    key, value = "", b""
    for number, _, raw in wire.fields(data):
        if number == 1:
            key = _text(raw)
        elif number == 2:
            value = _data(raw)
    if core == "[s]":
        return key, [_text(raw) for number, _, raw in wire.fields(value) if number == 1]
    return key, _value(core, value)


# ---- values


def _data(raw: Raw) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where a message was expected")
    return raw


def _text(raw: Raw) -> str:
    return _data(raw).decode()


def _number(raw: Raw) -> int:
    if not isinstance(raw, int):
        raise ValueError("a message where a number was expected")
    return raw


def _double(raw: Raw) -> float:
    data = _data(raw)
    if len(data) != 8:
        raise ValueError("a number of another size")
    value: float = struct.unpack("<d", data)[0]
    return int(value) if value.is_integer() else value


def _by_field(raw: Raw) -> dict[int, Raw]:
    return {number: value for number, _, value in wire.fields(_data(raw))}


def _moment(raw: Raw) -> tuple[datetime, int] | None:
    """A time in seconds, and its microseconds; None for the zero time, which is an empty message."""
    if not raw:
        return None
    given = _by_field(raw)
    seconds, nanos = (wire.signed(_number(given.get(key, 0)), 64) for key in (1, 2))
    try:
        return _EPOCH + timedelta(seconds=seconds), nanos // 1000
    except OverflowError:
        raise ValueError("a time out of range") from None


def _time(raw: Raw) -> str | None:
    moment = _moment(raw)
    return None if moment is None else f"{moment[0]:%Y-%m-%dT%H:%M:%S}Z"


def _micro(raw: Raw) -> str | None:
    moment = _moment(raw)
    return None if moment is None else f"{moment[0]:%Y-%m-%dT%H:%M:%S}.{moment[1]:06d}Z"


def _number_or_text(raw: Raw) -> int | str:
    given = _by_field(raw)
    if _number(given.get(1, 0)) == 1:
        return _text(given.get(3, b""))
    return wire.signed(_number(given.get(2, 0)), 32)


def _json(raw: Raw) -> Any:
    data = _data(_by_field(raw).get(1, b""))
    try:
        return msgspec.json.decode(data) if data else None
    except msgspec.DecodeError as error:
        raise ValueError(f"JSON in a field: {error}") from None


def _schema_or(raw: Raw, otherwise: Callable[[list[Raw]], Any], *, schema: int, other: int) -> Any:
    given = [(number, value) for number, _, value in wire.fields(_data(raw))]
    for number, value in given:
        if number == schema:
            return _read(_data(value), message(_SCHEMA), {})
    return otherwise([value for number, value in given if number == other])


def _many(raw: Raw) -> Any:
    return _schema_or(
        raw, lambda found: [_value(_SCHEMA, item) for item in found], schema=1, other=2
    )


def _flag(raw: Raw) -> Any:
    return _schema_or(raw, lambda found: any(map(_number, found)), schema=2, other=1)


def _texts(raw: Raw) -> Any:
    return _schema_or(raw, lambda found: [_text(item) for item in found], schema=1, other=2)


_SCALARS: dict[str, Callable[[Raw], Any]] = {
    "s": _text,
    "y": lambda raw: base64.b64encode(_data(raw)).decode(),
    "b": lambda raw: _number(raw) != 0,
    "i": lambda raw: wire.signed(_number(raw), 32),
    "l": lambda raw: wire.signed(_number(raw), 64),
    "f": _double,
    "q": lambda raw: _text(_by_field(raw).get(1, b"")),
    "t": _time,
    "u": _micro,
    "o": _number_or_text,
    "json": _json,
    "many": _many,
    "flag": _flag,
    "texts": _texts,
}
