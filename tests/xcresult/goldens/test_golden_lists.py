"""Compares four lists of another tool with our reading: every test with its outcome, argument and message."""

import re

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import Group, groups
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.model import Case

LISTS = {
    "SPM-26-1-1-iOS": "SPM-26.1.1-iOS",
    "SPM-26-1-1-visionOS": "SPM-26.1.1-visionOS",
    "SPM-26-1-1-watchOS": "SPM-26.1.1-watchOS",
    "Xcworkspace-26-1-1-iOS": "Xcworkspace-26.1.1-iOS",
}
_ENTRY = re.compile(r"(\S+) (\S+)(?: \[(.*?)\])?(?: \((.*)\))?")
Entry = tuple[str, str, str, str, str]


def listed(text: str) -> set[Entry]:
    """Suite, mark, test, argument, message."""
    found: set[Entry] = set()
    for block in text.strip().split("\n\n"):
        suite, *lines = block.split("\n")
        for line in lines:
            entry = _ENTRY.fullmatch(line)
            assert entry is not None, line
            found.add((suite, entry[1], entry[2], entry[3] or "", entry[4] or ""))
    return found


def entry(case: Case, group: Group) -> Entry:
    marks = {"Success": "✅", "Failure": "❌", "Skipped": "⏭️", "Expected Failure": "🤡"}
    mark = "⚠️" if group.flaky else marks[group.status]
    name = shown(group.arguments)
    return case.suites[-1], mark, case.function, name, message(group)


def message(group: Group) -> str:
    """Format our message like that tool, which omits prefixes that the author of the test did not write."""
    run = group.deciding
    if group.status == "Skipped":
        return run.skip.message.removeprefix("Test skipped - ") if run.skip else ""
    if group.status == "Expected Failure":
        (expected,) = run.expected_failures
        own = expected.failure.message.rpartition(": ")[2] if expected.failure else ""
        return expected.reason or own
    failed = [each for each in group.runs if each.status == "Failure"]
    if not failed:
        return ""
    (failure,) = words.shown_failures(failed[0])
    for prefix in ("failed - ", "Issue recorded: "):
        if failure.message.startswith(prefix):
            return failure.message.removeprefix(prefix)
    return words.located_message(failure)


@pytest.mark.parametrize("name", LISTS)
def test_every_entry_of_the_list(name: str) -> None:
    golden = listed(fixtures.expected(f"peekie/{name}.list.txt").read_text(encoding="utf-8"))
    result = read_bundle(fixtures.bundle(f"peekie__{LISTS[name]}"))
    ours = {entry(case, group) for case in result.cases for group in groups(case)}
    assert len(ours) == len(golden) == 21
    assert {found[:4] for found in ours} == {found[:4] for found in golden}
    assert ours == golden
