"""Formats a result as a tree of lines: the verdict first, then failures, then the rest.

A line consists of spans with a meaning; the command line adds colours. The text is that of the bundle and untrusted:
the caller makes it safe for its output.

Invariant: a line never begins with text of the bundle. CI systems interpret lines with certain beginnings as commands.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.formats.details import case_details, run_details
from runyard.xcresult.formats.groups import Group, named
from runyard.xcresult.formats.lines import Line, Span, Style
from runyard.xcresult.formats.summary import Summary, counts, summary
from runyard.xcresult.reader.aggregation import combine
from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.model import Case, Result, Run, Status, Suite
from runyard.xcresult.reader.verdict import Verdict, tests

MARKS: dict[Style, str] = {
    "failure": "✗",
    "success": "✓",
    "skipped": "○",
    "expected": "⊗",
    "flaky": "≈",
}
_STYLES: dict[Status, Style] = {
    "Failure": "failure",
    "Success": "success",
    "Skipped": "skipped",
    "Expected Failure": "expected",
}
_VERDICTS: dict[Verdict, tuple[Style, str]] = {
    Verdict.SUCCESS: ("success", "passed"),
    Verdict.FAILURE: ("failure", "failed"),
    Verdict.SKIPPED: ("skipped", "skipped"),
    Verdict.BUILD_FAILED: ("failure", "build failed"),
    Verdict.NO_TESTS: ("skipped", "no tests"),
}
_FIRST: tuple[Style, ...] = ("failure", "flaky", "expected", "skipped", "success")
_ISSUES = 10
_MESSAGE_LINES = 12
_MESSAGE = 4000


class Node(msgspec.Struct):
    """A target or a suite, while the tree is built."""

    name: str
    duration: float | None = None
    nodes: "dict[str, Node]" = msgspec.field(default_factory=dict)
    cases: list[Case] = msgspec.field(default_factory=list)


def tree(
    result: Result,
    *,
    title: str,
    only_failures: bool = False,
    details: bool = False,
    crashes: Mapping[str, CrashReport] | None = None,
) -> Iterator[Line]:
    """All lines of a result.

    With `only_failures`: without passed and skipped tests, and without build warnings.
    With `details`: also tags, bugs, metrics, attachments and activities (activities only if they were read).
    `crashes` are the digests of attached crash reports by payload id.
    """
    numbers = summary(result)
    yield from _head(result, numbers, title)
    yield from _problems(result, only_errors=only_failures)
    shown = [
        case for case in tests(result) if not only_failures or _style(case) in {"failure", "flaky"}
    ]
    writer = _TreeWriter(result, details=details, crashes=crashes or {})
    for node in sorted(_nodes(result, shown).values(), key=_rank):
        yield Line(0, (Span(""),))
        yield from writer.node(node, 0)


def _head(result: Result, numbers: Summary, title: str) -> Iterator[Line]:
    style, verdict = _VERDICTS[numbers.verdict]
    took = words.duration_text(numbers.duration)
    facts = "  ".join(part for part in (counts(numbers), took) if part and part != verdict)
    yield Line(
        0,
        (Span(MARKS[style], style), Span(f" {title}  "), Span(verdict, style), Span(f"  {facts}")),
    )
    context = [f"format {result.format}"]
    if result.xcode:
        context.append(f"Xcode {result.xcode}")
    if result.test_plan:
        context.append(f"test plan {result.test_plan}")
    if numbers.runs != numbers.tests:
        context.append(words.count(numbers.runs, "run"))
    if result.source == "sqlite":
        context.append("read from the database, since the store is missing")
    yield Line(1, (Span(", ".join(context), "dim"),))
    for device in numbers.devices:
        yield Line(1, (Span(f"on {device}", "dim"),))


def _problems(result: Result, *, only_errors: bool) -> Iterator[Line]:
    for error in result.errors:
        name = f"error in {error.target}: " if error.target else "error: "
        style: Style = "failure" if error.fatal else "flaky"
        yield from _message(1, name, error.message, style)
    rank = {"error": 0, "warning": 1, "analyzer": 2}
    wanted = [each for each in result.build_issues if each.kind == "error" or not only_errors]
    issues = sorted(wanted, key=lambda issue: rank[issue.kind])
    for issue in issues[:_ISSUES]:
        place = words.short_place(issue.place)
        kind = "analyzer warning" if issue.kind == "analyzer" else issue.kind
        at = f" at {place}" if place else ""
        yield from _message(
            1, f"build {kind}{at}: ", issue.message, "failure" if kind == "error" else "flaky"
        )
    if len(issues) > _ISSUES:
        more = words.count(len(issues) - _ISSUES, "build issue")
        yield Line(1, (Span(f"and {more} more", "dim"),))
    for warning in result.warnings[:_ISSUES]:
        before = "not readable: " if warning.object_id else "warning: "
        yield from _message(1, before, warning.message, "flaky")
    if len(result.warnings) > _ISSUES:
        yield Line(1, (Span(f"and {len(result.warnings) - _ISSUES} more warnings", "dim"),))


def _nodes(result: Result, cases: Iterable[Case]) -> dict[tuple[str, str], Node]:
    suites = {(suite.plan, suite.target, suite.path): suite for suite in result.suites}
    targets = {(target.plan, target.name): target for target in result.targets}
    several = len({case.plan for case in result.cases}) > 1
    found: dict[tuple[str, str], Node] = {}
    for case in cases:
        key = (case.plan, case.target)
        node = found.get(key)
        if node is None:
            name = f"{case.target} (test plan {case.plan})" if several else case.target
            target = targets.get(key)
            node = found[key] = Node(name, target.duration if target else None)
        for depth, name in enumerate(case.suites, start=1):
            suite = suites.get((case.plan, case.target, case.suites[:depth]))
            node = _below(node, name, suite)
        node.cases.append(case)
    return found


def _below(node: Node, name: str, suite: Suite | None) -> Node:
    if name not in node.nodes:
        shown = suite.name if suite is not None and suite.name else name
        node.nodes[name] = Node(shown, suite.duration if suite is not None else None)
    return node.nodes[name]


class _TreeWriter:
    """Formats the tests of a result, level by level."""

    def __init__(
        self, result: Result, *, details: bool, crashes: Mapping[str, CrashReport]
    ) -> None:
        self._actions = result.actions
        self._details = details
        self._crashes = crashes

    def node(self, node: Node, depth: int) -> Iterator[Line]:
        style = _node_style(node)
        took = words.duration_text(node.duration)
        yield Line(depth, (Span(MARKS[style], style), Span(f" {node.name}", "strong"), _time(took)))
        children: list[Case | Node] = [*node.cases, *node.nodes.values()]
        for each in sorted(children, key=_rank):
            if isinstance(each, Case):
                yield from self._case(each, depth + 1)
            else:
                yield from self.node(each, depth + 1)

    def _case(self, case: Case, depth: int) -> Iterator[Line]:
        style = _style(case)
        flaky = Span("  flaky" if case.flaky else "", "flaky")
        took = _time(words.duration_text(case.duration))
        yield Line(depth, (Span(MARKS[style], style), Span(f" {case.name}"), took, flaky))
        if self._details:
            yield from case_details(case, depth + 1)
        for group, name in named(case, self._actions):
            yield from self._group(group, depth + 1, name=name, alone=len(case.runs) == 1)

    def _group(self, group: Group, depth: int, *, name: str, alone: bool) -> Iterator[Line]:
        if alone:
            if name:
                yield Line(depth, (Span(f"[{words.line_of(name)}]", "dim"),))
            yield from self._run(group.deciding, depth)
            return
        repeated = len(group.runs) > 1
        style: Style = "flaky" if group.flaky else _STYLES[group.status]
        if name:
            yield Line(depth, (Span(MARKS[style], style), Span(f" [{words.line_of(name)}]")))
        if not self._details and all(run.status == "Success" for run in group.runs):
            return
        at = depth + 1 if name else depth
        if not repeated and name:
            yield from self._run(group.runs[0], at)
            return
        before: list[Line] = []
        for number, run in enumerate(group.runs, start=1):
            lines = list(self._run(run, at + 1))
            same = bool(lines) and lines == before
            label = words.repetition(run.repetition) or f"Run {number}"
            mark = Span(MARKS[_STYLES[run.status]], _STYLES[run.status])
            took = _time(words.duration_text(run.duration or None))
            yield Line(
                at, (mark, Span(f" {label}"), took, Span("  as before" if same else "", "dim"))
            )
            yield from () if same else lines
            before = lines

    def _run(self, run: Run, depth: int) -> Iterator[Line]:
        if run.status == "Failure":
            for failure in words.shown_failures(run):
                yield from _message(depth, "", words.located_message(failure), "failure")
            for attachment in run.attachments:
                if attachment.payload_id in self._crashes:
                    yield from _crash(depth, self._crashes[attachment.payload_id])
        for warning in run.issue_warnings:
            yield from _message(depth, "warning: ", words.located_message(warning), "flaky")
        if run.skip is not None and run.skip.message:
            yield from _message(depth, "", run.skip.message, "skipped")
        if run.status == "Expected Failure":
            for expected in run.expected_failures:
                message = expected.reason or (expected.failure.message if expected.failure else "")
                if message:
                    yield from _message(depth, "", message, "expected")
        if self._details:
            yield from run_details(run, depth)


def _time(text: str) -> Span:
    return Span(f"  {text}" if text else "", "dim")


def _crash(depth: int, report: CrashReport) -> Iterator[Line]:
    parts = (report.exception_type, report.signal, report.exception_subtype)
    frames = report.triggered_thread_frames or ""
    cause = " ".join(part for part in parts if part) or "for an unknown reason"
    yield from _message(depth, "crashed: ", f"{cause}\n{frames}".rstrip(), "failure")


def _message(depth: int, before: str, message: str, style: Style) -> Iterator[Line]:
    lines = words.cut(message, _MESSAGE).splitlines() or [""]
    for number, line in enumerate(lines[:_MESSAGE_LINES]):
        head = Span(f"│ {before}" if number == 0 else "│ ", style)
        yield Line(depth, (head, Span(line)))
    if len(lines) > _MESSAGE_LINES:
        yield Line(depth, (Span(f"│ … {len(lines) - _MESSAGE_LINES} more lines", style),))


def _style(case: Case) -> Style:
    return "flaky" if case.flaky else _STYLES[case.status]


def _node_style(node: Node) -> Style:
    return _STYLES[combine(_statuses(node))]


def _statuses(node: Node) -> Iterator[Status]:
    yield from (case.status for case in node.cases)
    for child in node.nodes.values():
        yield from _statuses(child)


def _rank(each: Case | Node) -> int:
    return _FIRST.index(_style(each) if isinstance(each, Case) else _node_style(each))
