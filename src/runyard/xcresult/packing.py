"""The lines of a covered file as bytes: a byte that says how, then pairs of numbers, compressed.

A pair is how far the line lies behind the one before, and how often it ran; each number in groups of seven bits, the
lowest first, as long as a group has its high bit. Most files take two bytes a line before they are compressed, and a
few hundred bytes after.

Invariants: lines are in ascending order and from 1; what was packed unpacks to the same; what was not packed here is a
`ValueError`, and unpacking never takes more memory than `LARGEST` allows.
"""

import zlib
from collections.abc import Iterable, Iterator

LARGEST = 32 << 20  # bytes before compression
_DEFLATED = b"\x01"


def pack(lines: Iterable[tuple[int, int]]) -> bytes:
    """Pairs of line and count, in ascending order of lines."""
    packed = bytearray()
    before = 0
    for line, count in lines:
        if line <= before or count < 0:
            raise ValueError("lines ascend from 1, and counts are not negative")
        _append(packed, line - before)
        _append(packed, count)
        before = line
    return _DEFLATED + zlib.compress(bytes(packed), 6) if packed else b""


def unpack(packed: bytes) -> tuple[tuple[int, int], ...]:
    """What was packed."""
    if not packed:
        return ()
    if packed[:1] != _DEFLATED:
        raise ValueError("packed by a release that does it otherwise")
    opener = zlib.decompressobj()
    try:
        plain = opener.decompress(packed[1:], LARGEST)
    except zlib.error as error:
        raise ValueError(f"not packed lines: {error}") from None
    if not opener.eof:
        raise ValueError("not packed lines: cut, or too many")
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
            raise ValueError("not packed lines: half a pair")
        yield line, count


def _numbers(plain: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in plain:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > 63:
                raise ValueError("not packed lines: a number without end")
            continue
        yield number
        number = shift = 0
    if shift:
        raise ValueError("not packed lines: half a number")
