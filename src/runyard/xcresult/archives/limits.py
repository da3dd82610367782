"""Limits for reading an untrusted bundle.

One value is used from an upload to a result: extraction, decompression, decoding. Exceeding a limit raises `TooLarge`,
whose message names the limit and its value. The defaults accept every bundle of a real CI run, and stop any other input
before it has taken 30 s of one core or 512 MB (docs/xcresult.md has the reasons).
"""

import msgspec

from runyard.xcresult.reader.budget import HELD, LOADED, WORK, Budget

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one bundle."""

    total_bytes: int = 32 * GIB
    """All files of an archive together, extracted."""
    entry_bytes: int = 16 * GIB
    """One file of an archive, extracted; also one object of the store that is streamed."""
    entries: int = 250_000
    """Entries of an archive, including skipped ones; also objects of a bundle."""
    ratio: int = 250
    """Extracted bytes for each byte of the archive; checked once `ratio_floor` bytes are extracted."""
    ratio_floor: int = 256 * MIB
    """Number of extracted bytes below which the ratio is not checked."""
    block_bytes: int = 64 * MIB
    """One block of an Apple Archive, because a block is decoded in memory as a whole."""
    path_bytes: int = 1024
    """The path of one entry."""
    path_depth: int = 32
    """Components of the path of one entry."""
    object_bytes: int = 64 * MIB
    """One decompressed typed object, because it is decoded in memory as a whole: bytes, text and values."""
    decoded_bytes: int = 8 * GIB
    """All typed objects of one reading together, decompressed."""
    depth: int = 200
    """Levels of a typed object, of nested suites and activities, of a directory listing."""
    references: int = 500_000
    """References of one object."""
    work: int = WORK
    """Work of one reading, about its microseconds (reader/budget.py); more for a large upload."""
    held_bytes: int = HELD
    """Bytes of the result in memory, estimated."""
    loaded_bytes: int = LOADED
    """Bytes of decoded objects in memory at a time, estimated: bytes, text, nodes and values."""

    def budget(self, *, uploaded: int = 0) -> Budget:
        """The budget for one upload of this size."""
        return Budget(self.work, self.held_bytes, self.loaded_bytes, uploaded=uploaded)
