"""Decodes protobuf bodies to the equivalent JSON.

kubectl sends some objects (reviews, tokens, accounts, roles) in protobuf only, and accepts responses in JSON. A body
is the four bytes `k8s\\0` and an envelope with the type and the message. The fields of the messages are in
`messages`; other fields are skipped.

Empty strings and zeroes are left out, as in JSON, except for optional fields that are set to zero.
"""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from runyard.embedded.kube.protobuf.messages import ENVELOPE, MESSAGES, Message, Type
from runyard.embedded.kube.status import bad_request, not_served

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
_JSON = "application/json"
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10

Raw = int | bytes


def decode(body: bytes) -> dict[str, Any]:
    """Decodes the object in an envelope; raises 400, or 501 for a kind that is supported in JSON only."""
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request is not a protobuf object of Kubernetes")
    try:
        envelope = _read(body[len(MAGIC) :], ENVELOPE)
        what = envelope.get("typeMeta", {})
        kind = what.get("kind", "")
        message = MESSAGES.get(kind)
        if message is None:
            raise not_served(f"{kind or 'objects of no kind'} in protobuf; send it as {_JSON}")
        return {**what, **_read(base64.b64decode(envelope.get("raw", "")), message)}
    except ValueError as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from None


def _read(data: bytes, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, raw in _fields(data):
        known = message.get(number)
        if known is not None:
            name, type_ = known
            _put(found, name, type_, raw)
    return found


def _put(found: dict[str, Any], name: str, type_: Type, raw: Raw) -> None:
    if isinstance(type_, list):
        found.setdefault(name, []).append(_read(_data(raw), type_[0]))
    elif isinstance(type_, dict):
        found[name] = _read(_data(raw), type_)
    elif type_ == "texts":
        found.setdefault(name, []).append(_text(raw))
    elif type_ in _ENTRIES:
        key, value = _entry(_data(raw), type_)
        found.setdefault(name, {})[key] = value
    else:
        value = _SCALARS[type_](raw)
        if value is not None:
            found[name] = value


# ---- the wire


def _fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"a field of unknown wire type {wire}")
        if size > len(data) - position:
            raise ValueError("truncated field")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if position >= len(data):
            raise ValueError("truncated number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a number of more than 10 bytes")


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
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _time(raw: Raw) -> str | None:
    given = _read(_data(raw), {1: ("seconds", "optional-number"), 2: ("nanos", "optional-number")})
    if not given:
        return None
    try:
        moment = datetime.fromtimestamp(given.get("seconds", 0), UTC)
    except (OverflowError, OSError):
        raise ValueError("a time out of range") from None
    micro = given.get("nanos", 0) // 1000
    if micro:
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{micro:06d}Z"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _entry(data: bytes, type_: str) -> tuple[str, Any]:
    key, value = "", _ENTRIES[type_](b"")
    for number, raw in _fields(data):
        if number == 1:
            key = _text(raw)
        elif number == 2:
            value = _ENTRIES[type_](_data(raw))
    return key, value


def _encoded(raw: Raw) -> str:
    return base64.b64encode(_data(raw)).decode()


_SCALARS: dict[str, Callable[[Raw], Any]] = {
    "text": lambda raw: _text(raw) or None,
    "bytes": lambda raw: _encoded(raw) or None,
    "number": lambda raw: _number(raw) or None,
    "optional-number": _number,
    "flag": lambda raw: bool(_number(raw)) or None,
    "optional-flag": lambda raw: bool(_number(raw)),
    "time": _time,
}
_ENTRIES: dict[str, Callable[[bytes], Any]] = {
    "map": _text,
    "map-of-bytes": _encoded,
    "map-of-texts": lambda data: _read(data, {1: ("items", "texts")}).get("items", []),
}
