"""Builds the report of a test run that a server stores and shows.

One run has modules (test targets), a module has suites and cases, a case has failures, repetitions, arguments
and attachments. Statuses are three: success, failure, skipped.

Rules:
- Milliseconds are truncated, not rounded, and at least 1 for any positive duration.
- An expected failure is a success. A failed test runner is not a case but an error, and fails the run; issues
  without a test are errors that do not.
- A case with arguments has its failures there. An argument of which any repetition failed has failed, and so
  has its case, also when a retry succeeded; without arguments, the retry decides.
- Quarantined failures do not fail the run, but stay failures.
"""

from collections.abc import Iterable, Mapping

import msgspec

from runyard.xcresult.reader.aggregation import (
    case_status,
    repetition_groups,
    runs_duration,
)
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.messages import split_message
from runyard.xcresult.reader.model import Case, Failure, Result, Run, Status, Suite
from runyard.xcresult.reader.report_model import (
    Destination,
    Module,
    Outcome,
    Quarantined,
    Report,
    ReportArgument,
    ReportAttachment,
    ReportCase,
    ReportCrash,
    ReportError,
    ReportFailure,
    ReportRepetition,
    ReportSuite,
)
from runyard.xcresult.reader.verdict import tests

_OUTCOMES: dict[Status, Outcome] = {
    "Success": "success",
    "Expected Failure": "success",
    "Failure": "failure",
    "Skipped": "skipped",
}


def report(
    result: Result,
    *,
    quarantine: tuple[Quarantined, ...] = (),
    crashes: Mapping[str, CrashReport] | None = None,
) -> Report:
    """The report of a result. `crashes` are the digests of attached crash reports by payload id."""
    modules = _modules(result, quarantine, crashes or {})
    cases = [case for module in modules for case in module.test_cases]
    return Report(
        test_plan_name=result.test_plan,
        status=_run_status(result, cases),
        duration=milliseconds(result.duration),
        test_modules=modules,
        run_destinations=tuple(
            Destination(name=name, platform=normalised(platform), os_version=version)
            for name, platform, version in destinations(result)
        ),
        errors=tuple(
            ReportError(message=error.message, target=error.target or None)
            for error in result.errors
        ),
    )


def milliseconds(seconds: float | None) -> int | None:
    """Truncate to whole milliseconds; at least 1 for any positive duration."""
    if seconds is None:
        return None
    return int(seconds * 1000) or int(seconds > 0)


def destinations(result: Result) -> tuple[tuple[str, str, str], ...]:
    """Name, platform and system version of each action's device, in order, without repeats."""
    devices = (action.device for action in result.actions)
    return tuple(dict.fromkeys((one.name, one.platform, one.os_version) for one in devices))


def normalised(platform: str) -> str:
    """`iOS Simulator` is `ios_simulator`, iPadOS is iOS; other platforms are `unknown`."""
    name, _, rest = platform.lower().replace("ipados", "ios").partition(" ")
    if name == "macos" and not rest:
        return name
    if name in ("ios", "tvos", "watchos", "visionos", "xros") and rest in ("", "simulator"):
        name = name.replace("xros", "visionos")
        return f"{name}_{rest}" if rest else name
    return "unknown"


def _run_status(result: Result, cases: list[ReportCase]) -> Outcome:
    failing = [case for case in cases if case.status == "failure"]
    if any(error.fatal for error in result.errors):
        return "failure"
    if any(not case.is_quarantined for case in failing):
        return "failure"
    return "skipped" if all(case.status == "skipped" for case in cases) else "success"


def _modules(
    result: Result, quarantine: tuple[Quarantined, ...], crashes: Mapping[str, CrashReport]
) -> tuple[Module, ...]:
    names = {(suite.plan, suite.target, suite.path): suite.name for suite in result.suites}
    cases: dict[str, list[tuple[Case, ReportCase]]] = {}
    for case in tests(result):
        path = [
            names.get((case.plan, case.target, case.suites[: end + 1]), case.suites[end])
            for end in range(len(case.suites))
        ]
        one = _case(case, suite="/".join(path), crashes=crashes)
        if any(_matches(entry, case, path) for entry in quarantine):
            one = msgspec.structs.replace(one, is_quarantined=True)
        cases.setdefault(case.target, []).append((case, one))
    suites: dict[str, list[Suite]] = {}
    for suite in result.suites:
        suites.setdefault(suite.target, []).append(suite)
    known: dict[str, list[float]] = {}
    for target in result.targets:
        if target.duration:
            known.setdefault(target.name, []).append(target.duration)
    return tuple(
        _module(name, found, suites=suites.get(name, []), known=known.get(name, []))
        for name, found in cases.items()
    )


def _module(
    name: str,
    cases: list[tuple[Case, ReportCase]],
    *,
    suites: list[Suite],
    known: list[float],
) -> Module:
    reports = tuple(one for _, one in cases)
    return Module(
        name=name,
        status="failure" if any(one.status == "failure" for one in reports) else "success",
        duration=_length(sum(known) if known else None, reports),
        test_suites=tuple(_suites(suites, reports)),
        test_cases=reports,
    )


def _suites(suites: list[Suite], cases: tuple[ReportCase, ...]) -> Iterable[ReportSuite]:
    names = {(one.plan, one.path): one.name for one in suites}
    inside: dict[str, list[ReportCase]] = {}
    for case in cases:
        parts = (case.test_suite_name or "").split("/")
        for end in range(1, len(parts) + 1):
            inside.setdefault("/".join(parts[:end]), []).append(case)
    durations: dict[str, list[float]] = {}
    for suite in suites:
        path = [
            names.get((suite.plan, suite.path[: end + 1]), suite.path[end])
            for end in range(len(suite.path))
        ]
        durations.setdefault("/".join(path), []).append(suite.duration or 0.0)
    for name, seconds in durations.items():
        found = tuple(inside.get(name, ()))
        if found:
            yield ReportSuite(
                name=name,
                status=_combined(one.status for one in found),
                duration=_length(sum(seconds) or None, found),
            )


def _length(seconds: float | None, cases: tuple[ReportCase, ...]) -> int:
    """Milliseconds of a suite or a module; the sum of its cases if it was not measured."""
    known = milliseconds(seconds)
    return sum(case.duration or 0 for case in cases) if known is None else known


def _combined(statuses: Iterable[Outcome]) -> Outcome:
    found = frozenset(statuses)
    return "failure" if "failure" in found else "success" if "success" in found else "skipped"


def _case(case: Case, *, suite: str, crashes: Mapping[str, CrashReport]) -> ReportCase:
    arguments = _arguments(case)
    status = _OUTCOMES[case.status]
    if any(one.status == "failure" for one in arguments):
        status = "failure"
    return ReportCase(
        name=case.name,
        test_suite_name=suite or None,
        module=case.target,
        duration=milliseconds(case.duration),
        status=status,
        failures=() if arguments else _failures(case.runs),
        repetitions=() if arguments else _repetitions(case.runs),
        arguments=arguments,
        crash_report=_crash(case, crashes),
        attachments=tuple(one for run in case.runs for one in _attachments(run)),
        is_flaky=case.flaky,
        identifier=case.identifier,
    )


def _crash(case: Case, crashes: Mapping[str, CrashReport]) -> ReportCrash | None:
    for run in case.runs:
        for one in run.attachments:
            found = crashes.get(one.payload_id)
            if found is not None:
                name = one.filename or one.name
                return ReportCrash(**msgspec.structs.asdict(found), file_name=name)
    return None


def _arguments(case: Case) -> tuple[ReportArgument, ...]:
    groups: dict[str, list[Run]] = {}
    for run in case.runs:
        if run.arguments:
            groups.setdefault(shown(run.arguments), []).append(run)
    return tuple(_argument(name, tuple(runs)) for name, runs in groups.items())


def _argument(name: str, runs: tuple[Run, ...]) -> ReportArgument:
    failed = any(run.status == "Failure" for run in runs)
    return ReportArgument(
        name=name,
        status="failure" if failed else _OUTCOMES[case_status(runs)],
        duration=milliseconds(runs_duration(runs)) or 0,
        failures=_failures(runs),
        repetitions=_repetitions(runs),
    )


def _repetitions(runs: tuple[Run, ...]) -> tuple[ReportRepetition, ...]:
    """The repetitions of everything that ran more than once, in order."""
    if sum(run.repetition is not None for run in runs) < 2:  # most cases
        return ()
    groups = [[run for run in group if run.repetition] for group in repetition_groups(runs)]
    if all(len(group) < 2 for group in groups):
        return ()
    return tuple(
        ReportRepetition(
            repetition_number=run.repetition.iteration,
            name=repetition_name(run.repetition.iteration),
            status=_OUTCOMES[run.status],
            duration=milliseconds(run.duration) or 0,
            failures=_failures((run,)),
        )
        for group in groups
        for run in sorted(group, key=_iteration)
        if run.repetition
    )


def _iteration(run: Run) -> int:
    return run.repetition.iteration if run.repetition else 0


def repetition_name(iteration: int) -> str:
    """The name that Apple's tool uses."""
    return "First Run" if iteration <= 1 else f"Retry {iteration - 1}"


def _failures(runs: Iterable[Run]) -> tuple[ReportFailure, ...]:
    """The failures to show for the runs: the top-level ones, or else all."""
    found: list[Failure] = []
    for run in runs:
        top = [failure for failure in run.failures if failure.top_level]
        found.extend(top or run.failures)
    return tuple(_failure(failure) for failure in found)


def _failure(failure: Failure) -> ReportFailure:
    message, issue_type = split_message(failure.message)
    return ReportFailure(
        message=message or None,
        path=failure.place.path if failure.place else None,
        line_number=failure.place.line if failure.place else 0,
        issue_type=issue_type,
    )


def _attachments(run: Run) -> Iterable[ReportAttachment]:
    name = shown(run.arguments) if run.arguments else None
    for one in run.attachments:
        if one.present:
            yield ReportAttachment(
                file_name=one.filename or one.name,
                payload_id=one.payload_id,
                size=one.size,
                uniform_type=one.uniform_type,
                repetition_number=run.repetition.iteration if run.repetition else None,
                argument_name=name,
                on_failure=one.on_failure,
            )


def _matches(entry: Quarantined, case: Case, path: list[str]) -> bool:
    """Whether an entry matches this case: its suite by name, its method with or without parentheses."""
    if entry.target != case.target:
        return False
    suites = {"/".join(path), "/".join(case.suites), *path[-1:], *case.suites[-1:]}
    methods = {case.name, case.function, case.function.removesuffix("()")}
    return entry.class_ in (None, *sorted(suites)) and entry.method in (None, *sorted(methods))
