"""Builds the model's cases, suites, targets and errors from what the walk collected.

Two kinds of entries in the tree are not tests: a failed test runner ("App (123) encountered an error"), and issues
recorded outside of any test. Both have their name as identifier and no URL; a test whose display name merely looks like
that has an identifier of its own.
"""

import re
from typing import Literal

from runyard.xcresult.reader.aggregation import (
    case_status,
    combine,
    is_flaky,
    mean_duration,
    runs_duration,
)
from runyard.xcresult.reader.durations import (
    Named,
    case_seconds,
    label,
    suite_seconds,
    target_seconds,
)
from runyard.xcresult.reader.logs import Log
from runyard.xcresult.reader.model import Case, RunnerError, Status, Suite, Target
from runyard.xcresult.reader.walk import CaseKey, OpenCase, TargetKey, Walk

SESSIONLESS = "Issues recorded without an associated test or suite"
SESSIONLESS_PREFIX = "Issue recorded without an associated test: "
SWIFT_TESTING_SINCE = 53
"""The first minor of an Xcode with Swift Testing."""
SYSTEM_FAILURES = "System Failures"
"""The group of runner errors."""
_RUNNER = re.compile(r".+ encountered an error(?: \(.*\))?\.?", re.DOTALL)
Framework = Literal["XCTest", "Swift Testing", ""]


def is_sessionless(name: str, *, identifier: str, url: str) -> bool:
    """Whether this entry stands for issues without a test."""
    return name == SESSIONLESS and identifier in ("", name) and not url


def is_runner_error(name: str, *, identifier: str, url: str, suites: tuple[str, ...] = ()) -> bool:
    """Whether this entry stands for a runner that failed."""
    if url or identifier not in ("", name):
        return False
    return suites == (SYSTEM_FAILURES,) or bool(_RUNNER.fullmatch(name))


def framework_of(url: str, *, minor: int) -> Framework:
    """Derive the framework from the URL, in which names of Swift Testing have parentheses and XCTest's do not."""
    if url:
        return "Swift Testing" if url.endswith(")") else "XCTest"
    return "XCTest" if minor < SWIFT_TESTING_SINCE else ""


def freeze_cases(walk: Walk, logs: dict[str, list[Log]]) -> tuple[Case, ...]:
    """All cases; `logs` are those of each plan."""
    logged = _logged_durations(walk, logs)
    return tuple(_case(key, case, walk.minor, logged) for key, case in walk.cases.items())


def freeze_suites(
    walk: Walk, cases: tuple[Case, ...], logs: dict[str, list[Log]]
) -> tuple[Suite, ...]:
    """All suites, each with the aggregate of its cases at any depth."""
    statuses: dict[tuple[str, str, tuple[str, ...]], list[Status]] = {}
    for case in cases:
        for end in range(1, len(case.suites) + 1):
            key = (case.plan, case.target, case.suites[:end])
            statuses.setdefault(key, []).append(case.status)
    silent: dict[TargetKey, list[Named]] = {}
    durations = {key: mean_duration(suite.durations) for key, suite in walk.suites.items()}
    for (plan, target, path), suite in walk.suites.items():
        if durations[plan, target, path] is None:
            silent.setdefault((plan, target), []).append((path, label(suite.name, suite.display)))
    for (plan, target), names in silent.items():
        for (path, _), seconds in suite_seconds(logs.get(plan, ()), target, names).items():
            durations[plan, target, path] = seconds
    return tuple(
        Suite(
            plan=key[0],
            target=key[1],
            path=key[2],
            name=suite.display or suite.name,
            identifier=suite.identifier,
            identifier_url=suite.url,
            status=combine(statuses.get(key, ())),
            duration=durations[key],
            tags=suite.tags,
        )
        for key, suite in walk.suites.items()
    )


def freeze_targets(
    walk: Walk, cases: tuple[Case, ...], logs: dict[str, list[Log]]
) -> tuple[Target, ...]:
    """All targets; one whose runner failed has failed."""
    statuses: dict[TargetKey, list[Status]] = {}
    for case in cases:
        statuses.setdefault((case.plan, case.target), []).append(case.status)
    return tuple(
        Target(
            plan=plan,
            name=name,
            kind=target.texts["testKind"],
            identifier_url=target.texts["identifierURL"],
            project_path=target.texts["projectRelativePath"],
            language=target.texts["testLanguage"],
            region=target.texts["testRegion"],
            status="Failure" if target.failures else combine(statuses.get((plan, name), ())),
            duration=target_seconds(logs.get(plan, ()), name),
            failures=tuple(target.failures.values()),
        )
        for (plan, name), target in walk.targets.items()
    )


def runner_errors(cases: tuple[Case, ...], targets: tuple[Target, ...]) -> tuple[RunnerError, ...]:
    """Return the errors that are not failures of a test, each message of a target once.

    An entry without a message gets the messages of its target's failures; without these, its name is the
    message.
    """
    found: dict[tuple[str, str], RunnerError] = {}
    explained = {(target.plan, target.name) for target in targets if target.failures}
    for case in cases:
        if not (case.runner_error or case.sessionless):
            continue
        prefix = SESSIONLESS_PREFIX if case.sessionless else ""
        messages = [failure.message for run in case.runs for failure in run.failures]
        if not messages and case.status == "Failure" and (case.plan, case.target) not in explained:
            messages = [case.function]
        for message in messages:
            error = RunnerError(
                message=prefix + message, target=case.target, fatal=not case.sessionless
            )
            found.setdefault((case.target, message), error)
    for target in targets:
        for failure in target.failures:
            error = RunnerError(message=failure.message, target=target.name)
            found.setdefault((target.name, failure.message), error)
    return tuple(found.values())


def _logged_durations(
    walk: Walk, logs: dict[str, list[Log]]
) -> dict[tuple[TargetKey, Named], float]:
    """Durations from the logs for cases whose runs have none.

    All cases that can have a line in the log are matched, also cases with a known duration: otherwise their line
    could be assigned to another test of the same name. A skipped test has no line.
    """
    names: dict[TargetKey, list[Named]] = {}
    silent: dict[TargetKey, None] = {}
    for (plan, target, path, _), case in walk.cases.items():
        ran = any(run.status != "Skipped" for run in case.runs)
        if not ran or not logs.get(plan) or framework_of(case.url, minor=walk.minor) == "XCTest":
            continue
        names.setdefault((plan, target), []).append((path, label(case.function, case.display)))
        if all(run.duration == 0 for run in case.runs):
            silent[plan, target] = None
    found: dict[tuple[TargetKey, Named], float] = {}
    for key in silent:
        for named, seconds in case_seconds(logs[key[0]], key[1], names[key]).items():
            found[key, named] = seconds
    return found


def _case(
    key: CaseKey, case: OpenCase, minor: int, logged: dict[tuple[TargetKey, Named], float]
) -> Case:
    plan, target, path, identifier = key
    runs = tuple(case.runs)
    framework = framework_of(case.url, minor=minor)
    named = (path, label(case.function, case.display))
    in_log = None if framework == "XCTest" else logged.get(((plan, target), named))
    sessionless = is_sessionless(case.function, identifier=identifier, url=case.url)
    return Case(
        plan=plan,
        target=target,
        suites=path,
        identifier=identifier,
        name=case.display or case.function,
        function=case.function,
        identifier_url=case.url,
        framework=framework,
        status=case_status(runs),
        flaky=is_flaky(runs),
        duration=runs_duration(runs, logged=in_log),
        runs=runs,
        tags=case.tags,
        bugs=case.bugs,
        documentation=case.documentation,
        runner_error=not sessionless
        and is_runner_error(case.function, identifier=identifier, url=case.url, suites=path),
        sessionless=sessionless,
    )
