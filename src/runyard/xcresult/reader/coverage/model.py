"""Values of code coverage.

Two files in a bundle have coverage, and they count differently. The *report* has targets, files and functions; a file's
totals are the sum over its functions, so a closure's lines count twice. The *archive* has each line's execution count
once, and counts of ranges inside lines. Apple's percentages are those of the report, so the totals here are too; lines
come from the archive.

Lines are most of the data (a large app has millions), so they are decoded file by file on request: a `Coverage` has a
`LineSource`, and memory stays flat while files are formatted one after the other.
"""

from typing import Protocol

import msgspec

from runyard.xcresult.reader.model import Warning  # noqa: A004  (of the bundle, not Python's)


class Function(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One function, or closure, of a file."""

    name: str
    line: int
    """Where it begins, one-based."""
    covered: int
    executable: int
    count: int
    """How often it was entered."""


class FileCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """A source file of a target, with the report's totals."""

    name: str
    path: str
    covered: int
    executable: int
    functions: tuple[Function, ...] = ()


class TargetCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """A built product: an app, a framework, a test bundle."""

    name: str
    identifier: str = ""
    product: str = ""
    covered: int
    executable: int
    files: tuple[FileCoverage, ...] = ()


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line that can be executed, and how often it was."""

    number: int
    count: int


class Range(msgspec.Struct, frozen=True, gc=False):
    """A part of a line whose count differs from the line's, for example half a condition."""

    line: int
    column: int
    length: int
    count: int


class FileLines(msgspec.Struct, frozen=True, kw_only=True):
    """A file's executable lines in order, and the ranges inside them."""

    lines: tuple[Line, ...] = ()
    ranges: tuple[Range, ...] = ()


class LineSource(Protocol):
    """Lines by path, decoded on demand."""

    def paths(self) -> tuple[str, ...]:
        """The files that have line counts, in the archive's order."""
        ...

    def lines(self, path: str) -> FileLines | None:
        """One file's lines; None for a file that is not in the archive."""
        ...


class NoLines:
    """The line source of a bundle that has a report only."""

    def paths(self) -> tuple[str, ...]:
        """Return no path."""
        return ()

    def lines(self, path: str) -> FileLines | None:
        """Return None."""
        return None


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of one action, or of several merged."""

    covered: int = 0
    executable: int = 0
    targets: tuple[TargetCoverage, ...] = ()
    source: LineSource = msgspec.field(default_factory=NoLines)
    warnings: tuple[Warning, ...] = ()
    """Parts that could not be read (the report, the archive), and warnings that Xcode recorded."""
