"""Formats a result as JUnit XML, in the dialect that CI servers have in common.

One `testsuite` for each suite of a target, named `Target.Suite.Inner`; one `testcase` for each set of
arguments, configuration and device of a test. Repetitions of a test are one `testcase`, as Maven's Surefire
writes them: if it passed in the end, earlier failures are `flakyFailure`; if not, the first failure is
the `failure` and the others are `rerunFailure`. An expected failure passes, with a note in `system-out`.
Runner errors are `error`s in a suite of their own, named after their targets; so is a build that failed, one
`testcase` for each target with errors. An issue outside of any test passes, with its message in `system-err`.

Invariants:
- The document is well-formed and complete, whatever the bundle contains.
- The document has a `failure` or an `error` if and only if the verdict is bad.
- The counts of a suite are those of its `testcase` elements; the counts of the document are the sums.
- `time` is in seconds, and absent if unknown. That of a repeated test is the mean of its runs, as in every format.
- A test is named by its function, and by its display name only if it has no function, so that history
  survives a new label.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from runyard.xcresult.formats import words, xml
from runyard.xcresult.formats.groups import Group, named
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.model import (
    BuildIssue,
    Case,
    Failure,
    Place,
    Result,
    Run,
    RunnerError,
)
from runyard.xcresult.reader.verdict import build_errors, build_failed, tests

_FRAMES = 50


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One `testcase`: its lines, and what it adds to the counts."""

    lines: tuple[str, ...]
    time: float | None = None
    failure: bool = False
    error: bool = False
    skipped: bool = False


class SuiteXml(msgspec.Struct, kw_only=True):
    """One `testsuite`, while it is collected."""

    name: str
    properties: dict[str, str]
    timestamp: str = ""
    entries: list[Entry] = msgspec.field(default_factory=list)


def junit(
    results: Iterable[Result],
    *,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
) -> Iterator[str]:
    """The lines of one document for one or several results; files have their paths in the repository."""
    found: list[SuiteXml] = []
    names: list[str] = []
    for result in results:
        found += _suites(result, sources)
        names += [result.test_plan] if result.test_plan else []
    entries = [entry for suite in found for entry in suite.entries]
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield xml.opening(
        "testsuites", {"name": ", ".join(dict.fromkeys(names)) or "tests", **_counts(entries)}
    )
    for suite in found:
        yield from _suite(suite)
    yield "</testsuites>"


def _suites(result: Result, sources: Sources) -> list[SuiteXml]:
    found: dict[tuple[object, ...], SuiteXml] = {}
    several = len({case.plan for case in result.cases}) > 1
    for case in tests(result):
        for group, name in named(case, result.actions):
            key = (case.plan, case.target, case.suites)
            if key not in found:
                suite = ".".join((case.target, *case.suites))
                found[key] = SuiteXml(
                    name=f"{suite} ({case.plan})" if several and case.plan else suite,
                    properties=_properties(result, case),
                    timestamp=_timestamp(result, group),
                )
            suite = found[key].name
            entry = _entry(case, group, label=name, suite=suite, sources=sources)
            found[key].entries.append(entry)
    suites = list(found.values())
    if result.errors:
        suites.append(_errors(result))
    if build_failed(result):
        suites.append(_build(result, sources))
    return suites


def _properties(result: Result, case: Case) -> dict[str, str]:
    runs = case.runs
    devices = [
        result.actions[run.action].device for run in runs if run.action < len(result.actions)
    ]
    properties = {
        "test plan": case.plan,
        "configuration": ", ".join(dict.fromkeys(run.configuration for run in runs)),
        "device": ", ".join(dict.fromkeys(words.device(device) for device in devices)),
        "xcode": result.xcode,
        "format": result.format,
    }
    return {name: value for name, value in properties.items() if value}


def _timestamp(result: Result, group: Group) -> str:
    known = group.action < len(result.actions)
    started = result.actions[group.action].started if known else None
    if started is None:
        return ""
    try:
        return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # the year is out of range
        return ""


def _entry(case: Case, group: Group, *, label: str, suite: str, sources: Sources) -> Entry:
    name = case.function or case.name
    time = group.duration
    attributes = {"name": f"{name} [{label}]" if label else name, "classname": suite}
    if time is not None:
        attributes["time"] = f"{time:.6f}"
    place = next((failure.place for failure in group.failures if failure.place), None)
    if group.status == "Failure":
        attributes |= _location(place, sources)
    inside = [*_outcome(group), *_output(case, group)]
    lines = [xml.opening("testcase", attributes), *inside, "</testcase>"]
    return Entry(
        lines=tuple(lines) if inside else (xml.opening("testcase", attributes, empty=True),),
        time=time,
        failure=group.status == "Failure",
        skipped=group.status == "Skipped",
    )


def _outcome(group: Group) -> Iterator[str]:
    if group.status == "Skipped":
        skip = group.deciding.skip
        message = words.cut(skip.message) if skip is not None else ""
        yield xml.element("skipped", {"message": message} if message else {})
    elif group.status == "Failure":
        failed = [run for run in group.runs if run.status == "Failure"]
        yield from _failures("failure", failed[0])
        for run in failed[1:]:
            yield from _reruns("rerunFailure", run)
    elif group.flaky:
        for run in group.runs:
            if run.status == "Failure":
                yield from _reruns("flakyFailure", run)


def _failures(name: str, run: Run) -> Iterator[str]:
    """One element: consumers of JUnit expect at most one, so several failures of a run share it."""
    first, text = _joined_failures(run)
    yield xml.element(name, {"message": first.message, "type": _type(first)}, text)


def _reruns(name: str, run: Run) -> Iterator[str]:
    first, text = _joined_failures(run)
    yield xml.opening(name, {"message": first.message, "type": _type(first)})
    yield xml.element("stackTrace", {}, text)
    yield f"</{name}>"


def _joined_failures(run: Run) -> tuple[Failure, str]:
    shown = words.shown_failures(run)
    if not shown:
        unknown = Failure(message="The test failed and recorded no reason.")
        return unknown, unknown.message
    text = "\n".join(_failure(failure) for failure in shown)
    first = shown[0]
    return msgspec.structs.replace(first, message=words.cut(first.message)), words.cut(text)


def _failure(failure: Failure) -> str:
    place = words.long_place(failure.place)
    lines = [f"{place}: {failure.message}" if place else failure.message]
    symbolic = [
        frame for frame in failure.frames if frame.symbol
    ]  # addresses without symbols are useless
    for frame in symbolic[:_FRAMES]:
        where = words.short_place(frame.place)
        parts = (frame.image, frame.symbol, f"({where})" if where else "")
        lines.append("    at " + " ".join(part for part in parts if part))
    return "\n".join(lines)


def _type(failure: Failure) -> str:
    return failure.issue_type or "Failure"


def _output(case: Case, group: Group) -> Iterator[str]:
    lines = [f"display name: {case.name}"] if case.function and case.name != case.function else []
    for run in group.runs:
        for expected in run.expected_failures:
            cause = words.located_message(expected.failure) if expected.failure is not None else ""
            lines.append(
                ": ".join(part for part in ("expected failure", expected.reason, cause) if part)
            )
        lines += [f"warning: {words.located_message(warning)}" for warning in run.issue_warnings]
    if lines:
        yield xml.element("system-out", {}, words.cut("\n".join(lines)))


def _errors(result: Result) -> SuiteXml:
    """Build the suite of errors outside of tests: only those that fail the run are `error`s."""
    suite = SuiteXml(name="Errors outside of tests", properties={})
    for number, error in enumerate(result.errors, start=1):
        name = f"error {number}" if len(result.errors) > 1 else "error"
        attributes = {"name": name, "classname": error.target or "runner"}
        lines = (xml.opening("testcase", attributes), _error(error), "</testcase>")
        suite.entries.append(Entry(lines=lines, error=error.fatal))
    return suite


def _error(error: RunnerError) -> str:
    message = words.cut(error.message)
    if not error.fatal:
        return xml.element("system-err", {}, message)
    return xml.element("error", {"message": message, "type": "Runner Error"}, message)


def _build(result: Result, sources: Sources) -> SuiteXml:
    """Build the suite of failed builds: one `error` for each target, with all of its messages."""
    suite = SuiteXml(name="Build", properties={})
    found: dict[str, list[BuildIssue]] = {}
    for issue in build_errors(result):
        found.setdefault(issue.target, []).append(issue)
    for target, issues in (
        found or {"": [BuildIssue(kind="error", message=words.BUILD_FAILED)]}
    ).items():
        suite.entries.append(Entry(lines=tuple(_failed_build(target, issues, sources)), error=True))
    return suite


def _failed_build(target: str, issues: list[BuildIssue], sources: Sources) -> Iterator[str]:
    attributes = {"name": "build", "classname": target or "build"}
    place = next((issue.place for issue in issues if issue.place is not None), None)
    yield xml.opening("testcase", {**attributes, **_location(place, sources)})
    places = (words.long_place(issue.place, sources) for issue in issues)
    texts = (
        f"{at}: {issue.message}" if at else issue.message
        for at, issue in zip(places, issues, strict=True)
    )
    message, kind = words.cut(issues[0].message), issues[0].issue_type or "Build Error"
    text = words.cut("\n".join(texts))
    yield xml.element("error", {"message": message, "type": kind}, text)
    yield "</testcase>"


def _location(place: Place | None, sources: Sources) -> dict[str, str]:
    if place is None:
        return {}
    line = {"line": str(place.line)} if place.line else {}
    return {"file": sources.shown(place.path), **line}


def _suite(suite: SuiteXml) -> Iterator[str]:
    attributes = {"name": suite.name, **_counts(suite.entries)}
    if suite.timestamp:
        attributes["timestamp"] = suite.timestamp
    yield xml.opening("testsuite", attributes)
    if suite.properties:
        yield "<properties>"
        for name, value in suite.properties.items():
            yield xml.element("property", {"name": name, "value": value})
        yield "</properties>"
    for entry in suite.entries:
        yield from entry.lines
    yield "</testsuite>"


def _counts(entries: list[Entry]) -> dict[str, str]:
    return {
        "tests": str(len(entries)),
        "failures": str(sum(entry.failure for entry in entries)),
        "errors": str(sum(entry.error for entry in entries)),
        "skipped": str(sum(entry.skipped for entry in entries)),
        "time": f"{sum(entry.time or 0.0 for entry in entries):.6f}",
    }
