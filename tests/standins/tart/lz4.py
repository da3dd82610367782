"""LZ4 as Apple's compression library frames it, which is how tart stores the layers of a disk.

    bv41 <size> <packed size> <an LZ4 block>     bv4- <size> <the bytes>     bv4$ (the end)

Reading takes both; writing stores blocks as they are, but for blocks of zeros, which take a few bytes. A packed block
may refer to the 64 KiB before it, also in another block.
"""

import struct
from collections.abc import Iterable, Iterator

PACKED, STORED, END = b"bv41", b"bv4-", b"bv4$"
BLOCK = 1 << 16
WINDOW = 1 << 16


class Damaged(Exception):
    """The bytes are not a layer."""


class Unpacker:
    """Unpacks a stream piece by piece."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._window = b""
        self.finished = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The blocks that are complete now."""
        self._buffer += data
        while not self.finished:
            magic = bytes(self._buffer[:4])
            if magic == END:
                self.finished = True
                return
            head = 12 if magic == PACKED else 8
            if len(self._buffer) < head:
                if len(magic) == 4 and magic not in {PACKED, STORED}:
                    raise Damaged(f"unknown block {magic!r}")
                return
            sizes = struct.unpack_from("<II" if magic == PACKED else "<I", self._buffer, 4)
            if magic not in {PACKED, STORED}:
                raise Damaged(f"unknown block {magic!r}")
            if len(self._buffer) < head + sizes[-1]:
                return
            body = bytes(self._buffer[head : head + sizes[-1]])
            del self._buffer[: head + sizes[-1]]
            block = body if magic == STORED else unpacked(body, sizes[0], self._window)
            self._window = (self._window + block)[-WINDOW:]
            yield block


def unpacked(body: bytes, size: int, window: bytes) -> bytes:
    """One LZ4 block; `window` is what was unpacked before it."""
    out = bytearray(window)
    at = 0
    while at < len(body):
        token = body[at]
        literals, at = _length(body, at + 1, token >> 4)
        out += body[at : at + literals]
        at += literals
        if at >= len(body):
            break
        distance = body[at] | body[at + 1] << 8
        count, at = _length(body, at + 2, token & 15)
        _repeat(out, distance, count + 4)
    if len(out) != len(window) + size:
        raise Damaged("a block has another size than its head says")
    return bytes(out[len(window) :])


def _length(body: bytes, at: int, first: int) -> tuple[int, int]:
    if first < 15:
        return first, at
    total = first
    while True:
        total += body[at]
        at += 1
        if body[at - 1] != 255:
            return total, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    if not 0 < distance <= len(out):
        raise Damaged("a block refers to what is not there")
    piece = bytes(out[-distance:])
    out += (piece * (count // distance + 1))[:count]


def packed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a layer with this content."""
    for block in blocks:
        zeros = _zeros(len(block)) if not any(block) else None
        if zeros is None:
            yield STORED + struct.pack("<I", len(block)) + block
        else:
            yield PACKED + struct.pack("<II", len(block), len(zeros)) + zeros
    yield END


def _zeros(size: int) -> bytes | None:
    """A block of zeros: one literal, one repetition of it, five literals at the end, as the format wants it."""
    if size < 64:
        return None
    count = size - 6 - 4 - 15
    return b"\x1f\0\1\0" + b"\xff" * (count // 255) + bytes([count % 255]) + b"\x50" + b"\0" * 5
