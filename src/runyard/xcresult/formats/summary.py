"""Summarizes a result: counts, failing and flaky tests, errors.

Runner errors and issues without a test are errors here and not tests, although Apple's figures count them as cases.
"""

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.reader.model import Case, Result, RunnerError
from runyard.xcresult.reader.verdict import Verdict, tests, verdict


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one result."""

    verdict: Verdict
    tests: int
    passed: int
    failed: int
    skipped: int
    expected_failures: int
    runs: int
    duration: float | None
    devices: tuple[str, ...]
    failing: tuple[Case, ...]
    flaky: tuple[Case, ...]
    errors: tuple[RunnerError, ...]
    build_errors: int
    build_warnings: int
    analyzer_warnings: int
    warnings: int


def summary(result: Result) -> Summary:
    """The numbers of a result."""
    cases = tests(result)
    issues = [issue.kind for issue in result.build_issues]
    statuses = [case.status for case in cases]
    return Summary(
        verdict=verdict(result),
        tests=len(cases),
        passed=statuses.count("Success"),
        failed=statuses.count("Failure"),
        skipped=statuses.count("Skipped"),
        expected_failures=statuses.count("Expected Failure"),
        runs=sum(len(case.runs) for case in cases),
        duration=_duration(result, cases),
        devices=_devices(result),
        failing=tuple(case for case in cases if case.status == "Failure"),
        flaky=tuple(case for case in cases if case.flaky),
        errors=result.errors,
        build_errors=issues.count("error"),
        build_warnings=issues.count("warning"),
        analyzer_warnings=issues.count("analyzer"),
        warnings=len(result.warnings),
    )


def counts(numbers: Summary) -> str:
    """`6 tests: 4 failed, 2 passed`, in one line."""
    if not numbers.tests:
        return "no tests"
    parts = (
        (numbers.failed, "failed"),
        (numbers.expected_failures, "failed as expected"),
        (numbers.skipped, "skipped"),
        (numbers.passed, "passed"),
    )
    listed = ", ".join(f"{number} {word}" for number, word in parts if number)
    flaky = f" ({len(numbers.flaky)} flaky)" if numbers.flaky else ""
    return f"{words.count(numbers.tests, 'test')}: {listed}{flaky}"


def slowest(result: Result, most: int) -> tuple[Case, ...]:
    """The slowest cases, slowest first."""
    timed = [case for case in tests(result) if case.duration]
    return tuple(sorted(timed, key=lambda case: -(case.duration or 0.0))[:most])


def _duration(result: Result, cases: tuple[Case, ...]) -> float | None:
    if result.duration is not None:
        return result.duration
    total = sum(run.duration for case in cases for run in case.runs)
    return total or None


def _devices(result: Result) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words.device(action.device) for action in result.actions))
