"""Compressed streams around a tar: gzip, zstd, xz, decoded piece by piece.

Each decoder is asked for at most one piece of output at a time, so a bomb costs no memory and meets the
meter after each piece. A stream may consist of several members; it has to end where a member ends,
since a prefix of an archive otherwise looks like a smaller archive. Zeros after the end are padding.
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
        """At most one piece; called with b"" while there is more to come."""
        ...

    @property
    def hungry(self) -> bool:
        """Whether nothing comes without more input."""
        ...

    @property
    def left_over(self) -> bytes | None:
        """What followed the member's end; None before it."""
        ...


def raw_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """A file as it is."""
    while piece := file.read(PIECE):
        meter.produced(len(piece))
        yield piece


def gzip_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """What a gzip file holds."""
    return _members(file, meter, _Gzip, "gzip")


def zstd_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """What a zstd file holds."""
    return _members(file, meter, _zstd, "zstd")


def xz_pieces(file: BinaryIO, meter: Meter) -> Iterator[bytes]:
    """What an xz file holds."""
    return _members(file, meter, _xz, "xz")


def _members(
    file: BinaryIO, meter: Meter, new: Callable[[], Decoder], kind: str
) -> Iterator[bytes]:
    decoder: Decoder | None = None
    data = file.read(PIECE)
    try:
        while data or (decoder is not None and not decoder.hungry):
            decoder = decoder or new()
            out = decoder.decode(data)
            meter.produced(len(out))
            yield out
            data = b""
            rest = decoder.left_over
            if rest is not None:
                decoder, data = None, rest
            if not data and (decoder is None or decoder.hungry):
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
        self.hungry = True

    def decode(self, data: bytes) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, PIECE)
        self.hungry = len(out) < PIECE and not self._inner.unconsumed_tail
        return out

    @property
    def left_over(self) -> bytes | None:
        return self._inner.unused_data if self._inner.eof else None


class _Inner(Protocol):
    """What the decoders of xz and zstd have in common."""

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
    def hungry(self) -> bool:
        return self._inner.needs_input

    @property
    def left_over(self) -> bytes | None:
        return self._inner.unused_data if self._inner.eof else None


def _xz() -> Decoder:
    return _Framed(lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY))


def _zstd() -> Decoder:
    return _Framed(new_decoder())
