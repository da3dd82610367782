"""Encodes the line counts of a covered file as bytes: a version byte, then compressed pairs of numbers.

A pair is the distance to the previous line and how often the line ran. Each number is a varint: seven bits per byte,
lowest first, the high bit set on all bytes but the last. Most files take two bytes a line before compression, and a few
hundred bytes after it.

Invariants: lines ascend from 1; `unpack(pack(lines))` returns the same lines; other input raises `ValueError`;
unpacking never uses more memory than `LARGEST` allows.
"""

import zlib
from collections.abc import Iterable, Iterator

LARGEST = 32 << 20  # bytes before compression
_DEFLATED = b"\x01"


def pack(lines: Iterable[tuple[int, int]]) -> bytes:
    """Encode pairs of line and count, in ascending order of lines."""
    packed = bytearray()
    before = 0
    for line, count in lines:
        if line <= before or count < 0:
            raise ValueError("lines do not ascend from 1, or a count is negative")
        _append(packed, line - before)
        _append(packed, count)
        before = line
    return _DEFLATED + zlib.compress(bytes(packed), 6) if packed else b""


def unpack(packed: bytes) -> tuple[tuple[int, int], ...]:
    """Decode what `pack` returned."""
    if not packed:
        return ()
    if packed[:1] != _DEFLATED:
        raise ValueError("the lines are packed in a format of another release")
    opener = zlib.decompressobj()
    try:
        plain = opener.decompress(packed[1:], LARGEST)
    except zlib.error as error:
        raise ValueError(f"not packed lines: {error}") from None
    if not opener.eof:
        raise ValueError("not packed lines: truncated, or too many")
    return tuple(_pairs(plain))


def _append(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _pairs(plain: bytes) -> Iterator[tuple[int, int]]:
    line = 0
    numbers = _numbers(plain)
    for step in numbers:
        line += step
        count = next(numbers, None)
        if count is None:
            raise ValueError("not packed lines: the last pair is incomplete")
        yield line, count


def _numbers(plain: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in plain:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > 63:
                raise ValueError("not packed lines: a number is too long")
            continue
        yield number
        number = shift = 0
    if shift:
        raise ValueError("not packed lines: the last number is incomplete")
