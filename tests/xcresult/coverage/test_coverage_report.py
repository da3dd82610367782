"""Tests the coverage report, including cycles, bad indexes and implausible counts."""

import plistlib
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.xcresult.coverage.measured import UID, Report, functions, keyed

from runyard.xcresult.errors import BundleInvalid, TooLarge, XcresultError
from runyard.xcresult.reader.coverage import report as report_module
from runyard.xcresult.reader.coverage.report import decode_functions, decode_report


def one_file() -> Report:
    report = Report()
    packed = functions(("run()", 3, 2, 4, 7), ("closure #1 in run()", 5, 0, 1, 0))
    report.target("App.app", [report.file("/src/A.swift", packed, 2, 5)], 2, 5)
    return report


def test_targets_files_and_functions_are_found() -> None:
    found = decode_report(one_file().data(["App was not instrumented"]))
    assert (found.covered, found.executable) == (2, 5)
    assert found.complaints == ("App was not instrumented",)
    (target,) = found.targets
    assert (target.name, target.identifier, target.product) == (
        "App.app",
        "App.app:primary",
        "/build/App.app",
    )
    (file,) = target.files
    assert (file.name, file.path, file.covered, file.executable) == (
        "A.swift",
        "/src/A.swift",
        2,
        5,
    )
    assert [(each.name, each.line, each.count) for each in file.functions] == [
        ("run()", 3, 7),
        ("closure #1 in run()", 5, 0),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"bplist00",
        b"<?xml version='1.0'?><plist><dict/></plist>",
        keyed([]),
        keyed(["$null", "text"]),
        keyed(["$null", {"buildableCoverageObjects": UID(99)}]),
        keyed(["$null", {"buildableCoverageObjects": UID(1)}], root=UID(7)),
        keyed(["$null", {"coveredLines": -1}]),
        keyed(["$null", {"coveredLines": "many"}]),
        keyed(["$null", {"buildableCoverageObjects": UID(2)}, {"NS.objects": [UID(0)]}]),
        one_file().data()[:-40],
    ],
)
def test_a_damaged_report_is_invalid_and_nothing_else(data: bytes) -> None:
    with pytest.raises(BundleInvalid):
        decode_report(data)


def test_a_target_that_is_its_own_file_ends() -> None:
    report = Report()
    own = UID(len(report.objects) + 2)
    report.add("name")
    report.add({"NS.objects": [own]})
    report.targets.append(report.add({"name": UID(2), "sourceFiles": UID(3)}))
    assert decode_report(report.data()).targets[0].files[0].functions == ()


def test_lists_nested_beyond_reason_are_an_answer_and_no_crash() -> None:
    depth = 30_000
    lists = [b"\xa1" + struct.pack(">H", number + 1) for number in range(depth)]
    objects = [*lists, b"\x08"]
    offsets, data = [], b"bplist00"
    for each in objects:
        offsets.append(len(data))
        data += each
    table = b"".join(struct.pack(">I", offset) for offset in offsets)
    trailer = struct.pack(">6xBBQQQ", 4, 2, len(objects), 0, len(data))
    with pytest.raises(BundleInvalid):
        decode_report(data + table + trailer)


def test_shared_files_are_decoded_once_and_counted_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = Report()
    shared = report.file("/src/A.swift", functions(("f()", 1, 1, 1, 1)), 1, 1)
    for number in range(30):
        report.target(f"T{number}", [shared] * 30, 30, 30)
    data = report.data()
    found = decode_report(data)
    assert all(file is found.targets[0].files[0] for t in found.targets for file in t.files)
    monkeypatch.setattr(report_module, "FILES", 930)
    assert decode_report(data) == found
    monkeypatch.setattr(report_module, "FILES", 929)
    with pytest.raises(TooLarge, match="929 files"):
        decode_report(data)


@pytest.mark.parametrize("name", ["buildableCoverageObjects", "creationErrors"])
def test_one_object_that_is_every_element_of_a_list_is_counted_each_time(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    objects = ["$null", {name: [UID(2)] * 1000}, {"name": "t"} if name[0] == "b" else "failed"]
    archive = {"$top": {"root": UID(1)}, "$objects": objects}
    data = plistlib.dumps(archive, fmt=plistlib.FMT_BINARY)
    if name == "creationErrors":
        assert decode_report(data).complaints == ("failed",)
    monkeypatch.setattr(report_module, "FILES", 999)
    with pytest.raises(TooLarge, match="999 files"):
        decode_report(data)


def test_more_functions_than_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        decode_functions(struct.pack("<I", 2**31) + b"\0" * 100)


def test_functions_without_their_names_are_refused() -> None:
    with pytest.raises(ValueError, match="names"):
        decode_functions(functions(("a", 1, 1, 1, 1), ("b", 2, 1, 1, 1))[:-4])


@given(st.data())
def test_a_changed_report_raises_only_what_is_announced(data: st.DataObject) -> None:
    broken = bytearray(one_file().data())
    for _ in range(data.draw(st.integers(1, 6))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    with suppress(XcresultError):
        decode_report(bytes(broken))
