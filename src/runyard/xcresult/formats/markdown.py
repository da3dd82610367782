"""Formats a result as Markdown, for a job summary or a comment: counts, failures, flaky tests, the slowest tests.

Text of a bundle is only inside code spans and fences that are longer than any run of backticks in it. So it cannot
become HTML, a link, a mention or a table cell. Links lead to lines of the repository's files, below a base URL, with
the place as code; pictures are below another.

Invariants:
- At most `limit` bytes; what does not fit is counted. The counts come first and are never dropped.
- Control characters are shown as their codes.
"""

import re
from collections.abc import Iterator, Sequence

from runyard.text import cleaned
from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import named
from runyard.xcresult.formats.pictures import picture_lines
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.formats.summary import Summary, counts, slowest, summary
from runyard.xcresult.reader.attachment_names import attachment_names
from runyard.xcresult.reader.model import BuildIssue, Case, Place, Result, Run, RunnerError
from runyard.xcresult.reader.verdict import Verdict, build_errors

LIMIT = 1_000_000
"""Bytes; GitHub accepts 1 MiB for the summary of one step."""
_SLOWEST = 10
_ISSUES = 20
_MESSAGE = 4000
_VERDICTS = {
    Verdict.SUCCESS: "✅ passed",
    Verdict.FAILURE: "❌ failed",
    Verdict.SKIPPED: "⏭️ skipped",
    Verdict.BUILD_FAILED: "❌ build failed",
    Verdict.NO_TESTS: "⏭️ no tests",
}


def markdown(
    result: Result,
    *,
    title: str,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
    pictures_url: str = "",
    limit: int = LIMIT,
) -> str:
    """Format a result as Markdown of at most `limit` bytes; the exported pictures are at `pictures_url`."""
    numbers = summary(result)
    page = _Page(result, sources, pictures_url)
    head = _head(result, numbers, title)
    left = limit - len(head.encode()) - 200  # space for the last lines of each list
    parts = [head]
    for blocks, name in _sections(page, numbers):
        shown, left = _fitting(blocks, left)
        if not shown and not blocks:
            continue
        parts += shown
        missing = len(blocks) - len(shown)
        if missing:
            parts.append(f"\n… and {missing} more {name}, left out for length.\n")
            break
    return "".join(parts)


def code(value: str, limit: int = 300) -> str:
    """A code span with exactly this text, on one line."""
    clean = cleaned(words.line_of(value, limit), keep="\t") or " "
    ticks = "`" * (_longest_run(clean) + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{ticks}{pad}{clean}{pad}{ticks}"


def cell(value: str) -> str:
    """A code span for a table: a pipe would end the cell, even inside code."""
    return code(value).replace("|", "\\|")


def fence(value: str) -> str:
    """A code block whose fence is longer than any run of backticks in the text."""
    lines = words.cut(value, _MESSAGE).splitlines()
    clean = "\n".join(cleaned(line, keep="\t") for line in lines)
    ticks = "`" * max(3, _longest_run(clean) + 1)
    return f"{ticks}text\n{clean}\n{ticks}\n"


def _longest_run(value: str) -> int:
    return max((len(run) for run in re.findall("`+", value)), default=0)


def _head(result: Result, numbers: Summary, title: str) -> str:
    took = words.duration_text(numbers.duration)
    row = (
        numbers.tests,
        numbers.passed,
        numbers.failed,
        numbers.skipped,
        numbers.expected_failures,
        len(numbers.flaky),
        numbers.runs,
    )
    lines = [
        f"## {_VERDICTS[numbers.verdict]}: {code(title)}",
        "",
        f"{counts(numbers)}{f', in {took}' if took else ''}.",
        "",
        "| tests | passed | failed | skipped | expected failures | flaky | runs |",
        "|--:|--:|--:|--:|--:|--:|--:|",
        f"| {' | '.join(map(str, row))} |",
        "",
    ]
    context = [f"format {result.format}"]
    if result.xcode:
        context.append(f"Xcode {code(result.xcode)}")
    if result.test_plan:
        context.append(f"test plan {code(result.test_plan)}")
    context += [f"on {code(device)}" for device in numbers.devices[:10]]
    lines.append(", ".join(context) + ".")
    built = (
        (numbers.build_errors, "build error"),
        (numbers.build_warnings, "build warning"),
        (numbers.analyzer_warnings, "analyzer warning"),
        (numbers.warnings, "reading warning"),
    )
    lines += (
        [", ".join(words.count(n, word) for n, word in built if n) + "."]
        if any(n for n, _ in built)
        else []
    )
    return "\n".join(lines) + "\n"


def _sections(page: "_Page", numbers: Summary) -> Iterator[tuple[list[str], str]]:
    fatal = [_error(each) for each in numbers.errors if each.fatal]
    yield _titled("Errors", fatal), "errors"
    yield _titled("Failures", [page.failing(case) for case in numbers.failing]), "failures"
    yield _titled("Flaky", [page.flaky(case) for case in numbers.flaky]), "flaky tests"
    errors = build_errors(page.result)[:_ISSUES]
    yield _titled("Build errors", [page.issue(each) for each in errors]), "build errors"
    outside = [_error(each) for each in numbers.errors if not each.fatal]
    yield _titled("Issues outside of tests, which do not fail the run", outside), "issues"
    yield _slow(slowest(page.result, _SLOWEST)), "slow tests"


def _titled(title: str, blocks: list[str]) -> list[str]:
    return [f"\n### {title}\n\n{blocks[0]}", *blocks[1:]] if blocks else []


def _error(error: RunnerError) -> str:
    return f"- {code(error.target or 'runner')}\n\n{_indented(fence(error.message))}\n"


class _Page:
    """What failed, with links to the sources and with pictures."""

    def __init__(self, result: Result, sources: Sources, pictures_url: str) -> None:
        self.result = result
        self._sources = sources
        self._pictures_url = pictures_url
        self._names = attachment_names(result.cases)

    def issue(self, issue: BuildIssue) -> str:
        place = self._place(issue.place) or "build"
        return f"- {place}\n\n{_indented(fence(issue.message))}\n"

    def failing(self, case: Case) -> str:
        lines = [f"- {code(words.path_of(case))}"]
        for group, name in named(case, self.result.actions):
            if group.status != "Failure":
                continue
            lines += [f"  with {code(name)}"] if name else []
            lines += self._reasons(case, group.deciding)
        return "\n".join(lines) + "\n"

    def flaky(self, case: Case) -> str:
        lines = [f"- {code(words.path_of(case))}"]
        for group, name in named(case, self.result.actions):
            failed = [run for run in group.runs if run.status == "Failure"]
            if not failed:
                continue
            outcome = f"failed {len(failed)} of {words.count(len(group.runs), 'time')}"
            lines.append(f"  {outcome}{f', with {code(name)}' if name else ''}")
            lines += self._reasons(case, failed[-1])
        return "\n".join(lines) + "\n"

    def _reasons(self, case: Case, run: Run) -> list[str]:
        lines = []
        for failure in words.shown_failures(run):
            place = self._place(failure.place)
            lines += ["", f"  at {place}"] if place else []
            lines += ["", _indented(fence(failure.message))]
        for line in picture_lines(case, run, self._names, self._pictures_url):
            lines += ["", f"  {line}", ""]
        return lines

    def _place(self, place: Place | None) -> str:
        """The place as code, with a link if it is a line of the repository; empty if unknown."""
        text = words.long_place(place, self._sources)
        link = self._sources.link(place)
        return f"[{code(text)}]({link})" if text and link else code(text) if text else ""


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.splitlines())


def _slow(cases: tuple[Case, ...]) -> list[str]:
    rows = [
        f"| {cell(words.path_of(case))} | {words.duration_text(case.duration)} |\n"
        for case in cases
    ]
    if not rows:
        return []
    return [f"\n### Slowest\n\n| test | time |\n|---|--:|\n{rows[0]}", *rows[1:]]


def _fitting(blocks: Sequence[str], left: int) -> tuple[list[str], int]:
    shown: list[str] = []
    for block in blocks:
        size = len(block.encode())
        if size > left:
            return shown, 0
        shown.append(block)
        left -= size
    return shown, left
