"""A result as a tree of lines for people: the verdict first, then what failed, then the rest.

A line is made of spans that say what they mean, not how they look; the command line paints them. The
text is what the bundle says: whoever shows it makes it harmless first.

Invariant: a line never begins with a stranger's words. Logs of CI systems take lines that begin in certain
ways for commands.
"""

from collections.abc import Iterable, Iterator

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.formats.details import described, left_behind
from runyard.xcresult.formats.groups import Group, groups, name_of
from runyard.xcresult.formats.lines import Line, Span, Style
from runyard.xcresult.formats.summary import Summary, counts, summary, tests
from runyard.xcresult.reader.aggregation import combine
from runyard.xcresult.reader.model import Case, Result, Run, Status, Suite

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
    result: Result, *, title: str, only_failures: bool = False, details: bool = False
) -> Iterator[Line]:
    """All lines of a result.

    With `only_failures`: without tests that just passed or were skipped. With `details`: with what tests say of
    themselves and what they left (activities only if they were read).
    """
    numbers = summary(result)
    yield from _head(result, numbers, title)
    yield from _problems(result)
    shown = [
        case for case in tests(result) if not only_failures or _style(case) in {"failure", "flaky"}
    ]
    for node in sorted(_nodes(result, shown).values(), key=_rank):
        yield Line(0, (Span(""),))
        yield from _node(node, 0, result, details=details)


def _head(result: Result, numbers: Summary, title: str) -> Iterator[Line]:
    styles: dict[str, Style] = {"success": "success", "skipped": "skipped", "no tests": "skipped"}
    style = styles.get(numbers.verdict, "failure")
    verdict = (
        "passed" if numbers.verdict == "success" else numbers.verdict.replace("failure", "failed")
    )
    took = words.lasted(numbers.duration)
    facts = "  ".join(part for part in (counts(numbers), took) if part)
    yield Line(
        0,
        (Span(MARKS[style], style), Span(f" {title}  "), Span(verdict, style), Span(f"  {facts}")),
    )
    told = [f"format {result.format}"]
    if result.xcode:
        told.append(f"Xcode {result.xcode}")
    if result.test_plan:
        told.append(f"test plan {result.test_plan}")
    if numbers.runs != numbers.tests:
        told.append(words.count(numbers.runs, "run"))
    if result.source == "sqlite":
        told.append("read from the database, since the store is missing")
    yield Line(1, (Span(", ".join(told), "dim"),))
    for device in numbers.devices:
        yield Line(1, (Span(f"on {device}", "dim"),))


def _problems(result: Result) -> Iterator[Line]:
    for error in result.errors:
        name = f"error in {error.target}: " if error.target else "error: "
        style: Style = "failure" if error.fatal else "flaky"
        yield from _message(1, name, error.message, style)
    rank = {"error": 0, "warning": 1, "analyzer": 2}
    issues = sorted(result.build_issues, key=lambda issue: rank[issue.kind])
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
        yield from _message(1, "not readable: ", warning.message, "flaky")
    if len(result.warnings) > _ISSUES:
        yield Line(
            1, (Span(f"and {len(result.warnings) - _ISSUES} more parts were not readable", "dim"),)
        )


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


def _node(node: Node, depth: int, result: Result, *, details: bool) -> Iterator[Line]:
    style = _node_style(node)
    took = words.lasted(node.duration)
    spans = [Span(MARKS[style], style), Span(f" {node.name}", "strong")]
    if took:
        spans.append(Span(f"  {took}", "dim"))
    yield Line(depth, tuple(spans))
    children: list[Case | Node] = [*node.cases, *node.nodes.values()]
    for each in sorted(children, key=_rank):
        if isinstance(each, Case):
            yield from _case(each, depth + 1, result, details=details)
        else:
            yield from _node(each, depth + 1, result, details=details)


def _case(case: Case, depth: int, result: Result, *, details: bool) -> Iterator[Line]:
    style = _style(case)
    found = groups(case)
    took = words.lasted(case.duration)
    spans = [Span(MARKS[style], style), Span(f" {case.name}")]
    spans += [Span(f"  {took}", "dim")] if took else []
    spans += [Span("  flaky", "flaky")] if case.flaky else []
    yield Line(depth, tuple(spans))
    if details:
        yield from described(case, depth + 1)
    alone = len(found) == 1 and len(found[0].runs) == 1
    for group in found:
        name = name_of(group, case, result.actions)
        yield from _group(group, depth + 1, name=name, alone=alone, details=details)


def _group(group: Group, depth: int, *, name: str, alone: bool, details: bool) -> Iterator[Line]:
    if alone:
        if name:
            yield Line(depth, (Span(f"[{words.line_of(name)}]", "dim"),))
        yield from _run(group.deciding, depth, details=details)
        return
    repeated = len(group.runs) > 1
    style: Style = "flaky" if group.flaky else _STYLES[group.status]
    if name:
        yield Line(depth, (Span(MARKS[style], style), Span(f" [{words.line_of(name)}]")))
    if not details and all(run.status == "Success" for run in group.runs):
        return
    for number, run in enumerate(group.runs, start=1):
        at = depth + 1 if name else depth
        if repeated or not name:
            label = words.repetition(run.repetition) or f"Run {number}"
            took = words.lasted(run.duration or None)
            mark = Span(MARKS[_STYLES[run.status]], _STYLES[run.status])
            yield Line(at, (mark, Span(f" {label}"), Span(f"  {took}" if took else "", "dim")))
            at += 1
        yield from _run(run, at, details=details)


def _run(run: Run, depth: int, *, details: bool) -> Iterator[Line]:
    if run.status == "Failure":
        for failure in words.shown_failures(run):
            yield from _message(depth, "", words.told(failure), "failure")
    for warning in run.issue_warnings:
        yield from _message(depth, "warning: ", words.told(warning), "flaky")
    if run.skip is not None and run.skip.message:
        yield from _message(depth, "", run.skip.message, "skipped")
    if run.status == "Expected Failure":
        for expected in run.expected_failures:
            message = expected.reason or (expected.failure.message if expected.failure else "")
            if message:
                yield from _message(depth, "", message, "expected")
    if details:
        yield from left_behind(run, depth)


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
