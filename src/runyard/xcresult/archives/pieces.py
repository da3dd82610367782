"""A stream of bytes that is read once, forwards, in amounts that its reader asks for.

The decoders give pieces of whatever size; formats want "the next 512 bytes" and "the next gigabyte, to
that file". Memory holds one piece at a time, and one header.
"""

from collections.abc import Iterator

from runyard.xcresult.archives.meter import PIECE
from runyard.xcresult.errors import BundleInvalid


class Pieces:
    """Pieces, read as a stream. A stream that ends too early is a damaged archive."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.position = 0

    def at_end(self) -> bool:
        """Whether nothing follows."""
        return not self._fill()

    def peek(self, count: int) -> bytes:
        """At most so many of the next bytes, which stay."""
        while len(self._rest) < count and (piece := next(self._pieces, None)) is not None:
            self._rest = memoryview(bytes(self._rest) + piece)
        return bytes(self._rest[:count])

    def take(self, count: int) -> bytes:
        """Exactly so many bytes, in memory: for headers."""
        return b"".join(self.copy(count))

    def copy(self, count: int) -> Iterator[bytes]:
        """Exactly so many bytes, piece by piece."""
        while count:
            if not self._fill():
                raise BundleInvalid("the archive is cut short")
            piece = self._rest[: min(count, PIECE)]
            self._rest = self._rest[len(piece) :]
            self.position += len(piece)
            count -= len(piece)
            yield bytes(piece)

    def skip(self, count: int) -> None:
        """Pass over so many bytes."""
        for _ in self.copy(count):
            pass

    def _fill(self) -> bool:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._rest = memoryview(piece)
        return True
