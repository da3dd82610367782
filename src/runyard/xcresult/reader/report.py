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

Invariant: names are neither split nor joined for each case. A suite may be named with a million slashes, and a bundle
may list as many quarantined tests as it has cases; what is built for a path is built once for all cases of a suite.
"""

from collections.abc import Iterable, Mapping

import msgspec

from runyard.xcresult.reader.aggregation import (
    case_status,
    repetition_groups,
    runs_duration,
)
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.budget import Budget
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


Path = tuple[str, ...]
"""The displayed names of the suites around a case, outermost first."""


def report(
    result: Result,
    *,
    quarantine: tuple[Quarantined, ...] = (),
    crashes: Mapping[str, CrashReport] | None = None,
    budget: Budget | None = None,
) -> Report:
    """The report of a result. `crashes` are the digests of attached crash reports by payload id.

    The texts that it adds are spent from `budget`.
    """
    names = _Names(result.suites, budget or Budget())
    modules = _modules(result, names, frozenset(quarantine), crashes or {})
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


class _Names:
    """The displayed names of suites, of which each path is built once."""

    def __init__(self, suites: Iterable[Suite], budget: Budget) -> None:
        self._suites = {(one.plan, one.target, one.path): one.name for one in suites}
        self._paths: dict[tuple[str, str, Path], Path] = {}
        self._joined: dict[Path, str] = {}
        self._budget = budget

    def path(self, plan: str, target: str, path: Path) -> Path:
        """The displayed names on this path."""
        key = (plan, target, path)
        if key not in self._paths:
            self._paths[key] = tuple(
                self._suites.get((plan, target, path[: end + 1]), path[end])
                for end in range(len(path))
            )
        return self._paths[key]

    def joined(self, path: Path) -> str:
        """The displayed names as one text."""
        if path not in self._joined:
            self._budget.hold(sum(map(len, path)))
            self._joined[path] = "/".join(path)
        return self._joined[path]


def _modules(
    result: Result,
    names: _Names,
    quarantine: frozenset[Quarantined],
    crashes: Mapping[str, CrashReport],
) -> tuple[Module, ...]:
    cases: dict[str, list[tuple[Path, ReportCase]]] = {}
    for case in tests(result):
        path = names.path(case.plan, case.target, case.suites)
        one = _case(case, suite=names.joined(path), crashes=crashes)
        if quarantine and _is_listed(case, path, quarantine):
            one = msgspec.structs.replace(one, is_quarantined=True)
        cases.setdefault(case.target, []).append((path, one))
    suites: dict[str, list[Suite]] = {}
    for suite in result.suites:
        suites.setdefault(suite.target, []).append(suite)
    known: dict[str, list[float]] = {}
    for target in result.targets:
        if target.duration:
            known.setdefault(target.name, []).append(target.duration)
    return tuple(
        _module(name, found, names, suites=suites.get(name, []), known=known.get(name, []))
        for name, found in cases.items()
    )


def _module(
    name: str,
    cases: list[tuple[Path, ReportCase]],
    names: _Names,
    *,
    suites: list[Suite],
    known: list[float],
) -> Module:
    reports = tuple(one for _, one in cases)
    return Module(
        name=name,
        status="failure" if any(one.status == "failure" for one in reports) else "success",
        duration=_length(sum(known) if known else None, (one.duration for one in reports)),
        test_suites=tuple(_suites(suites, cases, names)),
        test_cases=reports,
    )


def _suites(
    suites: list[Suite], cases: list[tuple[Path, ReportCase]], names: _Names
) -> Iterable[ReportSuite]:
    direct: dict[Path, list[ReportCase]] = {}
    for path, case in cases:
        direct.setdefault(path, []).append(case)
    inside: dict[Path, list[tuple[Outcome, int]]] = {}
    for path, found in direct.items():
        figures = _combined(one.status for one in found), sum(one.duration or 0 for one in found)
        for end in range(1, len(path) + 1):
            inside.setdefault(path[:end], []).append(figures)
    durations: dict[Path, list[float]] = {}
    for suite in suites:
        path = names.path(suite.plan, suite.target, suite.path)
        durations.setdefault(path, []).append(suite.duration or 0.0)
    shown: dict[str, list[Path]] = {}
    for path in durations:
        if path in inside:
            shown.setdefault(names.joined(path), []).append(path)
    for name, paths in shown.items():  # more than one path if a name has a slash
        parts = [each for path in paths for each in inside[path]]
        seconds = sum(sum(durations[path]) for path in paths)
        yield ReportSuite(
            name=name,
            status=_combined(status for status, _ in parts),
            duration=_length(seconds or None, (length for _, length in parts)),
        )


def _length(seconds: float | None, cases: Iterable[int | None]) -> int:
    """Milliseconds of a suite or a module; the sum of its cases if it was not measured."""
    known = milliseconds(seconds)
    return sum(case or 0 for case in cases) if known is None else known


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


def _is_listed(case: Case, path: Path, quarantine: frozenset[Quarantined]) -> bool:
    """Whether an entry matches this case: its suite by name, its method with or without parentheses."""
    suites = (None, "/".join(path), "/".join(case.suites), *path[-1:], *case.suites[-1:])
    methods = (None, case.name, case.function, case.function.removesuffix("()"))
    return any(
        Quarantined(case.target, suite, method) in quarantine
        for suite in suites
        for method in methods
    )
