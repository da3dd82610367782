"""Durations of cases, suites, targets and the whole run, from the actions' logs.

The library's lines name a test by its function or by its display name in quotes, never by its suite or its target.
The target is known from the section that the text is in. Within a target, a name that several suites use is
looked up in the text of each one's own section, and is believed only when every one of them has exactly as
many lines there as it should; otherwise its duration stays unknown rather than somebody else's.
"""

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
    lines = _by_label(text.lines, kind)
    users: dict[str, list[Path]] = {}
    for path, name in wanted:
        if name in lines:
            users.setdefault(name, []).append(path)
    shared = frozenset(path for paths in users.values() if len(paths) > 1 for path in paths)
    own = {path: _by_label(text.suite_lines.get(path, ()), kind) for path in shared}
    found: dict[Named, list[float]] = {}
    for name, paths in users.items():
        if len(paths) == 1:
            found[paths[0], name] = lines[name]
            continue
        # One name in several suites: told apart by their sections, or not at all.
        apart = {(path, name): own[path].get(name, []) for path in paths}
        if all(apart.values()) and sum(map(len, apart.values())) == len(lines[name]):
            found.update(apart)
    return found


def _by_label(lines: Iterable[Line], kind: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.kind == kind:
            found.setdefault(line.label, []).append(line.seconds)
    return found
