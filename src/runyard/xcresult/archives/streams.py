"""Decodes compressed streams around a tar: gzip, zstd, xz.

Each decoder returns at most one piece of output at a time, so a bomb uses no memory, and the meter checks after each
piece. A stream may have several members and must end where a member ends: a truncated archive would otherwise look like
a smaller one. Zeros after the end are padding.
"""

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from runyard.xcresult.archives.meter import PIECE, Meter
from runyard.xcresult.errors import BundleInvalid
from runyard.xcresult.reader.frames import ZstdError, new_decoder

XZ_MEMORY = 128 * 1024 * 1024


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
    data = file.read(PIECE)
    try:
        while data or (decoder is not None and not decoder.needs_input):
            decoder = decoder or new()
            out = decoder.decode(data)
            meter.produced(len(out))
            yield out
            data = b""
            rest = decoder.left_over
            if rest is not None:
                decoder, data = None, rest
            if not data and (decoder is None or decoder.needs_input):
                data = file.read(PIECE)
            if decoder is None and not data.strip(b"\0"):
                data = _after_padding(file, meter)
    except (zlib.error, lzma.LZMAError, ZstdError) as error:
        raise BundleInvalid(f"the {kind} stream is damaged: {_line(error)}") from error
    if decoder is not None:
        raise BundleInvalid(f"the {kind} stream is cut short")


def _after_padding(file: BinaryIO, meter: Meter) -> bytes:
    while data := file.read(PIECE):
        meter.check()
        if data.strip(b"\0"):
            return data.lstrip(b"\0")
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
