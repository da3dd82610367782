"""Reads Apple Archives: the entries, and the layer of compressed blocks around them.

The outer layer is optional: `pbz`, a letter for the algorithm, the block size, then blocks of {raw size, stored
size, bytes}, all big-endian; equal sizes mean an uncompressed block. The inner layer has entries of
`AA01` (`YAA1` in old ones), the header's size, fields, and then the blobs in the order of their fields,
all little-endian. One block and one header are in memory at a time.
"""

import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from runyard.xcresult.archives.lzfse_blocks import decode_lzfse
from runyard.xcresult.archives.meter import Meter
from runyard.xcresult.archives.paths import parts_of, shown, text_of
from runyard.xcresult.archives.pieces import Pieces
from runyard.xcresult.archives.sink import Sink
from runyard.xcresult.archives.streams import XZ_MEMORY
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat

ENTRY_MAGICS = (b"AA01", b"YAA1")
BLOCKS_MAGIC = b"pbz"
_REFUSED = {b"4": "LZ4", b"b": "LZBITMAP"}
_IRREGULAR = {
    "L": "a symbolic link",
    "P": "a pipe",
    "C": "a device",
    "B": "a device",
    "S": "a socket",
}
_SIZES = {"F": 4, "G": 20, "H": 32, "I": 48, "J": 64, "S": 8, "T": 12, "*": 0}
_BLOBS = {"A": 2, "B": 4, "C": 8}

Decode = Callable[[bytes, int], bytes]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of one entry's header that the reader uses."""

    kind: str
    path: str | None
    blobs: tuple[tuple[str, int], ...]


def extract_apple(stream: Pieces, sink: Sink, meter: Meter) -> None:
    """Write the files of the archive that the reader needs."""
    while not stream.at_end():
        meter.entry()
        entry = _entry(stream, meter)
        parts = parts_of(entry.path or "", meter.limits)
        if entry.kind in _IRREGULAR:
            raise BundleInvalid(
                f"the archive holds {_IRREGULAR[entry.kind]}: {shown(entry.path or '')}"
            )
        wanted = sink.wants(parts) and entry.kind == "F"
        if wanted and not any(key == "DAT" for key, _ in entry.blobs):
            sink.file(parts, ())
        for key, size in entry.blobs:
            if key == "DAT" and wanted:
                meter.declared(size)
                sink.file(parts, stream.copy(size))
            else:
                stream.skip(size)


def _entry(stream: Pieces, meter: Meter) -> Entry:
    head = stream.take(6)
    size = int.from_bytes(head[4:], "little")
    if head[:4] not in ENTRY_MAGICS or size < len(head):
        raise BundleInvalid("the Apple Archive is damaged: no entry where one should be")
    header = stream.take(size - len(head))
    meter.header(size)
    found: dict[str, str] = {}
    blobs: list[tuple[str, int]] = []
    position = 0
    while position < len(header):
        key, subtype = _field(header, position)
        position += 4
        if subtype in _BLOBS:
            width = _BLOBS[subtype]
            blobs.append((key, int.from_bytes(_bytes(header, position, width), "little")))
        elif subtype == "P":
            width = 2 + int.from_bytes(_bytes(header, position, 2), "little")
            value = text_of(_bytes(header, position, width)[2:])
            _once(found, key, value)
        elif subtype in {"1", "2", "4", "8"}:
            width = int(subtype)
            _once(found, key, chr(_bytes(header, position, width)[0]))
        else:
            width = _SIZES[subtype]
            _bytes(header, position, width)
        position += width
    if sum(key == "DAT" for key, _ in blobs) > 1:
        raise BundleInvalid("the Apple Archive is damaged: an entry has two contents")
    return Entry(kind=found.get("TYP", "M"), path=found.get("PAT"), blobs=tuple(blobs))


def _field(header: bytes, position: int) -> tuple[str, str]:
    field = _bytes(header, position, 4).decode("latin-1")
    subtype = field[3]
    if not (subtype in _SIZES or subtype in _BLOBS or subtype in "P1248"):
        raise BundleInvalid(f"the Apple Archive has a field of an unknown kind: {shown(field)}")
    return field[:3], subtype


def _once(found: dict[str, str], key: str, value: str) -> None:
    if key in found and key in {"TYP", "PAT"}:
        raise BundleInvalid(f"the Apple Archive is damaged: an entry has two fields {key}")
    found[key] = value


def _bytes(header: bytes, position: int, count: int) -> bytes:
    if position + count > len(header):
        raise BundleInvalid("the Apple Archive is damaged: a header is cut short")
    return header[position : position + count]


# ---------------------------------------------------------------------------------------------- blocks


def block_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """Yield the decompressed content of the blocks, one block at a time."""
    letter = _exactly(file, 12)[3:4]
    decode, kind = _decoder(letter), "xz" if letter == b"x" else ""
    for raw, stored in block_sizes(file):
        if raw > meter.limits.block_bytes:
            raise TooLarge(
                f"a block of the Apple Archive holds {raw} bytes,"
                f" more than {meter.limits.block_bytes} (block_bytes)"
            )
        meter.frame()
        meter.taken(stored, kind)
        meter.produced(raw, kind)
        data = _exactly(file, stored)
        yield data if raw == stored else decode(data, raw)


def block_sizes(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield the raw and stored size of each block. The caller reads or skips the block's bytes."""
    end = os.fstat(file.fileno()).st_size
    while head := file.read(16):
        raw, stored = int.from_bytes(head[:8], "big"), int.from_bytes(head[8:], "big")
        if len(head) != 16:
            raise BundleInvalid("the Apple Archive is cut short")
        if stored > raw:
            raise BundleInvalid("the Apple Archive is damaged: a block is larger than its contents")
        if stored > end:
            raise BundleInvalid("the Apple Archive is cut short")
        yield raw, stored


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise BundleInvalid("the Apple Archive is cut short")
    return data


def _decoder(letter: bytes) -> Decode:
    if letter in _REFUSED:
        raise UnsupportedFormat(
            f"an Apple Archive compressed with {_REFUSED[letter]} is not read:"
            " make it with LZFSE, LZMA, zlib or none"
        )
    decoders = {b"-": _stored, b"z": _inflate, b"x": _unxz, b"e": decode_lzfse}
    if letter not in decoders:
        raise UnsupportedFormat(
            f"an Apple Archive with an unknown compression: {shown(letter.decode('latin-1'))}"
        )
    return decoders[letter]


def _stored(data: bytes, size: int) -> bytes:
    raise BundleInvalid("the Apple Archive is damaged: an uncompressed block has two sizes")


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress deflate data, with or without zlib's header of two bytes; the checksum may be missing."""
    headed = len(data) > 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    for start in (2, 0) if headed else (0,):
        decoder = zlib.decompressobj(-15)
        try:
            out = decoder.decompress(data[start:], size + 1)
        except zlib.error:
            continue
        if len(out) == size:
            return out
    raise BundleInvalid("the Apple Archive is damaged: a zlib block does not have its size")


def _unxz(data: bytes, size: int) -> bytes:
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_AUTO, memlimit=XZ_MEMORY)
    try:
        out = decoder.decompress(data, size + 1)
    except lzma.LZMAError as error:
        raise BundleInvalid(f"the Apple Archive is damaged: an LZMA block: {error}") from error
    if len(out) != size:
        raise BundleInvalid("the Apple Archive is damaged: an LZMA block does not have its size")
    return out
