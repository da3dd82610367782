"""Reads tar archives from start to end: ustar, pax and GNU names.

The standard library is not used: it reads headers of any size into memory, follows chains of headers recursively and
keeps every member. Links, devices and sparse files are refused.
"""

from collections.abc import Iterator

from runyard.xcresult.archives.meter import Meter
from runyard.xcresult.archives.paths import parts_of, shown, text_of
from runyard.xcresult.archives.pieces import Pieces
from runyard.xcresult.archives.sink import Sink
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat

BLOCK = 512
EXTENDED_BYTES = 4 * 1024 * 1024  # largest extended header; it may contain extended attributes
_REGULAR = frozenset({b"0", b"\0", b"7"})
_IRREGULAR = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
_ZERO = bytes(BLOCK)


def is_header(block: bytes) -> bool:
    """Whether this is a tar header, by its checksum."""
    if len(block) < BLOCK or block[:BLOCK] == _ZERO:
        return False
    return _sum_is_right(block[:BLOCK])


def extract_tar(stream: Pieces, sink: Sink, meter: Meter) -> None:
    """Write the needed files of a tar archive."""
    for name, size in _files(stream, meter):
        parts = parts_of(name, meter.limits)
        if sink.wants(parts):
            meter.declared(size)
            sink.file(parts, stream.copy(size))
        else:
            stream.skip(size)
        stream.skip(-size % BLOCK)


def _files(stream: Pieces, meter: Meter) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file, with the stream at its first byte; the name of a directory ends in a slash."""
    extended: dict[str, str] = {}
    while not stream.at_end():
        block = stream.take(BLOCK)
        if block == _ZERO:
            return
        if not _sum_is_right(block):
            raise BundleInvalid("the tar archive is damaged: the checksum of a header is wrong")
        meter.entry()
        kind, size = block[156:157], _number(block[124:136])
        if kind in {b"x", b"g", b"L", b"K"}:
            held = _extended(stream, size)
            meter.header(size)
            if kind == b"x":
                extended.update(_pax(held))
            elif kind == b"g":
                _pax(held)
            elif kind == b"L":
                extended["path"] = text_of(held.split(b"\0", 1)[0])
            continue
        name = extended.get("path") or _name(block)
        size = _declared(extended, size)
        extended = {}
        yield from _entry(kind, name, size, stream=stream, meter=meter)
    raise BundleInvalid("the tar archive is cut short")


def _entry(
    kind: bytes, name: str, size: int, *, stream: Pieces, meter: Meter
) -> Iterator[tuple[str, int]]:
    if kind in _IRREGULAR:
        raise BundleInvalid(f"the archive holds {_IRREGULAR[kind]}: {shown(name)}")
    if kind == b"S":
        raise UnsupportedFormat(f"the tar archive holds a sparse file: {shown(name)}")
    if kind == b"5" or (kind in _REGULAR and name.endswith("/")):
        yield name.rstrip("/") + "/", 0
        if kind != b"5":
            stream.skip(size + -size % BLOCK)
    elif kind in _REGULAR:
        yield name, size
    else:  # a vendor-specific type, which bundles do not use
        parts_of(name, meter.limits)
        stream.skip(size + -size % BLOCK)


def _extended(stream: Pieces, size: int) -> bytes:
    if size > EXTENDED_BYTES:
        raise TooLarge(
            f"an extended header of the tar archive has more than {EXTENDED_BYTES} bytes"
        )
    held = stream.take(size)
    stream.skip(-size % BLOCK)
    return held


def _pax(held: bytes) -> dict[str, str]:
    """Parse the records that the reader uses: `LENGTH KEY=VALUE\\n`."""
    found: dict[str, str] = {}
    position = 0
    while position < len(held) and held[position : position + 1] != b"\0":
        length, space, _ = held[position : position + 20].partition(b" ")
        if not (space and length.isdigit() and int(length) > len(length) + 2):
            raise BundleInvalid("the tar archive is damaged: an extended header is malformed")
        end = position + int(length)
        key, _, value = held[position + len(length) + 1 : end - 1].partition(b"=")
        if end > len(held):
            raise BundleInvalid("the tar archive is damaged: an extended header is cut short")
        if key.startswith(b"GNU.sparse."):
            raise UnsupportedFormat("the tar archive holds a sparse file")
        if key in {b"path", b"size"}:
            found[key.decode()] = text_of(value)
        position = end
    return found


def _declared(extended: dict[str, str], size: int) -> int:
    text = extended.get("size")
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BundleInvalid("the tar archive is damaged: a size is not a number")
    return int(text)


def _name(block: bytes) -> str:
    name = text_of(block[:100].split(b"\0", 1)[0])
    if block[257:263] == b"ustar\0":  # headers with GNU's magic have no prefix field
        prefix = text_of(block[345:500].split(b"\0", 1)[0])
        return f"{prefix}/{name}" if prefix else name
    return name


def _sum_is_right(block: bytes) -> bool:
    try:
        stored = _number(block[148:156])
    except BundleInvalid:
        return False
    return stored == sum(block[:148]) + 8 * 0x20 + sum(block[156:])


def _number(field: bytes) -> int:
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if not text:
        return 0
    if not all(0x30 <= byte <= 0x37 for byte in text):
        raise BundleInvalid("the tar archive is damaged: a numeric field is not a number")
    return int(text, 8)
