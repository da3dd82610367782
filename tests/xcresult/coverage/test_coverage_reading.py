"""Tests that coverage of several actions is merged, and that a damaged part loses only that part."""

import plistlib

import pytest
from tests.xcresult.coverage.measured import Report, Store, archive, counts, functions, run

from runyard.xcresult.reader.coverage.model import Coverage, Line, Range
from runyard.xcresult.reader.coverage.reading import read_all_coverage, read_coverage
from runyard.xcresult.reader.model import Action


def report(entries: int, covered: int, *, path: str = "/src/A.swift") -> bytes:
    made = Report()
    packed = functions(("run()", 1, covered, 4, entries), ("closure #1 in run()", 2, 0, 1, 0))
    made.target("App.app", [made.file(path, packed, covered, 5)], covered, 5)
    return made.data()


def lines(*hits: int, ranges: tuple[tuple[int, int, int, int], ...] = ()) -> tuple[bytes, bytes]:
    return archive({"/src/A.swift": counts([run(hit) for hit in hits], ranges)})


def everything(store: Store, *actions: Action) -> Coverage:
    found = read_all_coverage(store, actions)
    assert found is not None
    return found


def test_an_action_without_coverage_has_none() -> None:
    assert read_coverage(Store(), Action()) is None
    assert read_all_coverage(Store(), [Action(), Action()]) is None


def test_the_later_action_may_be_the_one_that_measured() -> None:
    store = Store()
    measured = store.measured("b", report(2, 3), lines(1, 1, 1, 0))
    assert everything(store, Action(), measured).covered == 3


def test_counts_of_several_actions_are_added_and_lines_united() -> None:
    store = Store()
    first = store.measured("a", report(1, 2), lines(1, 1, 0, 0, ranges=((1, 2, 3, 1),)))
    second = store.measured("b", report(4, 2), lines(0, 4, 4, 0, ranges=((1, 2, 3, 5),)))
    found = everything(store, first, second)
    file = found.source.lines("/src/A.swift")
    assert file is not None
    assert file.lines == (Line(1, 1), Line(2, 5), Line(3, 4), Line(4, 0))
    assert file.ranges == (Range(1, 2, 3, 6),)
    outer, closure = found.targets[0].files[0].functions
    assert (outer.count, outer.covered, outer.executable) == (5, 3, 4)
    assert (closure.count, closure.covered) == (
        0,
        0,
    )  # never entered, although its line was executed
    assert (found.covered, found.executable) == (3, 5)


def test_without_lines_the_larger_of_two_is_taken_and_never_the_sum() -> None:
    store = Store()
    found = everything(
        store, store.measured("a", report(1, 2), None), store.measured("b", report(1, 3), None)
    )
    assert (found.covered, found.executable) == (3, 5)


def test_files_and_targets_of_one_action_only_are_kept() -> None:
    store = Store()
    one = store.measured("a", report(1, 2), lines(1))
    other = store.measured("b", report(1, 4, path="/src/B.swift"), None)
    found = everything(store, one, other)
    assert [file.path for file in found.targets[0].files] == ["/src/A.swift", "/src/B.swift"]
    assert (found.covered, found.executable) == (6, 10)


def test_two_actions_that_name_the_same_objects_are_counted_once() -> None:
    store = Store()
    measured = store.measured("a", report(3, 2), lines(3, 3))
    found = everything(store, measured, measured)
    file = found.source.lines("/src/A.swift")
    assert file is not None
    assert file.lines[0] == Line(1, 3)


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("a-report", "coverage report: is missing"),
        ("a-archive", "coverage archive: is missing"),
        ("a-index", "coverage archive: is missing"),
    ],
)
def test_a_missing_part_is_a_warning_and_the_rest_is_read(lost: str, message: str) -> None:
    store = Store()
    measured = store.measured("a", report(1, 2), lines(1))
    del store.payloads[lost]
    found = everything(store, measured)
    assert [warning.message for warning in found.warnings] == [message]
    assert bool(found.targets) == (lost != "a-report")
    assert bool(found.source.paths()) == (lost == "a-report")


@pytest.mark.parametrize("listing", [b"no json", b"[]", b'[{"name":"Index"}]', b'{"a":1}', b"\xff"])
def test_an_invalid_directory_is_a_warning(listing: bytes) -> None:
    store = Store()
    measured = store.measured("a", report(1, 2), lines(1))
    store.payloads["a-archive"] = listing
    found = everything(store, measured)
    assert len(found.warnings) == 1
    assert found.covered == 2


def test_what_xcode_complained_of_is_passed_on() -> None:
    made = Report()
    store = Store()
    found = everything(store, store.measured("a", made.data(["no profile data"]), None))
    assert [warning.message for warning in found.warnings] == ["coverage: no profile data"]


def test_an_archive_of_a_later_version_is_not_guessed_at() -> None:
    store = Store()
    measured = store.measured("a", report(1, 2), lines(1))
    store.payloads["metadata"] = plistlib.dumps({"formatVersion": 1})
    assert everything(store, measured).source.paths() == ("/src/A.swift",)
    store.payloads["metadata"] = plistlib.dumps({"formatVersion": 2})
    found = everything(store, measured)
    assert [each.message for each in found.warnings] == [
        "coverage archive: is of the unknown version 2"
    ]
    assert (found.source.paths(), found.covered) == ((), 2)


@pytest.mark.parametrize("metadata", [b"", b"<plist", b"bplist00", plistlib.dumps([1])])
def test_an_archive_that_lost_its_version_is_read(metadata: bytes) -> None:
    store = Store()
    measured = store.measured("a", None, lines(1))
    store.payloads["metadata"] = metadata
    assert everything(store, measured).source.paths() == ("/src/A.swift",)
