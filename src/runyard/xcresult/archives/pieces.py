"""Reads a stream of bytes once, from start to end, in amounts that the caller chooses.

Decoders yield pieces of any size; formats read "the next 512 bytes" and "the next gigabyte into that file". One piece
and one header are in memory at a time.
"""

from collections.abc import Iterator

from runyard.xcresult.archives.meter import PIECE
from runyard.xcresult.errors import BundleInvalid


class Pieces:
    """A stream over pieces; a stream that ends early raises BundleInvalid."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.position = 0

    def at_end(self) -> bool:
        """Whether the stream has ended."""
        return not self._fill()

    def peek(self, count: int) -> bytes:
        """Return at most `count` of the next bytes without consuming them."""
        while len(self._rest) < count and (piece := next(self._pieces, None)) is not None:
            self._rest = memoryview(bytes(self._rest) + piece)
        return bytes(self._rest[:count])

    def take(self, count: int) -> bytes:
        """Read exactly `count` bytes into memory; used for headers."""
        return b"".join(self.copy(count))

    def copy(self, count: int) -> Iterator[bytes]:
        """Yield exactly `count` bytes, in pieces."""
        while count:
            if not self._fill():
                raise BundleInvalid("the archive is cut short")
            piece = self._rest[: min(count, PIECE)]
            self._rest = self._rest[len(piece) :]
            self.position += len(piece)
            count -= len(piece)
            yield bytes(piece)

    def skip(self, count: int) -> None:
        """Skip `count` bytes."""
        for _ in self.copy(count):
            pass

    def _fill(self) -> bool:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._rest = memoryview(piece)
        return True
