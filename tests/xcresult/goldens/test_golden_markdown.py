"""Compares six reports that another tool wrote on a Mac with Xcode with our reading of the same bundles."""

from collections import Counter
from functools import cache

import pytest
from tests.xcresult import fixtures
from tests.xcresult.goldens.kishi import Facts, FailureFacts, RunFacts, SuiteFacts, facts

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats import words
from runyard.xcresult.formats.summary import summary
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.model import Activity, Case, Result, Run, Status, Wanted

NAMES = ("Attachment", "Coverage", "NoTests", "TestResults#669", "UhooiPicBook", "example")
STATUSES: tuple[Status, ...] = ("Success", "Failure", "Skipped", "Expected Failure")
Both = tuple[Facts, Result]


@cache
def both(name: str) -> Both:
    golden = facts(fixtures.expected(f"kishi/{name}.md"))
    return golden, read_bundle(fixtures.bundle(f"kishi__{name}"), wanted=Wanted(activities=True))


def runs(result: Result) -> list[tuple[Case, Run]]:
    return [(case, run) for case in result.cases for run in case.runs]


def counts(found: list[Run]) -> tuple[int, ...]:
    statuses = [run.status for run in found]
    return (len(found), *(statuses.count(status) for status in STATUSES))


def suite_of(case: Case) -> tuple[str, str]:
    return case.target, case.suites[-1]


def lasts(result: Result) -> dict[tuple[str, str], Run]:
    """The last run of each suite, whose time that tool uses as the suite's time."""
    return {suite_of(case): run for case, run in runs(result)}


@pytest.mark.parametrize("name", NAMES)
def test_totals_and_times(name: str) -> None:
    golden, result = both(name)
    found = [run for _, run in runs(result)]
    assert counts(found) == golden.counts
    assert f"{sum(last.duration for last in lasts(result).values()):.2f}" == golden.seconds
    assert result.scheme == golden.scheme
    assert summary(result).runs == golden.counts[0]


@pytest.mark.parametrize("name", NAMES)
def test_suites_with_counts_and_times(name: str) -> None:
    golden, result = both(name)
    by_suite: dict[tuple[str, str], list[Run]] = {}
    for case, run in runs(result):
        by_suite.setdefault(suite_of(case), []).append(run)
    ours = {SuiteFacts(*key, counts(found)) for key, found in by_suite.items()}
    assert ours == {suite for suite in golden.suites if suite.counts[0]}
    times = {(*key, f"{run.duration:.2f}") for key, run in lasts(result).items()}
    empty = {(suite.target, suite.suite) for suite in golden.suites if not suite.counts[0]}
    assert times == {time for time in golden.times if time[:2] not in empty}


@pytest.mark.parametrize("name", NAMES)
def test_devices_and_sdks(name: str) -> None:
    golden, result = both(name)
    tested = [action for action in result.actions if action.has_tests]
    ours = {
        (
            f"{each.device.name}, {each.device.os_version} ({each.device.os_build})",
            f"{each.sdk}, {each.sdk_version}",
        )
        for each in tested
    }
    assert {(device, sdk) for _, device, sdk in golden.devices} == ours
    with_tests = {target for target, _, _ in golden.devices}
    assert (
        {case.target for case in result.cases}
        <= with_tests
        == {each.name for each in result.targets}
    )


@pytest.mark.parametrize("name", NAMES)
def test_failures_with_place_type_and_message(name: str) -> None:
    golden, result = both(name)
    ours = [
        FailureFacts(
            "/".join((case.target, *case.suites, case.function)),
            words.long_place(failure.place),
            failure.issue_type,
            failure.message,
        )
        for case, run in runs(result)
        for failure in run.failures
    ]
    assert ours == golden.failures


def steps(activities: tuple[Activity, ...], level: int = 0) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for activity in activities:
        found.append((level, activity.title))
        found += steps(activity.activities, level + 1)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_run_with_status_configuration_and_activities(name: str) -> None:
    golden, result = both(name)
    ours = Counter(
        RunFacts(
            *suite_of(case),
            case.function,
            run.status,
            ", ".join(
                f"{each.name or each.label}: {each.identifier or each.value}"
                for each in run.arguments
            ),
            tuple(steps(run.activities)),
        )
        for case, run in runs(result)
    )
    assert ours == Counter(golden.runs)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"Attachment", "example"}])
def test_coverage_of_targets_and_files(name: str) -> None:
    golden, result = both(name)
    coverage = read_all_coverage(Directory(fixtures.bundle(f"kishi__{name}")), result.actions)
    assert coverage is not None
    built = [each for each in coverage.targets if not each.name.endswith(".xctest")]
    ours = Counter((each.name, each.covered, each.executable) for each in built)
    ours += Counter((f.name, f.covered, f.executable) for each in built for f in each.files)
    assert golden.coverage
    theirs = Counter((row.name, row.covered, row.executable) for row in golden.coverage)
    total = sum(each.covered for each in built), sum(each.executable for each in built)
    assert theirs == ours + Counter([("Total", *total)])
