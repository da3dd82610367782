"""Compares our JUnit with files that other tools made with Xcode: names, outcomes, times, places and messages.

Each of those tools has its own layout, so all facts of a file are compared. Ours are parsed from the JUnit
that we write, as far as JUnit contains them.
"""

import re
import xml.etree.ElementTree as ET
from functools import cache
from urllib.parse import unquote

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import groups
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.reader.model import Case, Failure, Result

TRUNK = ("test-swift-mix", "test-swift-snapshot-testing", "test-swift-without-test-suites")


@cache
def golden(name: str) -> ET.Element:
    return ET.fromstring(fixtures.expected(name).read_bytes())


@cache
def read(name: str) -> Result:
    return read_bundle(fixtures.bundle(name))


@cache
def ours(name: str) -> ET.Element:
    return ET.fromstring("\n".join(junit([read(name)])).encode())


def time_of(element: ET.Element) -> float:
    return float(element.attrib.get("time", "0"))


def failures(case: Case) -> list[Failure]:
    return [failure for group in groups(case) for failure in group.failures]


def of_case(result: Result, target: str, suite: str, name: str) -> Case:
    (found,) = (
        case
        for case in result.cases
        if case.target == target and case.suites[-1:] == (suite,) and case.function == name
    )
    return found


def test_the_oldest_format_to_the_last_digit() -> None:
    document, made = golden("fastlane__XCResult.junit"), ours("fastlane__Test.test_result")
    result = read("fastlane__Test.test_result")
    entries = [
        (suite, case) for suite in document.iter("testsuite") for case in suite.iter("testcase")
    ]
    for suite, case in entries:
        target = suite.attrib["name"]
        found = of_case(result, target, case.attrib["classname"], case.attrib["name"])
        (run,) = found.runs
        assert repr(run.duration) == case.attrib["time"]
        (configuration,) = suite.iter("property")
        assert run.configuration == configuration.attrib["value"]
        failed = case.find("failure")
        assert (failed is not None) == (run.status == "Failure")
        if failed is not None:
            place = re.fullmatch(
                r"(.*) \((.*)#.*StartingLineNumber=(\d+)\)", failed.attrib["message"]
            )
            (failure,) = run.failures
            assert place is not None and failure.place is not None
            assert (failure.message, failure.place.path) == (place[1], place[2])
            assert failure.place.line == int(place[3]) + 1, "theirs are zero-based"
    assert len(entries) == len(result.cases) == 7
    assert {each.attrib[key] for each, key in [(document, "tests"), (made, "tests")]} == {"7"}
    assert document.attrib["failures"] == made.attrib["failures"] == "2"
    ours_by_target: dict[str, float] = {}
    for each in result.cases:
        time = sum(run.duration for run in each.runs)
        ours_by_target[each.target] = ours_by_target.get(each.target, 0.0) + time
    theirs = {suite.attrib["name"]: time_of(suite) for suite in document.iter("testsuite")}
    assert ours_by_target == pytest.approx(theirs, abs=1e-9)


def test_a_report_with_a_failure_and_its_place() -> None:
    document, result = golden("a7ex__junit.xml"), read("a7ex__test")
    made = {
        (each.attrib["name"], f"{time_of(each):.3f}")
        for each in ours("a7ex__test").iter("testcase")
    }
    assert made == {
        (each.attrib["name"], each.attrib["time"]) for each in document.iter("testcase")
    }
    for case in document.iter("testcase"):
        (target,) = {each.target for each in result.cases}
        found = of_case(result, target, case.attrib["classname"], case.attrib["name"])
        texts = [f"{each.message} ({words.short_place(each.place)})" for each in failures(found)]
        assert texts == [each.text for each in case.findall("failure")]
    (suite,) = document.iter("testsuite")
    total = sum(case.duration or 0.0 for case in result.cases)
    assert f"{total:.3f}" == suite.attrib["time"]
    assert {suite.attrib["name"]} == {f"{case.target}.xctest" for case in result.cases}
    (action,) = (action for action in result.actions if action.has_tests)
    assert action.ended is not None and action.started is not None
    assert f"{action.ended - action.started:.2f}" == document.attrib["time"]


def test_an_issue_without_a_test_is_named_with_its_target_and_fails_nothing() -> None:
    """The other tool counts it as a failure; `xcodebuild` exits with 0 for it, so here it passes."""
    document, result = (
        golden("a7ex__junit_session_level_failure.xml"),
        read("a7ex__session_level_failure"),
    )
    suites = {
        suite.attrib["name"]: list(suite.iter("testcase")) for suite in document.iter("testsuite")
    }
    passed = {case.attrib["name"] for case in suites["LibTests.xctest"]}
    assert passed == {case.function for case in result.cases if case.status == "Success"}
    (issue,) = suites["Session-level issues"]
    failed = issue.find("failure")
    assert failed is not None and failed.text is not None
    (case,) = (case for case in result.cases if case.status == "Failure")
    assert case.sessionless and case.name == issue.attrib["name"]
    assert case.target == issue.attrib["classname"]
    (failure,) = failures(case)
    assert f"{failure.message} ({words.short_place(failure.place)})" == failed.text
    made = ours("a7ex__session_level_failure")
    (noted,) = (each for each in made.iter("testcase") if each.find("system-err") is not None)
    assert noted.attrib["classname"] == "LibTests"
    assert failure.message.partition(": ")[2] in (noted.findtext("system-err") or "")
    assert made.attrib["tests"] == document.attrib["tests"]
    assert (made.attrib["failures"], made.attrib["errors"]) == ("0", "0")


@pytest.mark.parametrize("name", TRUNK)
def test_swift_testing_with_and_without_suites(name: str) -> None:
    document, made = golden(f"trunk-{name}.junit.xml"), ours(f"trunk__{name}")
    assert [document.attrib[key] for key in ("tests", "failures")] == [
        made.attrib[key] for key in ("tests", "failures")
    ]

    def entries(document: ET.Element) -> dict[tuple[str, str], ET.Element]:
        return {
            (suite.attrib["name"], case.attrib["name"]): case
            for suite in document.iter("testsuite")
            for case in suite.iter("testcase")
        }

    assert set(entries(document)) == set(entries(made))
    for key, case in entries(document).items():
        mine = entries(made)[key]
        assert f"{time_of(mine):.3f}" == case.attrib.get("time", f"{time_of(mine):.3f}")
        assert unquote(case.attrib.get("file", "")) == mine.attrib.get("file", "")
        failed = case.find("failure")
        shown = mine.find("failure")
        assert (failed is None) == (shown is None)
        if failed is not None and shown is not None:
            parts = re.fullmatch(r"([^:]*:\d+): (.*)", failed.attrib["message"], re.DOTALL)
            assert parts is not None
            place, message = parts.groups()
            assert " ".join(message.split()) == " ".join(shown.attrib["message"].split())
            base = words.base_name(mine.attrib["file"])
            assert place == f"{base}:{mine.attrib['line']}"
