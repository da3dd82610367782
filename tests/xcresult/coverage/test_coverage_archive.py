"""Tests the coverage archive: decoded line counts, and archives that declare too many or too few lines."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.xcresult.coverage.measured import archive, counts, run

from runyard.xcresult.errors import BundleInvalid, TooLarge, XcresultError
from runyard.xcresult.reader.coverage import archive as archive_module
from runyard.xcresult.reader.coverage.archive import Archive
from runyard.xcresult.reader.coverage.model import Line, Range

GOOD = archive(
    {
        "/src/A.swift": counts([run(None, 3), run(7, 2), run(0), run(None)], [(4, 9, 12, 3)]),
        "/src/Grüße.swift": counts([run(2**48 - 1)]),
    }
)


def test_lines_are_numbered_from_one_and_only_executable_ones_are_returned() -> None:
    found = Archive(*GOOD)
    assert found.paths() == ("/src/A.swift", "/src/Grüße.swift")
    lines = found.lines("/src/A.swift")
    assert lines is not None
    assert lines.lines == (Line(4, 7), Line(5, 7), Line(6, 0))
    assert lines.ranges == (Range(4, 9, 12, 3),)
    largest = found.lines("/src/Grüße.swift")
    assert largest is not None
    assert largest.lines == (Line(1, 2**48 - 1),)
    assert found.lines("/src/B.swift") is None


@pytest.mark.parametrize(
    ("index", "data"),
    [
        (b"", b""),
        (struct.pack("<I", 2**32 - 1), b""),
        (struct.pack("<IQQ", 1, 2**63, 0) + b"\1\0a", b"\0" * 8),
        (struct.pack("<IQQ", 1, 20, 0) + b"\xff\xffa", b"\0" * 8),
        (struct.pack("<IQQ", 1, 20, 2**63) + b"\1\0a", b"\0" * 8),
        (struct.pack("<IQQ", 1, 20, 0) + b"\1\0a", struct.pack("<I", 2**31)),
        (struct.pack("<IQQ", 1, 20, 0) + b"\1\0a", struct.pack("<II", 0, 2**31)),
    ],
)
def test_what_lies_outside_is_invalid(index: bytes, data: bytes) -> None:
    with pytest.raises(BundleInvalid):
        Archive(index, data)


def test_a_few_bytes_cannot_claim_billions_of_lines() -> None:
    bomb = counts([run(1, 32768)] * 2000)
    with pytest.raises(TooLarge, match="a file of"):
        Archive(*archive({"/src/A.swift": bomb}))
    part = counts([run(1, 32768)] * 30)
    with pytest.raises(TooLarge, match="archive has more than"):
        Archive(*archive({f"/src/{number}.swift": part for number in range(21)}))


def test_a_file_of_nothing_but_ranges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "FILE_LINES", 3)
    with pytest.raises(TooLarge, match="a file of"):
        Archive(*archive({"a": counts([run(1)], [(1, 1, 1, 1)] * 4)}))


def test_files_that_share_their_counts_are_each_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    index, data = archive({"a": counts([run(1, 100)]), "b": b""})
    entries = struct.unpack_from("<IQQQQ", index)
    shared = struct.pack("<IQQQQ", 2, entries[1], 0, entries[3], 0) + index[36:]
    assert Archive(shared, data).lines("b") is not None
    monkeypatch.setattr(archive_module, "LINES", 199)
    with pytest.raises(TooLarge):
        Archive(shared, data)


@given(st.data())
def test_a_changed_archive_raises_only_what_is_announced(data: st.DataObject) -> None:
    index, lines = bytearray(GOOD[0]), bytearray(GOOD[1])
    for part in (index, lines):
        for _ in range(data.draw(st.integers(0, 4))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Archive(bytes(index), bytes(lines))
    except XcresultError:
        return
    for path in found.paths():
        found.lines(path)
