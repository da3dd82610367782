"""Reads ZIP archives by their directory: stored and deflated entries, also beyond 4 GiB.

The standard library is not used: it reads the whole directory into memory and raises a dozen kinds of exceptions for
damage. The directory is read one entry at a time and verified: an entry must have its declared size and checksum, its
own header must agree, and all entries together may not read more than the archive has (overlapping entries are how
small archives become huge). Encrypted and split archives and other methods are refused with a message.
"""

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from runyard.xcresult.archives.meter import PIECE, Meter
from runyard.xcresult.archives.paths import parts_of, shown
from runyard.xcresult.archives.sink import Sink
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat

_END = struct.Struct("<4s4H2LH")
_END64_AT = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_UTF8, _ENCRYPTED = 0x800, 0x2041
_METHODS = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "XZ",
    97: "WavPack",
    98: "PPMd",
    99: "AES encryption",
}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the directory."""

    raw_name: bytes
    name: str
    flags: int
    method: int
    crc: int
    stored: int
    size: int
    offset: int
    mode: int

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory: by its trailing slash or its Unix mode."""
        return self.name.endswith("/") or stat.S_ISDIR(self.mode)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The position of the directory. `shift`: bytes before the archive; `count`: the declared number of entries."""

    offset: int
    size: int
    shift: int
    count: int


def extract_zip(file: BinaryIO, sink: Sink, meter: Meter) -> None:
    """Write the needed files of a ZIP archive."""
    place = find_directory(file)
    meter.announced(place.count)
    read = 0
    for entry in entries(file, place):
        meter.entry()
        parts = parts_of(entry.name, meter.limits)
        if stat.S_IFMT(entry.mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
            what = "a link" if stat.S_ISLNK(entry.mode) else "no regular file"
            raise BundleInvalid(f"the archive holds {what}: {shown(entry.name)}")
        if not sink.wants(parts) or entry.is_directory:
            continue
        read += entry.stored
        if read > place.offset:
            raise BundleInvalid("the ZIP archive is damaged: its entries overlap")
        meter.declared(entry.size)
        sink.file(parts, _contents(file, entry, end=place.offset, meter=meter))


def find_directory(file: BinaryIO) -> Place:
    """Find the central directory, by the record at the archive's end."""
    length = file.seek(0, os.SEEK_END)
    start = max(0, length - 0xFFFF - _END.size)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise BundleInvalid("the ZIP archive is cut short: it has no directory at its end")
    _, disk, first, here, count, size, offset, _ = _END.unpack_from(tail, at)
    end = start + at
    if 0xFFFF in {disk, first, here, count} or 0xFFFFFFFF in {size, offset}:
        found = _find_zip64(file, end)
        if found is not None:
            end, disk, first, count, size, offset = found
    if disk or first:
        raise UnsupportedFormat("a ZIP archive in several parts is not read")
    shift = end - size - offset
    if shift < 0:
        raise BundleInvalid("the ZIP archive is damaged: its directory lies outside it")
    return Place(offset=offset + shift, size=size, shift=shift, count=count)


def _find_zip64(file: BinaryIO, end: int) -> tuple[int, int, int, int, int, int] | None:
    if end < _END64_AT.size:
        return None
    file.seek(end - _END64_AT.size)
    magic, _, at, _ = _END64_AT.unpack(file.read(_END64_AT.size))
    if magic != b"PK\x06\x07":
        return None
    if at > end - _END64_AT.size - _END64.size:
        raise BundleInvalid("the ZIP archive is damaged: its directory lies outside it")
    file.seek(at)
    record = _END64.unpack(file.read(_END64.size))
    if record[0] != b"PK\x06\x06":
        raise BundleInvalid("the ZIP archive is damaged: its 64-bit directory is missing")
    _, _, _, _, disk, first, _, count, size, offset = record
    return at, disk, first, count, size, offset


def entries(file: BinaryIO, place: Place) -> Iterator[Entry]:
    """Yield the directory's entries, one at a time; the caller may move the file position between two of them."""
    position, end = place.offset, place.offset + place.size
    while position < end:
        file.seek(position)
        fixed = file.read(_CENTRAL.size)
        if len(fixed) != _CENTRAL.size or fixed[:4] != b"PK\x01\x02":
            raise BundleInvalid("the ZIP archive is damaged: its directory is malformed")
        fields = _CENTRAL.unpack(fixed)
        names = fields[10], fields[11], fields[12]
        text = file.read(names[0] + names[1])
        position += _CENTRAL.size + sum(names)
        if position > end or len(text) != names[0] + names[1]:
            raise BundleInvalid("the ZIP archive is damaged: its directory is cut short")
        yield _entry(fields, text[: names[0]], text[names[0] :], shift=place.shift)


def _entry(fields: tuple[int, ...], name: bytes, extra: bytes, *, shift: int) -> Entry:
    _, _, _, flags, method, _, _, crc, stored, size, _, _, _, disk, _, external, offset = fields
    wide = _wide(extra)
    if size == 0xFFFFFFFF and wide:
        size = wide.pop(0)
    if stored == 0xFFFFFFFF and wide:
        stored = wide.pop(0)
    if offset == 0xFFFFFFFF and wide:
        offset = wide.pop(0)
    if disk not in {0, 0xFFFF}:
        raise UnsupportedFormat("a ZIP archive in several parts is not read")
    return Entry(
        raw_name=name,
        name=_text(name, flags),
        flags=flags,
        method=method,
        crc=crc,
        stored=stored,
        size=size,
        offset=offset + shift,
        mode=external >> 16,
    )


def _wide(extra: bytes) -> list[int]:
    """Read the 64-bit numbers from the ZIP64 extra field."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        body = extra[position + 4 : position + 4 + size]
        if kind == 1:
            return [value for (value,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8])]
        position += 4 + size
    return []


def _text(name: bytes, flags: int) -> str:
    """Decode a name: macOS writes UTF-8 without the flag; anything else is CP437."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8" if flags & _UTF8 else "cp437", "replace")


def _contents(file: BinaryIO, entry: Entry, *, end: int, meter: Meter) -> Iterator[bytes]:
    """Yield the entry's bytes and verify size and checksum."""
    if entry.flags & _ENCRYPTED:
        raise UnsupportedFormat(f"the ZIP archive is encrypted: {shown(entry.name)}")
    if entry.method not in {0, 8}:
        method = _METHODS.get(entry.method, f"number {entry.method}")
        raise UnsupportedFormat(f"the ZIP archive uses the compression method {method}")
    start = _start(file, entry) if entry.offset < end else end
    if start + entry.stored > end:
        raise BundleInvalid(f"the ZIP archive is damaged: {shown(entry.name)} lies outside it")
    file.seek(start)
    pieces = _stored(file, entry.stored)
    if entry.method == 8:
        pieces = _inflated(pieces, meter)
    size, crc = 0, 0
    for piece in pieces:
        size += len(piece)
        if size > entry.size:
            raise TooLarge(
                f"{shown(entry.name)} is larger than its declared size of {entry.size} bytes"
            )
        meter.produced(len(piece))
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != entry.size or crc != entry.crc:
        raise BundleInvalid(f"the ZIP archive is damaged: {shown(entry.name)} has a wrong checksum")


def _start(file: BinaryIO, entry: Entry) -> int:
    file.seek(entry.offset)
    fixed = file.read(_LOCAL.size)
    if len(fixed) != _LOCAL.size or fixed[:4] != b"PK\x03\x04":
        raise BundleInvalid(
            f"the ZIP archive is damaged: {shown(entry.name)} is not at its declared position"
        )
    fields = _LOCAL.unpack(fixed)
    if file.read(fields[9]) != entry.raw_name or fields[3] != entry.method:
        raise BundleInvalid(f"the ZIP archive is damaged: {shown(entry.name)} has two headers")
    return entry.offset + _LOCAL.size + len(entry.raw_name) + int(fields[10])


def _stored(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count:
        piece = file.read(min(count, PIECE))
        if not piece:
            raise BundleInvalid("the ZIP archive is cut short")
        count -= len(piece)
        yield piece


def _inflated(pieces: Iterator[bytes], meter: Meter) -> Iterator[bytes]:
    decoder = zlib.decompressobj(-15)
    try:
        for piece in pieces:
            meter.check()
            while piece or decoder.unconsumed_tail:
                yield decoder.decompress(decoder.unconsumed_tail + piece, PIECE)
                piece = b""
        while not decoder.eof and (rest := decoder.decompress(b"", PIECE)):
            yield rest
    except zlib.error as error:
        raise BundleInvalid(f"the ZIP archive is damaged: {error}") from error
    if not decoder.eof:
        raise BundleInvalid("the ZIP archive is damaged: an entry is cut short")
