"""Reads the coverage archive: the execution count of every line, in three files of a directory.

`Index` names the files and where each one's counts begin in `Coverage`; a file's counts are runs of
lines that share a count, from line 1 on, then ranges inside lines. A run of eight bytes may stand for
32,768 lines and two names may share their counts, so a few kilobytes could declare billions of lines. So the
lines of all files together are counted, without decoding them, before the first file is returned.
"""

import struct

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.coverage.model import FileLines, Line, Range

LINES = 20_000_000
"""Largest number of lines of all files together, including lines that cannot be executed."""
FILE_LINES = 500_000
"""Largest number of lines of one file, and of ranges in them: a file is decoded in memory as a whole."""
COUNT = struct.Struct("<I")
NAME = struct.Struct("<H")
ENTRY = struct.Struct("<QQ")
RUN = struct.Struct("<Q")
RANGE = struct.Struct("<IIIQ")
EXECUTABLE = 0x8000 << 48
HITS = (1 << 48) - 1


class Archive:
    """The line counts of one archive; a `LineSource`."""

    def __init__(self, index: bytes, counts: bytes) -> None:
        self._counts = counts
        try:
            self._offsets = _entries(index)
            _check(counts, self._offsets)
        except (struct.error, ValueError) as error:
            raise BundleInvalid(f"the coverage archive is damaged: {error}") from error

    def paths(self) -> tuple[str, ...]:
        """The files of the archive, in its order."""
        return tuple(self._offsets)

    def lines(self, path: str) -> FileLines | None:
        """Decode one file's lines."""
        offset = self._offsets.get(path)
        if offset is None:
            return None
        runs, ranges_at = _span(self._counts, offset, RUN)
        ranges, end = _span(self._counts, ranges_at, RANGE)
        return FileLines(
            lines=_lines(self._counts[runs:ranges_at]),
            ranges=tuple(Range(*found) for found in RANGE.iter_unpack(self._counts[ranges:end])),
        )


def _entries(index: bytes) -> dict[str, int]:
    (count,) = COUNT.unpack_from(index)
    end = COUNT.size + count * ENTRY.size
    if end > len(index):
        raise ValueError(f"{count} files do not fit in an index of {len(index)} bytes")
    return {
        _name(index, name): counts for name, counts in ENTRY.iter_unpack(index[COUNT.size : end])
    }


def _name(index: bytes, offset: int) -> str:
    if offset + NAME.size > len(index):
        raise ValueError("a name lies outside the index")
    (length,) = NAME.unpack_from(index, offset)
    begin = offset + NAME.size
    if begin + length > len(index):
        raise ValueError("a name lies outside the index")
    return index[begin : begin + length].decode("utf-8", "replace")


def _span(data: bytes, offset: int, record: struct.Struct) -> tuple[int, int]:
    """Begin and end of the records that follow a count."""
    if offset + COUNT.size > len(data):
        raise ValueError("counts lie outside the archive")
    (count,) = COUNT.unpack_from(data, offset)
    begin = offset + COUNT.size
    end = begin + count * record.size
    if end > len(data):
        raise ValueError(f"{count} records lie outside the archive")
    return begin, end


def _check(data: bytes, offsets: dict[str, int]) -> None:
    """Check that every file's counts are inside the archive and the total number of lines is plausible."""
    total = 0
    known: dict[int, int] = {}
    for offset in offsets.values():
        if offset not in known:
            begin, end = _span(data, offset, RUN)
            first, last = _span(data, end, RANGE)
            known[offset] = _length(data[begin:end])
            if max(known[offset], (last - first) // RANGE.size) > FILE_LINES:
                raise TooLarge(f"a file of the coverage archive has more than {FILE_LINES} lines")
        total += known[offset]
        if total > LINES:
            raise TooLarge(f"the coverage archive has more than {LINES} lines")


def _length(runs: bytes) -> int:
    """How many lines these runs cover: one more than the low fifteen bits of each one's last two bytes."""
    lows = sum(runs[6::8])
    highs = sum(high & 0x7F for high in runs[7::8])
    return len(runs) // RUN.size + lows + (highs << 8)


def _lines(runs: bytes) -> tuple[Line, ...]:
    found: list[Line] = []
    number = 1
    for (run,) in RUN.iter_unpack(runs):
        after = number + (run >> 48 & 0x7FFF) + 1
        if run & EXECUTABLE:
            hits = run & HITS
            found.extend(Line(line, hits) for line in range(number, after))
        number = after
    return tuple(found)
