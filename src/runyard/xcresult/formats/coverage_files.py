"""Coverage by source file, which is how other tools want it, and the text that goes into their files.

A report lists a file under every target that compiled it; lcov and Cobertura know each file once. Paths and
names are a stranger's text: a line break would begin a record of its own, an escape sequence would
reach a terminal, and some characters cannot stand in XML at all. So they leave through `plain`.
"""

from collections.abc import Iterator

from runyard.xcresult.reader.coverage.model import Coverage, FileLines, Function


def plain(text: str) -> str:
    """The text in one line, without what no terminal and no XML should get."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def by_file(coverage: Coverage) -> Iterator[tuple[str, tuple[Function, ...], FileLines]]:
    """Each file once: its functions over all targets, its lines. Those with lines come first."""
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
    """The covered share; nothing to cover is not covered, as Apple's tool has it."""
    return covered / executable if executable else 0.0
