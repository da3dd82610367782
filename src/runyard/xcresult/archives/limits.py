"""How much a stranger's bundle may make us do.

One value for the whole way from an upload to a result: extraction, decompression, decoding. A limit that
is passed raises `TooLarge`, whose message names the limit and its value. The defaults let through every
bundle that a CI run produces in earnest, and stop a bomb after an amount of work that a small machine
can bear.
"""

import msgspec

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be read and written for one bundle."""

    total_bytes: int = 32 * GIB
    """All files of an archive together, extracted."""
    entry_bytes: int = 16 * GIB
    """One file of an archive, extracted; also one object of the store that is streamed."""
    entries: int = 2_000_000
    """Entries of an archive, the skipped ones too; also objects of a bundle."""
    ratio: int = 250
    """Extracted bytes for each byte of the archive, judged from `ratio_floor` on."""
    ratio_floor: int = 256 * MIB
    """Below this many extracted bytes no ratio is a reason to refuse."""
    block_bytes: int = 64 * MIB
    """One block of an Apple Archive: it is decoded in memory, as a whole."""
    path_bytes: int = 1024
    """The path of one entry."""
    path_depth: int = 32
    """Components of the path of one entry."""
    object_bytes: int = 512 * MIB
    """One typed object, decompressed: it is decoded in memory, as a whole."""
    decoded_bytes: int = 8 * GIB
    """All typed objects of one reading together, decompressed."""
    depth: int = 200
    """Levels of a typed object, of nested suites and activities, of a directory listing."""
    references: int = 4_000_000
    """References of one object."""
