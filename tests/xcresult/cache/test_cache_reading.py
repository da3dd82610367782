"""Tests reading Apple's cache: real caches give the expected figures, and every version of the tables is read."""

from pathlib import Path

import pytest
from tests.xcresult import fixtures
from tests.xcresult.cache.databases import ONE_CASE, Rows, write

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.cache.reading import read_cache
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.model import Place, Result
from runyard.xcresult.reader.verdict import Verdict, verdict

SESSION = "a7ex__session_level_failure"
MIXED = "fastlane__Xcode26-Mixed-XCTest-SwiftTesting"
ELSEWHERE = frozenset({"objects", "objects_hash_ok"})


def stripped() -> list[object]:
    known = fixtures.figures()
    names = [name for name in fixtures.names() if known[name]["source"] == "sqlite"]
    absent = pytest.param("none", marks=pytest.mark.skip(reason="no real result bundles here"))
    return list(names) if names else [absent]


@pytest.mark.parametrize("name", stripped())
def test_a_stripped_bundle_equals_its_figures(name: str) -> None:
    expected = fixtures.figures()[name]
    ours = figures(read_bundle(fixtures.bundle(name)), objects=0, objects_hash_ok=0)
    compared = ours.keys() - ELSEWHERE
    assert {key: ours[key] for key in compared} == {key: expected[key] for key in compared}


def test_issues_without_a_test_are_an_error_that_does_not_fail_the_run() -> None:
    result = read_bundle(fixtures.bundle(SESSION))
    (error,) = result.errors
    assert not error.fatal
    assert error.message == (
        "Issue recorded without an associated test: "
        "Issue recorded: Issue recorded in Task.detached — no Test.current"
    )
    (pseudo,) = [case for case in result.cases if case.sessionless]
    assert pseudo.suites == ()


def read(path: Path, *tables: dict[str, Rows]) -> Result:
    merged: dict[str, Rows] = dict(ONE_CASE)
    for each in tables:
        merged |= each
    return read_cache(write(path / "database.sqlite3", merged), format="3.53")


def test_a_merged_bundle_does_not_have_a_test_plan_without_a_name(tmp_path: Path) -> None:
    unnamed: dict[str, Rows] = {"Invocations": [{"scheme": None}], "TestPlans": [{"name": None}]}
    assert read(tmp_path, unnamed).test_plan is None


@pytest.mark.parametrize(
    ("severity", "tests", "expected"),
    [
        (0, False, Verdict.BUILD_FAILED),
        (2, False, Verdict.NO_TESTS),
        (None, False, Verdict.NO_TESTS),
        (0, True, Verdict.FAILURE),
    ],
)
def test_a_failed_build_is_not_lost_with_the_store(
    tmp_path: Path, severity: int | None, tests: bool, expected: Verdict
) -> None:
    url = "file:///Users/ci/App.swift#StartingLineNumber=2"
    issues: dict[str, Rows] = {
        "DocumentLocations": [{"url": url}],
        "BuildIssues": [{"message": "x", "severity": severity, "documentLocation_fk": 1}],
    }
    result = read(tmp_path, issues, {} if tests else {"TestCaseRuns": []})
    assert verdict(result) is expected
    places = [issue.place for issue in result.build_issues]
    assert places == ([Place("/Users/ci/App.swift", 3)] if expected is Verdict.BUILD_FAILED else [])


def test_a_case_and_its_run(tmp_path: Path) -> None:
    result = read(tmp_path)
    assert (result.source, result.format, result.test_plan) == ("sqlite", "3.53", "Plan")
    (action,) = result.actions
    assert (action.started, action.ended) == (978307200.0, 978307210.0)
    assert (action.device.name, action.device.platform) == ("My Mac", "macOS")
    assert (action.device.os_build, action.device.architecture) == ("25B78", "arm64")
    (case,) = result.cases
    assert (case.target, case.suites, case.identifier) == ("AppTests", ("Suite",), "Suite/test()")
    assert (case.status, case.duration) == ("Failure", 0.5)
    assert [(target.name, target.status) for target in result.targets] == [("AppTests", "Failure")]
    assert [(suite.path, suite.status) for suite in result.suites] == [(("Suite",), "Failure")]


@pytest.mark.parametrize("column", ["isTopLevel", "isTopLevelFailure"])
def test_the_flag_of_an_issue_was_renamed(tmp_path: Path, column: str) -> None:
    issues = [
        {"testCaseRun_fk": 1, "compactDescription": "a", column: 1, "orderInOwner": 0},
        {"testCaseRun_fk": 1, "compactDescription": "b", column: 0, "orderInOwner": 1},
    ]
    (case,) = read(tmp_path, {"TestIssues": issues}).cases
    assert [(each.message, each.top_level) for each in case.runs[0].failures] == [
        ("a", True),
        ("b", False),
    ]


@pytest.mark.parametrize("column", ["title", "comment"])
def test_what_a_tracked_issue_is_called_was_renamed(tmp_path: Path, column: str) -> None:
    bugs = [{"testCase_fk": 1, "identifier": "7", "url": "u", column: "name", "orderInParent": 0}]
    (case,) = read(tmp_path, {"IssueTrackingMetadata": bugs}).cases
    assert [(bug.identifier, bug.url, bug.comment) for bug in case.bugs] == [("7", "u", "name")]


def test_an_identifier_that_was_left_out_is_made_again(tmp_path: Path) -> None:
    (case,) = read(tmp_path, {"TestCases": [{"name": "testA()", "testSuite_fk": 1}]}).cases
    assert case.identifier == "Suite/testA()"


def test_an_expected_failure_is_no_failure(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "TestIssues": [{"testCaseRun_fk": 1, "compactDescription": "x"}],
        "ExpectedFailures": [{"testCaseRun_fk": 1, "issue_fk": 1, "failureReason": "known"}],
    }
    (case,) = read(tmp_path, tables).cases
    assert case.runs[0].failures == ()
    (expected,) = case.runs[0].expected_failures
    assert expected.reason == "known"
    assert expected.failure is not None
    assert expected.failure.message == "x"


def test_an_attachment_in_a_failed_step_belongs_to_the_failure(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "TestIssues": [{"testCaseRun_fk": 1, "compactDescription": "x", "uuid": "U2"}],
        "Activities": [
            {"testCaseRun_fk": 1, "title": "ok", "failureIDs": ""},
            {"testCaseRun_fk": 1, "title": "bad", "failureIDs": "U1:U2"},
            {"parent_fk": 2, "title": "inside", "failureIDs": ""},
        ],
        "Attachments": [
            {"activity_fk": 1, "filenameOverride": "a.png", "uuid": "1"},
            {"activity_fk": 3, "filenameOverride": "b.png", "uuid": "2"},
            {"testIssue_fk": 1, "filenameOverride": "c.png", "uuid": "3"},
        ],
    }
    (case,) = read(tmp_path, tables).cases
    found = {each.filename: each.on_failure for each in case.runs[0].attachments}
    assert found == {"a.png": False, "b.png": True, "c.png": True}


def test_what_is_left_of_the_store_is_present(tmp_path: Path) -> None:
    files = [
        {"testIssue_fk": 1, "filenameOverride": name, "xcResultKitPayloadRefId": name}
        for name in ("kept", "lost", "")
    ]
    issues = [{"testCaseRun_fk": 1, "compactDescription": "x"}]
    tables: dict[str, Rows] = {**ONE_CASE, "TestIssues": issues, "Attachments": files}
    path = write(tmp_path / "database.sqlite3", tables)
    result = read_cache(path, format="3.56", present=lambda name: name != "lost")
    found = {each.filename: each.present for each in result.cases[0].runs[0].attachments}
    assert found == {"kept": True, "lost": False, "": False}


def test_the_made_up_suite_and_wrapping_groups_are_no_suites(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "TestSuites": [
            {"name": "All tests", "identifier": "All tests"},
            {"name": "AppTests", "identifier": "AppTests.xctest"},
            {"name": "Top-level Tests", "identifier": "AppTests/$TopLevelTests"},
        ],
        "TestSuiteRuns": [
            {"testSuite_fk": 1, "testableRun_fk": 1, "orderInParent": 0},
            {"testSuite_fk": 2, "parentSuiteRun_fk": 1, "orderInParent": 0},
            {"testSuite_fk": 3, "parentSuiteRun_fk": 2, "orderInParent": 0},
        ],
        "TestCaseRuns": [{"testCase_fk": 1, "testSuiteRun_fk": 3, "result": "Success"}],
    }
    result = read(tmp_path, tables)
    assert result.suites == ()
    assert [case.suites for case in result.cases] == [()]


def test_the_version_of_xcode_is_formatted_as_in_a_log(tmp_path: Path) -> None:
    tools = [{"xcodeVersion": "26.3", "xcodeBuildVersion": "17C519"}]
    assert read(tmp_path, {"DeveloperTools": tools}).xcode == "26.3 (17C519)"


def test_an_unknown_result_is_no_success(tmp_path: Path) -> None:
    runs = [{"testCase_fk": 1, "testSuiteRun_fk": 1, "result": "Surprise"}]
    (case,) = read(tmp_path, {"TestCaseRuns": runs}).cases
    assert case.status == "Failure"
