"""Decodes stored payloads: one zstd frame, or raw bytes.

A writer stores payloads raw if zstd does not make them smaller, so the first bytes of each payload decide. Frames do
not contain the length of their content: the caller limits the output. Invariants:
- A frame that does not end is damage, and so are bytes after its end. A truncated frame would otherwise
  decode, silently, to a part of its content.
- Only FrameDamaged and TooLarge are raised.
- The number of frames is limited. Xcode writes one; each costs time, whether it has content or not.
"""

from collections.abc import Generator, Iterable, Iterator

from runyard.xcresult.errors import TooLarge

try:
    from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # from 3.14 on
except ImportError:
    from backports import zstd

MAGIC = b"\x28\xb5\x2f\xfd"
PIECE = 1 << 18
"""Largest number of bytes of one piece of a stream."""
FRAMES = 1024
"""Largest number of frames of one payload."""

compress = zstd.compress
new_decoder = zstd.ZstdDecompressor
new_encoder = zstd.ZstdCompressor
Encoding = zstd.CompressionParameter
ZstdError = zstd.ZstdError


class FrameDamaged(ValueError):
    """The stored bytes are not one complete frame."""


def whole(stored: bytes, *, limit: int) -> bytes:
    """The payload of `stored`, of at most `limit` bytes."""
    if not stored.startswith(MAGIC):
        if len(stored) > limit:
            raise _too_large(limit)
        return stored
    decoder = zstd.ZstdDecompressor()
    try:
        first = decoder.decompress(stored, limit + 1)
    except zstd.ZstdError as error:
        raise FrameDamaged(f"damaged zstd frame: {error}") from error
    if len(first) > limit:
        raise _too_large(limit)
    if not decoder.eof:
        raise FrameDamaged("truncated zstd frame")
    rest: bytes = decoder.unused_data
    return _joined(first, rest, limit) if rest else first


def _joined(first: bytes, rest: bytes, limit: int) -> bytes:
    """The payload of several frames, of which the first is decoded."""
    if not rest.startswith(MAGIC):
        raise FrameDamaged(f"{len(rest)} bytes after the zstd frame")
    parts, size = [first], len(first)
    for part in pieces(rest[at : at + PIECE] for at in range(0, len(rest), PIECE)):
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def pieces(stored: Iterable[bytes]) -> Iterator[bytes]:
    """The payload piece by piece, in memory that does not depend on its size."""
    source = _refilled(iter(stored))
    head = next(source, b"")
    if not head.startswith(MAGIC):
        yield from (part for part in (head,) if part)
        yield from source
        return
    rest, frames = head, 0
    while rest:
        frames += 1
        if frames > FRAMES:
            raise TooLarge(f"an object has more than {FRAMES} zstd frames (frames)")
        rest = yield from _frame(rest, source)
        if rest and not rest.startswith(MAGIC):
            raise FrameDamaged("bytes after the zstd frame")


def _frame(data: bytes, source: Iterator[bytes]) -> Generator[bytes, None, bytes]:
    """One frame, piece by piece; returns what follows it."""
    decoder = zstd.ZstdDecompressor()
    while True:
        try:
            part = decoder.decompress(data, PIECE)
        except zstd.ZstdError as error:
            raise FrameDamaged(f"damaged zstd frame: {error}") from error
        if part:
            yield part
        if decoder.eof:
            break
        data = next(source, b"") if decoder.needs_input else b""
        if decoder.needs_input and not data:
            raise FrameDamaged("truncated zstd frame")
    rest: bytes = decoder.unused_data
    while len(rest) < len(MAGIC) and (more := next(source, b"")):
        rest += more
    return rest


def _refilled(stored: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes without empty pieces; the first is long enough to detect the kind."""
    head = b""
    for part in stored:
        head += part
        if len(head) >= len(MAGIC):
            yield head
            yield from (part for part in stored if part)
            return
    if head:
        yield head


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"an object is larger than {limit} bytes (limit object_bytes)")
