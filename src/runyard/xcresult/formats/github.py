"""Formats a result as workflow commands of GitHub Actions: annotations at failed lines.

GitHub shows ten annotations of each level for one step and silently drops the others. So at most `most` errors,
warnings and notices are printed, the most important first, and a plain line with the number of the others.

Invariants:
- Untrusted text is always escaped data of a command: it cannot begin a line, so it cannot be a command.
- An annotation has a file only if the file is in the repository, because GitHub shows no others; else its message
  begins with the place, and a warning names the files.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import named
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.formats.summary import Summary, counts, summary
from runyard.xcresult.reader.model import Case, Place, Result, Run
from runyard.xcresult.reader.verdict import build_errors

MOST = 10
_MESSAGE = 4000
_NAMED = 3


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """One message of one level."""

    level: str
    message: str
    title: str
    place: Place | None = None


def github(
    results: Sequence[tuple[str, Result]],
    *,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
    most: int = MOST,
) -> Iterator[str]:
    """Lines for the standard output of a step, of one or several results by their titles."""
    found = [(result, summary(result)) for _, result in results]
    chained = itertools.chain.from_iterable
    errors = list(chained(_errors(*each) for each in found))
    warnings = list(chained(_warnings(each) for each, _ in found))
    notices = list(chained(_notices(numbers) for _, numbers in found))
    warnings[:0] = _unmapped((*errors, *warnings, *notices), sources)
    for each, name in ((errors, "errors"), (warnings, "warnings"), (notices, "notices")):
        yield from (_command(one, sources) for one in each[:most])
        if len(each) > most:
            left = len(each) - most
            yield f"runyard: {left} more {name} are not annotated: GitHub shows {most}"
    for (title, _), (_, numbers) in zip(results, found, strict=True):
        line = words.line_of(f"runyard: {title}: {numbers.verdict}, {counts(numbers)}")
        yield line.replace("##[", "## [")


def data(value: str) -> str:
    """The message of a command."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def prop(value: str) -> str:
    """The value of a property of a command."""
    return data(value).replace(":", "%3A").replace(",", "%2C")


def _command(one: Annotation, sources: Sources) -> str:
    parts, message = [], one.message
    if one.place is not None and one.place.path:
        file = sources.mapped(one.place.path)
        if file is None:
            message = f"{words.long_place(one.place)}: {message}"
        else:
            parts.append(f"file={prop(file)}")
            parts += [f"line={one.place.line}"] if one.place.line else []
    parts.append(f"title={prop(words.line_of(one.title))}")
    return f"::{one.level} {','.join(parts)}::{data(words.cut(message, _MESSAGE))}"


def _unmapped(annotations: Iterable[Annotation], sources: Sources) -> Iterator[Annotation]:
    """Warn of files that are not in the repository."""
    paths = dict.fromkeys(one.place.path for one in annotations if one.place and one.place.path)
    lost = [path for path in paths if sources.mapped(path) is None]
    if not lost:
        return
    shown = ", ".join(words.line_of(path) for path in lost[:_NAMED])
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    cause = (
        "not files of the repository" if sources.files else "not known as files of the repository"
    )
    message = (
        f"Annotations without a line, because their files are {cause}: {shown}{more}. Give the directory of the"
        " checkout with --checkout, or that of the sources on the machine that ran the tests with --root."
    )
    yield Annotation(level="warning", message=message, title="runyard")


def _errors(result: Result, numbers: Summary) -> Iterator[Annotation]:
    for error in numbers.errors:
        if error.fatal:
            title = error.target or "runner"
            yield Annotation(level="error", message=error.message, title=title)
    for case in numbers.failing:
        yield from _failures(result, case)
    for issue in build_errors(result):
        yield Annotation(level="error", message=issue.message, title="build", place=issue.place)


def _failures(result: Result, case: Case) -> Iterator[Annotation]:
    for group, name in named(case, result.actions):
        if group.status != "Failure":
            continue
        title = words.path_of(case) + (f" [{name}]" if name else "")
        if not group.failures:
            message = "The test failed and recorded no reason."
            yield Annotation(level="error", message=message, title=title)
        for failure in group.failures:
            yield Annotation(
                level="error", message=failure.message, title=title, place=failure.place
            )


def _warnings(result: Result) -> Iterator[Annotation]:
    for error in result.errors:
        if not error.fatal:
            title = error.target or "tests"
            yield Annotation(level="warning", message=error.message, title=title)
    for issue in result.build_issues:
        if issue.kind != "error":
            yield Annotation(
                level="warning", message=issue.message, title=issue.kind, place=issue.place
            )


def _notices(numbers: Summary) -> Iterator[Annotation]:
    for case in numbers.flaky:
        failed = [run for run in case.runs if run.status == "Failure"]
        reason = _reason(failed[-1]) if failed else ""
        place = next((f.place for run in failed for f in words.shown_failures(run)), None)
        message = f"Flaky: failed {len(failed)} of {words.count(len(case.runs), 'time')}, passed in the end. {reason}"
        yield Annotation(
            level="notice", message=message.strip(), title=words.path_of(case), place=place
        )


def _reason(run: Run) -> str:
    return "; ".join(failure.message for failure in words.shown_failures(run))
