"""Tests that a result has one verdict: in the tree, in JUnit, in Markdown and for the exit code."""

import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace
from tests.xcresult.formats.results import case, failure, result, run

from runyard.cli.xcresultpaint import plain
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.markdown import markdown
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.model import Action, BuildIssue, Place, Result, RunnerError
from runyard.xcresult.reader.verdict import Verdict, verdict

PASSED = case("a()")
SKIPPED = case("a()", status="Skipped")
FAILED = case("a()", run("Failure", failures=(failure(),)), status="Failure")
SOURCE = Place("/Users/ci/app/App.swift", 3)
BROKEN = (
    BuildIssue(kind="error", message="no such module", target="App", place=SOURCE),
    BuildIssue(kind="error", message="no such type", target="App"),
    BuildIssue(kind="warning", message="unused", target="App"),
    BuildIssue(kind="error", message="cannot link", target="Lib"),
)
OUTSIDE = RunnerError(message="recorded in a detached task", target="LibTests", fatal=False)
RUNNER = RunnerError(message="the runner crashed", target="UITests")


def built(made: Result, status: str) -> Result:
    return replace(made, actions=(*made.actions, Action(build_status=status)))


TABLE = {
    "passed": (result(PASSED), Verdict.SUCCESS),
    "failed": (result(PASSED, FAILED), Verdict.FAILURE),
    "some skipped": (result(PASSED, SKIPPED), Verdict.SUCCESS),
    "all skipped": (result(SKIPPED), Verdict.SKIPPED),
    "nothing": (result(), Verdict.NO_TESTS),
    "build errors and no tests": (result(issues=BROKEN), Verdict.BUILD_FAILED),
    "build failed without an error": (built(result(), "failed"), Verdict.BUILD_FAILED),
    "one of two merged builds failed": (
        built(result(PASSED, issues=BROKEN), "failed"),
        Verdict.BUILD_FAILED,
    ),
    "a test and a build failed": (built(result(FAILED), "failed"), Verdict.FAILURE),
    "an error of a build that succeeded": (
        built(result(PASSED, issues=BROKEN), "succeeded"),
        Verdict.SUCCESS,
    ),
    "runner failed": (result(PASSED, errors=(RUNNER,)), Verdict.FAILURE),
    "issue outside of tests": (result(PASSED, errors=(OUTSIDE,)), Verdict.SUCCESS),
    "issue outside, and no test": (result(errors=(OUTSIDE,)), Verdict.NO_TESTS),
    "issue outside, and a test failed": (result(FAILED, errors=(OUTSIDE,)), Verdict.FAILURE),
}


def document(made: Result) -> ET.Element:
    return ET.fromstring("\n".join(junit([made], sources=Sources(root="/Users/ci/app"))).encode())


@pytest.mark.parametrize(("made", "expected"), TABLE.values(), ids=TABLE)
def test_formats_do_not_disagree_about_the_verdict(made: Result, expected: Verdict) -> None:
    assert verdict(made) is expected
    bad = expected in {Verdict.FAILURE, Verdict.BUILD_FAILED}
    assert expected.bad == bad
    assert plain(tree(made, title="x")).startswith("✗ x") == bad
    assert markdown(made, title="x").startswith("## ❌") == bad
    found = document(made)
    assert (found.attrib["failures"], found.attrib["errors"]) != ("0", "0") or not bad
    assert (next(found.iter("failure"), next(found.iter("error"), None)) is not None) == bad


def test_a_failed_build_does_not_leave_junit_without_an_error() -> None:
    found = document(result(issues=BROKEN))
    assert (found.attrib["tests"], found.attrib["errors"]) == ("2", "2")
    (app, lib) = found.iter("testcase")
    assert app.attrib == {"name": "build", "classname": "App", "file": "App.swift", "line": "3"}
    error = app.find("error")
    assert error is not None and error.attrib["message"] == "no such module"
    assert error.text == "App.swift:3: no such module\nno such type"
    assert lib.attrib == {"name": "build", "classname": "Lib"}


def test_an_issue_outside_of_tests_is_not_lost_because_it_passes() -> None:
    found = document(result(PASSED, errors=(OUTSIDE,)))
    assert [each.text for each in found.iter("system-err")] == [OUTSIDE.message]
    assert OUTSIDE.message in markdown(result(PASSED, errors=(OUTSIDE,)), title="x")
