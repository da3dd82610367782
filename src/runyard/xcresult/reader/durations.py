"""Durations of cases, suites, targets and the whole run, from the actions' logs.

The library's lines name a test by its function or by its display name in quotes, never by its suite or its target.
The target is known from the section that the text is in. Within a target, a name that several suites use is
looked up in the text of each one's own section, and is believed only when every one of them has exactly as
many lines there as it should; otherwise its duration stays unknown rather than somebody else's.
"""

from collections import Counter
from collections.abc import Iterable

from runyard.xcresult.reader.aggregation import mean_duration
from runyard.xcresult.reader.logs import Line, Log, Path, TargetLog

Named = tuple[Path, str]
"""A suite's path, or a case's suites, and its label in the text."""


def label(name: str, display: str) -> str:
    """How the library calls a test or a suite."""
    return f'"{display}"' if display and display != name else name


def total(logs: Iterable[Log]) -> float | None:
    """The whole run: its actions one after the other."""
    found = [log.seconds for log in logs if log.seconds is not None]
    return sum(found) if found else None


def target_seconds(logs: Iterable[Log], target: str) -> float | None:
    """One target: all of its launches, or what its sections say."""
    found = 0.0
    for log in logs:
        section = log.targets.get(target)
        found += log.launches.get(target) or (section.seconds if section else 0.0)
    return found or None


def case_seconds(logs: Iterable[Log], target: str, cases: list[Named]) -> dict[Named, float]:
    """The cases of a target whose durations the text tells."""
    texts = [log.targets[target] for log in logs if target in log.targets]
    found: dict[Named, list[float]] = {}
    for text in texts:
        for named, seconds in _told(text, "Test", cases).items():
            found.setdefault(named, []).extend(seconds)
    means = {named: mean_duration(seconds) for named, seconds in found.items()}
    return {named: seconds for named, seconds in means.items() if seconds is not None}


def suite_seconds(logs: Iterable[Log], target: str, suites: list[Named]) -> dict[Named, float]:
    """The suites of a target, by the text, else by their sections."""
    found: dict[Named, float] = {}
    for log in logs:
        text = log.targets.get(target)
        if text is None:
            continue
        told = _told(text, "Suite", suites)
        for named in suites:
            seconds = sum(told.get(named, ())) or text.suite_seconds.get(named[0], 0.0)
            if seconds:
                found[named] = found.get(named, 0.0) + seconds
    return found


def _told(text: TargetLog, kind: str, wanted: list[Named]) -> dict[Named, list[float]]:
    lines: dict[str, list[float]] = {}
    for line in text.lines:
        if line.kind == kind:
            lines.setdefault(line.label, []).append(line.seconds)
    sharing = Counter(name for _, name in wanted)
    found: dict[Named, list[float]] = {}
    for path, name in wanted:
        if sharing[name] == 1 and name in lines:
            found[path, name] = lines[name]
    for name, users in sharing.items():
        if users > 1 and name in lines:
            paths = [path for path, other in wanted if other == name]
            found.update(_apart(text, kind, name, paths, expected=len(lines[name])))
    return found


def _apart(
    text: TargetLog, kind: str, name: str, paths: list[Path], *, expected: int
) -> dict[Named, list[float]]:
    """One name in several suites: told apart by their sections, or not at all."""
    own = {path: _matching(text.suite_lines.get(path, ()), kind, name) for path in paths}
    counts = [len(seconds) for seconds in own.values()]
    if min(counts) == 0 or sum(counts) != expected:
        return {}
    return {(path, name): seconds for path, seconds in own.items()}


def _matching(lines: Iterable[Line], kind: str, name: str) -> list[float]:
    return [line.seconds for line in lines if line.kind == kind and line.label == name]
