"""Decodes compressed streams around a tar: gzip, zstd, xz.

Each decoder returns at most one piece of output at a time, so a bomb uses no memory, and the meter checks after each
piece. A stream may have several members and must end where a member ends: a truncated archive would otherwise look like
a smaller one. Zeros after the end are padding.

A decoder copies what follows the end of its member. So after a short member the next one gets only a little input: the
copies of a million members in one piece would take minutes.

An xz stream may have three filters before LZMA2, and a filter or a check of its own in each block. All are accepted,
and each byte is counted as if it had the slowest.
"""

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from runyard.xcresult.archives.meter import PIECE, Meter
from runyard.xcresult.errors import BundleInvalid
from runyard.xcresult.reader.frames import ZstdError, new_decoder

XZ_MEMORY = 128 * 1024 * 1024
LEAST = 1024
"""Bytes that a decoder gets after a short member."""


class Decoder(Protocol):
    """One member of a compressed stream."""

    def decode(self, data: bytes) -> bytes:
        """Decode at most one piece; call with b"" while more output is available."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed for more output."""
        ...

    @property
    def left_over(self) -> bytes | None:
        """The bytes after the member's end; None before the end is reached."""
        ...


def raw_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """Yield the bytes of a file without decoding."""
    while piece := file.read(PIECE):
        meter.produced(len(piece))
        yield piece


def gzip_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """Yield the decompressed content of a gzip file."""
    return _members(file, meter, _Gzip, "gzip")


def zstd_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """Yield the decompressed content of a zstd file."""
    return _members(file, meter, _zstd, "zstd")


def xz_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """Yield the decompressed content of an xz file."""
    return _members(file, meter, _xz, "xz")


def _members(
    file: BinaryIO, meter: Meter, new: Callable[[], Decoder], kind: str
) -> Iterator[bytes]:
    decoder: Decoder | None = None
    source, taken = _Source(file), 0
    data = source.take(PIECE)
    try:
        while data or (decoder is not None and not decoder.needs_input):
            if decoder is None:
                meter.frame()
                decoder, taken = new(), 0
            meter.taken(len(data), kind)
            out = decoder.decode(data)
            meter.produced(len(out), kind)
            yield out
            taken += len(data)
            rest = decoder.left_over
            if rest is not None:
                source.give_back(len(rest))
                decoder, data = None, source.member(taken - len(rest), meter)
            else:
                data = source.take(max(LEAST, taken)) if decoder.needs_input else b""
    except (zlib.error, lzma.LZMAError, ZstdError) as error:
        raise BundleInvalid(f"the {kind} stream is damaged: {_line(error)}") from error
    if decoder is not None:
        raise BundleInvalid(f"the {kind} stream is cut short")


class _Source:
    """Reads the compressed bytes in pieces, of which the end may be given back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._piece = memoryview(b"")
        self._at = 0

    def take(self, most: int) -> bytes:
        """The next bytes; empty at the end of the file."""
        if self._at >= len(self._piece):
            self._piece, self._at = memoryview(self._file.read(PIECE)), 0
        found = bytes(self._piece[self._at : self._at + most])
        self._at += len(found)
        return found

    def give_back(self, count: int) -> None:
        """Return the last `count` bytes of what was taken last."""
        self._at -= count

    def member(self, before: int, meter: Meter) -> bytes:
        """The first bytes of the next member, without padding; `before` is the size of the member before it."""
        while data := self.take(max(LEAST, before)):
            meter.check()
            if found := data.lstrip(b"\0"):
                return found
        return b""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self.needs_input = True

    def decode(self, data: bytes) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, PIECE)
        self.needs_input = len(out) < PIECE and not self._inner.unconsumed_tail
        return out

    @property
    def left_over(self) -> bytes | None:
        return self._inner.unused_data if self._inner.eof else None


class _Inner(Protocol):
    """The common interface of the xz and zstd decoders."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Framed:
    def __init__(self, inner: _Inner) -> None:
        self._inner = inner

    def decode(self, data: bytes) -> bytes:
        return self._inner.decompress(data, PIECE)

    @property
    def needs_input(self) -> bool:
        return self._inner.needs_input

    @property
    def left_over(self) -> bytes | None:
        return self._inner.unused_data if self._inner.eof else None


def _xz() -> Decoder:
    return _Framed(lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY))


def _zstd() -> Decoder:
    return _Framed(new_decoder())
