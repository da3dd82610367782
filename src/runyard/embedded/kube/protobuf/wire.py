"""Reads and writes the fields of protobuf messages, whatever they mean."""

from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10
_SMALL = tuple(bytes((value,)) for value in range(0x80))

Raw = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, int, Raw]]:
    """The number, the wire type and the value of each field; raises `ValueError`."""
    position = 0
    while position < len(data):
        tag, position = varint(data, position)
        wire = tag & 7
        if wire == VARINT:
            value, position = varint(data, position)
            yield tag >> 3, wire, value
            continue
        if wire == BYTES:
            size, position = varint(data, position)
        elif wire in (EIGHT, FOUR):
            size = 8 if wire == EIGHT else 4
        else:
            raise ValueError(f"a field of unknown wire type {wire}")
        if size > len(data) - position:
            raise ValueError("truncated field")
        yield tag >> 3, wire, data[position : position + size]
        position += size


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it; raises `ValueError`."""
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


def signed(value: int, bits: int) -> int:
    """The number that the lowest bits are, in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(value: int) -> bytes:
    """A number in groups of seven bits."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(value: bytes) -> bytes:
    """Bytes after their length."""
    return number(len(value)) + value


def tag(field: int, wire: int) -> bytes:
    """What begins a field."""
    return number(field << 3 | wire)


def text(field: int, value: str) -> bytes:
    """A field with a text."""
    return tag(field, BYTES) + delimited(value.encode())
