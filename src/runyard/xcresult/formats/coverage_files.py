"""Groups coverage by source file, as other tools expect it, and cleans text for their files.

A report lists a file under every target that compiled it; lcov and Cobertura list each file once. Paths and names are
untrusted: a line break would begin a new record, an escape sequence would reach a terminal, and some characters are
invalid in XML. So all of them pass through `plain`.
"""

from collections.abc import Iterator

from runyard.text import cleaned
from runyard.xcresult.reader.coverage.model import Coverage, FileLines, Function


def plain(text: str) -> str:
    """Return the text in one line, without characters that are unsafe in a terminal or invalid in XML."""
    return cleaned(text, instead="?", shown=str.isprintable)


def by_file(coverage: Coverage) -> Iterator[tuple[str, tuple[Function, ...], FileLines]]:
    """Return each file once, with its functions of all targets and its lines. Files with lines come first."""
    functions: dict[str, dict[tuple[int, str], Function]] = {}
    for target in coverage.targets:
        for file in target.files:
            known = functions.setdefault(file.path, {})
            for function in file.functions:
                known.setdefault((function.line, function.name), function)
    for path in dict.fromkeys((*coverage.source.paths(), *functions)):
        found = tuple(functions.get(path, {}).values())
        yield path, found, coverage.source.lines(path) or FileLines()


def share(covered: int, executable: int) -> float:
    """The covered share; 0 if there is nothing to cover, as in Apple's tool."""
    return covered / executable if executable else 0.0
