"""The report's rules: statuses, milliseconds, messages, arguments, quarantine."""

import msgspec
import pytest

from runyard.xcresult.reader.aggregation import case_status, is_flaky
from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.messages import split_message
from runyard.xcresult.reader.model import (
    Action,
    Argument,
    Attachment,
    Case,
    Device,
    Failure,
    Place,
    Repetition,
    Result,
    Run,
    RunnerError,
    Status,
    Suite,
    Target,
)
from runyard.xcresult.reader.report import milliseconds, normalised, report
from runyard.xcresult.reader.report_model import Quarantined, ReportCase, ReportCrash


def run(
    status: Status = "Success",
    *,
    iteration: int = 0,
    argument: str = "",
    failures: tuple[Failure, ...] = (),
    attachments: tuple[Attachment, ...] = (),
) -> Run:
    if status == "Failure" and not failures:
        failures = (Failure(message="no", place=Place("/a.swift", 3)),)
    return Run(
        action=0,
        configuration="c",
        status=status,
        duration=0.5,
        repetition=Repetition(iteration, 2, "RunRetryOnFailure") if iteration else None,
        arguments=(Argument(value=argument, label="x"),) if argument else (),
        failures=failures,
        attachments=attachments,
    )


def case(*runs: Run, name: str = "a()", suites: tuple[str, ...] = ("Suite",)) -> Case:
    return Case(
        plan="P",
        target="AppTests",
        suites=suites,
        identifier="/".join((*suites, name)),
        name=name,
        function=name,
        status=case_status(runs),
        flaky=is_flaky(runs),
        duration=0.5,
        runs=runs,
    )


def result(*cases: Case, **members: object) -> Result:
    suites = tuple(
        Suite(plan="P", target="AppTests", path=path, name=path[-1], duration=1.5)
        for path in dict.fromkeys(one.suites for one in cases if one.suites)
    )
    values: dict[str, object] = {
        "format": "3.56",
        "source": "store",
        "test_plan": "P",
        "cases": cases,
        "suites": suites,
        "targets": (Target(plan="P", name="AppTests", duration=2.9239),),
    }
    return msgspec.convert(msgspec.to_builtins(values | members), Result)


def the_case(*runs: Run) -> ReportCase:
    (module,) = report(result(case(*runs))).test_modules
    (found,) = module.test_cases
    return found


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, None), (0.0, 0), (0.0000001, 1), (0.0019, 1), (1.9999, 1999), (2.9230270, 2923)],
)
def test_milliseconds_are_cut_and_never_vanish(seconds: float | None, expected: int | None) -> None:
    assert milliseconds(seconds) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('failed: caught error: "Code=1 "(null)""', ('Code=1 "(null)"', "error_thrown")),
        ('Caught error: Code=1 "(null)"', ('Code=1 "(null)"', "error_thrown")),
        ("failed - Caught Error: x", ("x", "error_thrown")),
        ("Thrown error: x", ("x", "error_thrown")),
        ("in setUp: thrown error: x", ("in setUp: thrown error: x", "error_thrown")),
        ("Issue recorded: x", ("Issue recorded: x", "issue_recorded")),
        ("Expectation failed: a == b", ("a == b", "assertion_failure")),
        ("XCTAssertTrue failed", ("XCTAssertTrue failed", "assertion_failure")),
        ("", ("", "assertion_failure")),
    ],
)
def test_a_message_is_sorted_by_its_words(message: str, expected: tuple[str, str]) -> None:
    assert split_message(message) == expected


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("macOS", "macos"),
        ("iOS", "ios"),
        ("iPadOS", "ios"),
        ("iOS Simulator", "ios_simulator"),
        ("iPadOS Simulator", "ios_simulator"),
        ("tvOS Simulator", "tvos_simulator"),
        ("watchOS", "watchos"),
        ("visionOS Simulator", "visionos_simulator"),
        ("DriverKit", "unknown"),
        ("", "unknown"),
        ("macOS Simulator", "unknown"),
    ],
)
def test_platforms_have_one_name_each(platform: str, expected: str) -> None:
    assert normalised(platform) == expected


def test_destinations_are_listed_once() -> None:
    devices = [Device(name=name, platform="iOS", os_version="26.0") for name in ("A", "B", "A")]
    found = report(result(actions=tuple(Action(device=device) for device in devices)))
    assert [one.name for one in found.run_destinations] == ["A", "B"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run()], "success"),
        ([run("Expected Failure")], "success"),
        ([run("Skipped")], "skipped"),
        ([run("Failure")], "failure"),
        ([run("Failure", iteration=1), run(iteration=2)], "success"),
        ([run("Failure", iteration=1, argument="x"), run(iteration=2, argument="x")], "failure"),
    ],
)
def test_a_case_has_one_of_three_statuses(runs: list[Run], expected: str) -> None:
    assert the_case(*runs).status == expected
    found = report(result(case(*runs)))
    assert found.status == expected
    assert found.test_modules[0].status == ("failure" if expected == "failure" else "success")


def test_a_run_without_any_case_was_skipped() -> None:
    assert report(result()).status == "skipped"


def test_a_retried_case_has_all_its_repetitions() -> None:
    found = the_case(run("Failure", iteration=1), run(iteration=2))
    assert [(one.repetition_number, one.name, one.status) for one in found.repetitions] == [
        (1, "First Run", "failure"),
        (2, "Retry 1", "success"),
    ]
    assert len(found.failures) == 1
    assert found.is_flaky


def test_repetitions_are_in_order_and_only_of_what_was_repeated() -> None:
    first, second = run("Failure", iteration=1), run(iteration=2)
    assert [one.repetition_number for one in the_case(second, first).repetitions] == [1, 2]
    elsewhere = msgspec.structs.replace(second, configuration="Dark", repetition=Repetition(1))
    assert the_case(first, elsewhere).repetitions == ()


def test_a_case_with_arguments_has_its_failures_there() -> None:
    found = the_case(run(argument='"a"'), run("Failure", argument='"b"'))
    assert found.failures == ()
    assert [(one.name, one.status, len(one.failures)) for one in found.arguments] == [
        ('"a"', "success", 0),
        ('"b"', "failure", 1),
    ]


def test_ui_configurations_are_called_as_apple_calls_them() -> None:
    arguments = (
        Argument(value="4", label="XCUIDeviceOrientation"),
        Argument(value="2", label="XCUIAppearanceMode"),
    )
    found = the_case(msgspec.structs.replace(run(), arguments=arguments))
    assert found.arguments[0].name == "Dark Appearance, Landscape Right"


def test_nested_failures_are_shown_only_without_top_level_ones() -> None:
    nested = Failure(message="nested", top_level=False)
    both = run("Failure", failures=(nested, Failure(message="top")))
    assert [one.message for one in the_case(both).failures] == ["top"]
    assert [one.message for one in the_case(run("Failure", failures=(nested,))).failures] == [
        "nested"
    ]


def test_attachments_without_a_payload_are_left_out() -> None:
    here = Attachment(filename="a.txt", payload_id="0~x", present=True)
    found = the_case(run(attachments=(here, Attachment(filename="b.txt"))))
    assert [one.file_name for one in found.attachments] == ["a.txt"]


def test_a_crash_report_finds_its_case() -> None:
    ips = Attachment(filename="App.ips", payload_id="0~x", present=True)
    crash = CrashReport(signal="SIGABRT")
    found = report(result(case(run("Failure", attachments=(ips,)))), crashes={"0~x": crash})
    expected = ReportCrash(signal="SIGABRT", file_name="App.ips")
    assert found.test_modules[0].test_cases[0].crash_report == expected


def test_suites_and_modules_have_durations() -> None:
    found = report(result(case(run()), case(run(), name="b()", suites=())))
    (module,) = found.test_modules
    assert module.duration == 2923
    assert [(one.name, one.duration) for one in module.test_suites] == [("Suite", 1500)]
    unmeasured = report(result(case(run()), targets=(), suites=()))
    assert unmeasured.test_modules[0].duration == 500


def test_a_suite_with_a_slash_in_its_name_hides_the_failures_of_another_one() -> None:
    found = report(result(case(run("Failure"), suites=("A", "B")), case(run(), suites=("A/B",))))
    shown = {one.name: (one.status, one.duration) for one in found.test_modules[0].test_suites}
    assert len(found.test_modules[0].test_suites) == len(shown), "rows are by name"
    assert shown["A/B"] == ("failure", 3000)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Quarantined("AppTests"), "success"),
        (Quarantined("AppTests", "Suite"), "success"),
        (Quarantined("AppTests", "Suite", "a()"), "success"),
        (Quarantined("AppTests", "Suite", "a"), "success"),
        (Quarantined("AppTests", None, "a()"), "success"),
        (Quarantined("Other"), "failure"),
        (Quarantined("AppTests", "Other"), "failure"),
        (Quarantined("AppTests", "Suite", "b()"), "failure"),
    ],
)
def test_quarantined_failures_do_not_fail_the_run(entry: Quarantined, expected: str) -> None:
    found = report(result(case(run("Failure")), case(run(), name="c()")), quarantine=(entry,))
    assert found.status == expected
    first = found.test_modules[0].test_cases[0]
    assert first.status == "failure"
    assert first.is_quarantined == (expected == "success")


def test_quarantine_does_not_hide_other_failures_or_broken_runners() -> None:
    entry = (Quarantined("AppTests", "Suite", "a()"),)
    other = result(case(run("Failure")), case(run("Failure"), name="b()"))
    assert report(other, quarantine=entry).status == "failure"
    broken = result(case(run("Failure")), errors=(RunnerError(message="x"),))
    assert report(broken, quarantine=entry).status == "failure"


def test_an_entry_of_the_quarantine_file_is_read_by_its_own_names() -> None:
    data = b'[{"target": "A", "class": "B", "method": "c()"}, {"target": "A"}]'
    assert msgspec.json.decode(data, type=list[Quarantined]) == [
        Quarantined("A", "B", "c()"),
        Quarantined("A"),
    ]
