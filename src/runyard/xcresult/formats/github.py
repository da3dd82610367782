"""Formats a result as workflow commands of GitHub Actions: annotations at failed lines.

GitHub shows ten annotations of each level for one step and silently drops the others. So at most `most` errors,
warnings and notices are printed, the most important first, and a plain line with the number of the others.

Invariants:
- Untrusted text is always escaped data of a command: it cannot begin a line, so it cannot be a command.
- Paths below `root` are relative to it, as GitHub requires; other paths are printed as in the bundle.
"""

import itertools
from collections.abc import Iterator, Sequence

from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import named
from runyard.xcresult.formats.summary import Summary, counts, summary
from runyard.xcresult.reader.model import Case, Place, Result, Run

MOST = 10
_MESSAGE = 4000


def github(
    results: Sequence[tuple[str, Result]], *, root: str = "", most: int = MOST
) -> Iterator[str]:
    """Lines for the standard output of a step, of one or several results by their titles."""
    found = [(result, summary(result)) for _, result in results]
    chained = itertools.chain.from_iterable
    yield from _bounded(chained(_errors(*each, root) for each in found), most, "errors")
    yield from _bounded(chained(_warnings(each, root) for each, _ in found), most, "warnings")
    yield from _bounded(chained(_notices(*each, root) for each in found), most, "notices")
    for (title, _), (_, numbers) in zip(results, found, strict=True):
        line = words.line_of(f"runyard: {title}: {numbers.verdict}, {counts(numbers)}")
        yield line.replace("##[", "## [")


def data(value: str) -> str:
    """The message of a command."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def prop(value: str) -> str:
    """The value of a property of a command."""
    return data(value).replace(":", "%3A").replace(",", "%2C")


def _command(level: str, *, message: str, title: str, place: Place | None, root: str) -> str:
    parts = []
    if place is not None and place.path:
        parts.append(f"file={prop(words.below(place.path, root))}")
        if place.line:
            parts.append(f"line={place.line}")
    parts.append(f"title={prop(words.line_of(title))}")
    return f"::{level} {','.join(parts)}::{data(words.cut(message, _MESSAGE))}"


def _bounded(lines: Iterator[str], most: int, name: str) -> Iterator[str]:
    yield from itertools.islice(lines, most)
    left = sum(1 for _ in lines)
    if left:
        yield f"runyard: {left} more {name} are not annotated: GitHub shows {most}"


def _errors(result: Result, numbers: Summary, root: str) -> Iterator[str]:
    for error in numbers.errors:
        if error.fatal:
            yield _command(
                "error",
                message=error.message,
                title=error.target or "runner",
                place=None,
                root=root,
            )
    for case in numbers.failing:
        yield from _failures(result, case, root)
    for issue in result.build_issues:
        if issue.kind == "error":
            yield _command(
                "error", message=issue.message, title="build", place=issue.place, root=root
            )


def _failures(result: Result, case: Case, root: str) -> Iterator[str]:
    for group, name in named(case, result.actions):
        if group.status != "Failure":
            continue
        title = words.path_of(case) + (f" [{name}]" if name else "")
        if not group.failures:
            message = "The test failed and recorded no reason."
            yield _command("error", message=message, title=title, place=None, root=root)
        for failure in group.failures:
            yield _command(
                "error", message=failure.message, title=title, place=failure.place, root=root
            )


def _warnings(result: Result, root: str) -> Iterator[str]:
    for error in result.errors:
        if not error.fatal:
            yield _command(
                "warning",
                message=error.message,
                title=error.target or "tests",
                place=None,
                root=root,
            )
    for issue in result.build_issues:
        if issue.kind != "error":
            yield _command(
                "warning", message=issue.message, title=issue.kind, place=issue.place, root=root
            )


def _notices(result: Result, numbers: Summary, root: str) -> Iterator[str]:
    for case in numbers.flaky:
        failed = [run for run in case.runs if run.status == "Failure"]
        reason = _reason(failed[-1]) if failed else ""
        place = next((f.place for run in failed for f in words.shown_failures(run)), None)
        message = f"Flaky: failed {len(failed)} of {words.count(len(case.runs), 'time')}, passed in the end. {reason}"
        yield _command(
            "notice", message=message.strip(), title=words.path_of(case), place=place, root=root
        )


def _reason(run: Run) -> str:
    return "; ".join(failure.message for failure in words.shown_failures(run))
