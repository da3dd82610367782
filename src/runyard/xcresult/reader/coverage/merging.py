"""Merges coverage of several actions.

Several destinations, test plans or merged bundles measure the same sources several times. The count of a line is the
sum of its counts: a line executed anywhere is executed. The same holds for entries of functions and for ranges inside
lines. A line or function that is missing in one action (it was not built there) is taken from the other.

How many of a function's lines were covered cannot be added: two actions may have covered the same lines or
different ones. If the lines are known, the covered lines in the function's range are counted again (unless
it was never entered: an autoclosure shares its line with the code around it). Otherwise, or if that count is
lower, the largest count of the actions is used. Both are lower bounds. As with Apple, a file's totals are the
sums over its functions, and a target's totals are the sums over its files.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeVar

from runyard.xcresult.reader.coverage.model import (
    Coverage,
    FileCoverage,
    FileLines,
    Function,
    Line,
    LineSource,
    Range,
    TargetCoverage,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


class Merged:
    """The sum of several line sources; decoded, like each of them, file by file."""

    def __init__(self, sources: Sequence[LineSource]) -> None:
        self._sources = tuple(sources)

    def paths(self) -> tuple[str, ...]:
        """The files of all sources, each once, in the order in which they appear."""
        return tuple(dict.fromkeys(path for source in self._sources for path in source.paths()))

    def lines(self, path: str) -> FileLines | None:
        """The sums of one file."""
        known = [found for source in self._sources if (found := source.lines(path)) is not None]
        return _sum_lines(known) if known else None


def merge(coverages: Sequence[Coverage]) -> Coverage | None:
    """Merge the coverage of several actions; None if there is none."""
    if len(coverages) <= 1:
        return coverages[0] if coverages else None
    source = Merged([coverage.source for coverage in coverages])
    grouped = _by_key((target.name, target) for each in coverages for target in each.targets)
    targets = tuple(_target(same, source) for same in grouped)
    return Coverage(
        covered=sum(target.covered for target in targets),
        executable=sum(target.executable for target in targets),
        targets=targets,
        source=source,
        warnings=tuple(warning for each in coverages for warning in each.warnings),
    )


def _by_key(pairs: Iterable[tuple[Key, Value]]) -> list[list[Value]]:
    grouped: dict[Key, list[Value]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return list(grouped.values())


def _target(same: list[TargetCoverage], source: LineSource) -> TargetCoverage:
    if len(same) == 1:
        return same[0]
    grouped = _by_key((file.path or file.name, file) for target in same for file in target.files)
    files = tuple(_file(group, source) for group in grouped)
    return TargetCoverage(
        name=same[0].name,
        identifier=same[0].identifier,
        product=same[0].product,
        covered=sum(file.covered for file in files),
        executable=sum(file.executable for file in files),
        files=files,
    )


def _file(same: list[FileCoverage], source: LineSource) -> FileCoverage:
    if len(same) == 1:
        return same[0]
    grouped = _by_key(
        ((function.line, function.name), function) for file in same for function in file.functions
    )
    lines = source.lines(same[0].path)
    hit = [line.number for line in lines.lines if line.count] if lines else []
    functions = tuple(_function(group, hit) for group in grouped)
    if functions:
        covered = sum(function.covered for function in functions)
        executable = sum(function.executable for function in functions)
    else:
        covered = max(file.covered for file in same)
        executable = max(file.executable for file in same)
    return FileCoverage(
        name=same[0].name,
        path=same[0].path,
        covered=covered,
        executable=executable,
        functions=functions,
    )


def _function(same: list[Function], hit: list[int]) -> Function:
    if len(same) == 1:
        return same[0]
    executable = max(function.executable for function in same)
    first = same[0].line
    entries = sum(function.count for function in same)
    again = bisect_left(hit, first + executable) - bisect_left(hit, first) if entries else 0
    return Function(
        name=same[0].name,
        line=first,
        covered=max(again, *(function.covered for function in same)),
        executable=executable,
        count=entries,
    )


def _sum_lines(known: list[FileLines]) -> FileLines:
    if len(known) == 1:
        return known[0]
    lines: dict[int, int] = {}
    ranges: dict[tuple[int, int, int], int] = {}
    for file in known:
        for line in file.lines:
            lines[line.number] = lines.get(line.number, 0) + line.count
        for part in file.ranges:
            key = (part.line, part.column, part.length)
            ranges[key] = ranges.get(key, 0) + part.count
    return FileLines(
        lines=tuple(Line(number, count) for number, count in sorted(lines.items())),
        ranges=tuple(Range(*key, count) for key, count in sorted(ranges.items())),
    )
