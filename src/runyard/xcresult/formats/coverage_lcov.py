"""Formats coverage as an lcov tracefile, for genhtml, Codecov, Coveralls and editors.

One record for each file: FN and FNDA for functions, DA for executable lines, and the sums that lcov checks. Apple
counts no branches, so there are no BRDA lines: sub-line ranges are not what lcov calls a branch.
"""

from collections.abc import Iterator

from runyard.xcresult.formats.coverage_files import by_file, plain
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.coverage.model import Coverage, FileLines, Function


def render(
    coverage: Coverage,
    *,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
) -> Iterator[str]:
    """Write the tracefile, one piece for each file, with its path in the repository if it is there."""
    for path, functions, lines in by_file(coverage):
        yield "\n".join(_record(sources.shown(path), functions, lines)) + "\n"


def _record(path: str, functions: tuple[Function, ...], lines: FileLines) -> Iterator[str]:
    named = [(plain(function.name), function) for function in functions]
    yield "TN:"
    yield f"SF:{plain(path)}"
    yield from (f"FN:{function.line},{name}" for name, function in named)
    yield from (f"FNDA:{function.count},{name}" for name, function in named)
    yield f"FNF:{len(functions)}"
    yield f"FNH:{sum(function.count > 0 for function in functions)}"
    yield from (f"DA:{line.number},{line.count}" for line in lines.lines)
    yield f"LF:{len(lines.lines)}"
    yield f"LH:{sum(line.count > 0 for line in lines.lines)}"
    yield "end_of_record"
