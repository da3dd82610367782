"""Tests known facts about single real bundles that their figures do not contain."""

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.reader.model import Case, Result
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.report_model import Report


def result(name: str) -> Result:
    return read_bundle(fixtures.bundle(name))


def reported(name: str) -> Report:
    return report(result(name))


def only(name: str) -> Case:
    (case,) = result(name).cases
    return case


def test_a_mixed_run_has_its_durations_and_messages() -> None:
    found = reported("tuist__test")
    (module,) = found.test_modules
    cases = module.test_cases
    assert (found.status, module.name, module.duration) == ("failure", "AppTests", 2923)
    assert {suite.duration for suite in module.test_suites} == {5, 104, 111}
    assert sorted(case.duration or 0 for case in cases) == [3, 4, 101, 108, 108, 110]
    by_name = sorted(cases, key=lambda case: case.name, reverse=True)
    assert [one.message for case in by_name for one in case.failures] == [
        'Error Domain=com Code=1 "(null)"',
        "XCTAssertTrue failed",
        "true == false",
        'Error Domain=com Code=1 "(null)"',
    ]
    assert [one.issue_type for case in by_name for one in case.failures] == [
        "error_thrown",
        "assertion_failure",
        "assertion_failure",
        "error_thrown",
    ]


def test_retries_are_listed_one_by_one() -> None:
    found = reported("tuist__test-with-repetitions")
    assert found.status == "success"
    cases = {case.name: case for module in found.test_modules for case in module.test_cases}
    example, top = cases["example()"], cases["topLevelTest()"]
    assert [(one.repetition_number, one.name, one.status) for one in example.repetitions] == [
        (1, "First Run", "failure"),
        (2, "Retry 1", "success"),
    ]
    assert (example.status, example.is_flaky) == ("success", True)
    assert ["Bool.random()" in (one.message or "") for one in example.failures] == [True]
    assert [one.status for one in top.repetitions] == ["success", "success"]
    assert top.failures == ()


def test_arguments_fail_one_by_one() -> None:
    found = reported("tuist__test-with-arguments")
    cases = {case.name: case for module in found.test_modules for case in module.test_cases}
    case = cases["parameterized(value:)"]
    assert (found.status, case.status, case.failures) == ("failure", "failure", ())
    statuses = {one.name: one.status for one in case.arguments}
    assert statuses == {'"hello"': "success", '"world"': "success", '"test"': "failure"}
    (failure,) = next(one for one in case.arguments if one.failures).failures
    assert "Expected long string" in (failure.message or "")
    assert (failure.path or "").endswith("AppTests.swift")
    assert failure.line_number == 14
    (destination,) = found.run_destinations
    assert (destination.name, destination.platform, destination.os_version) == (
        "iPhone Air",
        "ios_simulator",
        "26.4",
    )


def test_an_attachment_is_on_its_case() -> None:
    cases = [
        case
        for one in reported("tuist__test-with-attachment").test_modules
        for case in one.test_cases
    ]
    found = [(case.name, one.file_name) for case in cases for one in case.attachments]
    assert [name for name, _ in found] == ["testWithAttachment()"]
    assert found[0][1].endswith(".txt")


def test_the_oldest_format_names_its_places() -> None:
    cases = result("fastlane__Test.test_result").cases
    places = [one.place for case in cases for run in case.runs for one in run.failures]
    assert {(one.path.rpartition("/")[2], one.line) for one in places if one} == {
        ("TestTests.swift", 37),
        ("TestThisDude.swift", 36),
    }


def test_screenshots_of_all_configurations_are_there() -> None:
    failing = only("xcparse__testFailure")
    names = [one.filename for run in failing.runs for one in run.attachments]
    assert len(failing.runs) == 3
    assert sum(name.startswith("Screenshot") for name in names) == 12
    heic = result("xcparse__testHEIC").cases
    files = [one.filename for case in heic for run in case.runs for one in run.attachments]
    assert sum(name.endswith(".heic") for name in files) == 18


@pytest.mark.parametrize(
    ("name", "suites"),
    [
        ("allure3__suites__threeSuites", ["Foo", "Bar", "Baz"]),
        ("allure3__suites__noSuites", []),
    ],
)
def test_suites_nest(name: str, suites: list[str]) -> None:
    assert list(only(name).suites) == suites


def test_a_test_has_its_display_name() -> None:
    case = only("allure3__namedTest")
    assert (case.name, case.suites) == ("Test", ())
    assert case.framework == "Swift Testing"


def test_expected_failures_have_their_reason() -> None:
    case = only("allure3__outcomes__twoExpectedFailures")
    (run,) = case.runs
    assert case.status == "Expected Failure"
    assert [one.reason for one in run.expected_failures] == ["Lorem Ipsum"] * 2
    lines = [
        one.failure.place.line for one in run.expected_failures if one.failure and one.failure.place
    ]
    assert lines == [7, 8]


def test_an_expected_failure_that_did_not_come_is_a_failure() -> None:
    case = only("allure3__outcomes__violatedExpectedFailure")
    (failure,) = case.runs[0].failures
    assert (case.status, failure.issue_type) == ("Failure", "Unmatched Expected Failure")
    assert failure.place and failure.place.line == 6


def test_a_skip_has_its_reason() -> None:
    run = only("allure3__outcomes__skipped").runs[0]
    assert run.skip and run.skip.message == "Test skipped - Lorem Ipsum"


def test_two_test_plans_are_two_cases() -> None:
    assert len({case.plan for case in result("allure3__twoTestPlans").cases}) == 2


def test_the_newest_format_has_a_flaky_test() -> None:
    cases = {case.function: case for case in result("a7ex__Test-FlakyFixture").cases}
    flaky = cases["testFlaky()"]
    assert [run.status for run in flaky.runs] == ["Failure", "Success"]
    policies = [run.repetition for run in flaky.runs if run.repetition]
    assert [(one.iteration, one.total, one.mode) for one in policies] == [
        (1, 2, "RunRetryOnFailure"),
        (2, 2, "RunRetryOnFailure"),
    ]
    assert flaky.flaky
    assert cases["testStablePass()"].status == "Success"


def test_bugs_are_read() -> None:
    (bug,) = only("allure3__bugs__urlNameAndId").bugs
    assert bug.identifier
    assert bug.url.startswith("https://")


def test_documents_of_build_issues_count_their_lines_from_one() -> None:
    issues = result("a7ex__test").build_issues
    assert issues
    assert all(
        one.place.line > 0 for one in issues if one.place and one.place.path.endswith(".swift")
    )
