"""Reads the log of an action: durations that are nowhere else.

From 3.54 on most Swift Testing runs have no duration of their own, only text that the test process wrote (`Test NAME
passed after 0.108 seconds`), in the log section of its target. A section that runs a suite has the lines that were
written while it ran: with parallel tests also lines of other suites.

```
Test <scheme>
  Launch actions
    Launch <target>                       how long the target took
  [Testing <configuration>]
    Test target <target>
      <process>                           everything that it wrote
        Run test suite <suite>            how long the suite took
          Run test case <case>
```
"""

import re

import msgspec

from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import children, number, text, when

Path = tuple[str, ...]
LINE = 4096
"""Largest length of a line; test libraries write no longer ones."""

LINE_BYTES = 96
"""Memory of a line besides its label: the line, its seconds, its place in two lists."""

_KINDS = {each: each for each in ("Test", "Suite")}  # one text for all lines
_TARGET, _SUITE, _LAUNCH = "Test target ", "Run test suite ", "Launch "
_AFTER = " after "
_ENDED = re.compile(
    r'\W{0,16}(Test|Suite) (".*"|.+?)(?: with [0-9]+ test cases?)?'
    r" (?:passed|failed) after ([0-9]{1,12}(?:\.[0-9]{1,9})?) seconds?\b"
)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A finished test or suite, with its name in the output of the test library."""

    kind: str
    label: str
    seconds: float


class TargetLog(msgspec.Struct):
    """The log of one target."""

    lines: list[Line] = []
    suite_lines: dict[Path, list[Line]] = {}
    suite_seconds: dict[Path, float] = {}
    seconds: float = 0.0
    """Duration of its sections, used only if the duration of its launches is unknown."""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one action."""

    seconds: float | None
    """The window in which tests ran."""
    launches: dict[str, float]
    targets: dict[str, TargetLog]


def read_log(root: Node, budget: Budget) -> Log:
    """An action's log, mapped; its lines stay in memory until the reading ends."""
    sections = children(root, "subsections")
    launch = next((one for one in sections if text(one, "title") == "Launch actions"), {})
    targets: dict[str, TargetLog] = {}
    waiting: list[tuple[Node, str, Path, bool]] = [(root, "", (), False)]
    while waiting:
        section, target, path, found = waiting.pop()
        title = text(section, "title")
        if title.startswith(_TARGET):
            target, path, found = title.removeprefix(_TARGET), (), False
            log = targets.setdefault(target, TargetLog())
            log.seconds += number(section, "duration")
        elif target and title.startswith(_SUITE):
            path = _inside(path, text(section, "suiteName") or title.removeprefix(_SUITE))
        if target:
            log = targets[target]
            found = _collect(section, log, path, title=title, found=found, budget=budget)
        waiting.extend(
            (one, target, path, found) for one in reversed(children(section, "subsections"))
        )
    return Log(seconds=_window(root, sections, launch), launches=_launches(launch), targets=targets)


def _inside(path: Path, suite: str) -> Path:
    wrapper = suite in ("All tests", "Selected tests") or suite.endswith(".xctest")
    return path if wrapper else (*path, suite)


def _collect(
    section: Node, log: TargetLog, path: Path, *, title: str, found: bool, budget: Budget
) -> bool:
    """Collect the lines of the section's output; returns whether the target's lines have been found."""
    suite = bool(path) and title.startswith(_SUITE)
    if found and not suite:
        return True
    lines = ended(text(section, "emittedOutput"), budget)
    if suite:
        log.suite_lines.setdefault(path, []).extend(lines)
        log.suite_seconds[path] = log.suite_seconds.get(path, 0.0) + number(section, "duration")
    if found or not lines:
        return found
    log.lines.extend(lines)
    return True


def ended(output: str, budget: Budget) -> list[Line]:
    """The lines of a test process that have a duration."""
    lines: list[Line] = []
    at = output.find(_AFTER)
    while at >= 0:  # jump from match to match: most lines of a large output have no duration
        begin = output.rfind("\n", max(0, at - LINE), at) + 1
        end = output.find("\n", at)
        end = len(output) if end < 0 else end
        if end - begin < LINE and (found := _ENDED.match(output, begin, end)):
            size = LINE_BYTES + found[2].__sizeof__()
            budget.hold(size, early=size)
            lines.append(Line(_KINDS[found[1]], found[2], float(found[3])))
        at = output.find(_AFTER, end)
    return lines


def _window(root: Node, sections: list[Node], launch: Node) -> float | None:
    starts = [when(one, "startTime") for one in sections if text(one, "title").startswith(_TARGET)]
    known = [start for start in starts if start is not None]
    launched = when(launch, "startTime")
    if known and launched is not None and number(launch, "duration") > 0:
        window = launched - min(known) + number(launch, "duration")
        if window > 0:
            return window
    return number(root, "duration") or None


def _launches(launch: Node) -> dict[str, float]:
    """The duration of each target's launches together; overlapping time counts once."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for one in children(launch, "subsections"):
        title, seconds = text(one, "title"), number(one, "duration")
        if title.startswith(_LAUNCH) and seconds > 0:
            start = when(one, "startTime") or 0.0
            spans.setdefault(title.removeprefix(_LAUNCH), []).append((start, seconds))
    return {target: _union(sorted(found)) for target, found in spans.items()}


def _union(spans: list[tuple[float, float]]) -> float:
    total, end = 0.0, float("-inf")
    for start, seconds in spans:
        total += max(0.0, seconds - max(0.0, end - start))
        end = max(end, start + seconds)
    return total
