"""Derives durations of cases, suites, targets and the whole run from the actions' logs.

Swift Testing's lines name a test by its function or by its display name in quotes, never by its suite or target. The
target is that of the log section. Within a target, a name that several suites use is searched in each suite's own
section, and used only if every one of them has exactly the expected number of lines there; otherwise the duration stays
unknown, so that a test never gets another test's duration.
"""

from collections.abc import Iterable

from runyard.xcresult.reader.aggregation import mean_duration
from runyard.xcresult.reader.logs import Line, Log, Path, TargetLog

Named = tuple[Path, str]
"""A suite's path, or a case's suites, and its label in the text."""


def label(name: str, display: str) -> str:
    """The name of a test or suite in the output of Swift Testing."""
    return f'"{display}"' if display and display != name else name


def total(logs: Iterable[Log]) -> float | None:
    """The duration of the whole run: the sum of its actions."""
    found = [log.seconds for log in logs if log.seconds is not None]
    return sum(found) if found else None


def target_seconds(logs: Iterable[Log], target: str) -> float | None:
    """The duration of a target: the sum of its launches, or else of its sections."""
    found = 0.0
    for log in logs:
        section = log.targets.get(target)
        found += log.launches.get(target) or (section.seconds if section else 0.0)
    return found or None


def case_seconds(logs: Iterable[Log], target: str, cases: list[Named]) -> dict[Named, float]:
    """The durations of the cases of a target that are in the log text."""
    texts = [log.targets[target] for log in logs if target in log.targets]
    found: dict[Named, list[float]] = {}
    for text in texts:
        for named, seconds in _logged(text, "Test", cases).items():
            found.setdefault(named, []).extend(seconds)
    means = {named: mean_duration(seconds) for named, seconds in found.items()}
    return {named: seconds for named, seconds in means.items() if seconds is not None}


def suite_seconds(logs: Iterable[Log], target: str, suites: list[Named]) -> dict[Named, float]:
    """The durations of the suites of a target: from the log text, or else from their sections."""
    found: dict[Named, float] = {}
    for log in logs:
        text = log.targets.get(target)
        if text is None:
            continue
        logged = _logged(text, "Suite", suites)
        for named in suites:
            seconds = sum(logged.get(named, ())) or text.suite_seconds.get(named[0], 0.0)
            if seconds:
                found[named] = found.get(named, 0.0) + seconds
    return found


def _logged(text: TargetLog, kind: str, wanted: list[Named]) -> dict[Named, list[float]]:
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
        # Several suites have a test of this name: only their sections can distinguish them.
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
