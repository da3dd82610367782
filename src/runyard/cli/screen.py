"""Lays out tables and sentences for a terminal of any width.

A table whose columns fit is a table. If they do not fit, each row becomes a block: its first cell, and below it the
others with the names of their columns. Long texts are wrapped between words, and a word is only cut if it is longer
than a line.
"""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from runyard.text import harmless

ENDLESS = 4000  # the width of an output that is not a terminal: no line is wrapped
_GAP = "   "


def output_width() -> int:
    """The width of the terminal that standard output is; `ENDLESS` if it is none."""
    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else ENDLESS


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[str]:
    """The lines of a table, or of its rows as blocks."""
    clean = [[_cell(cell) for cell in row] for row in rows]
    sizes = [max(len(cell) for cell in each) for each in zip(columns, *clean, strict=True)]
    if sum(sizes) + len(_GAP) * (len(sizes) - 1) <= width:
        return [_row([name.upper() for name in columns], sizes), *(_row(r, sizes) for r in clean)]
    return [line for row in clean for line in _block(columns, row, width)]


def _cell(text: str) -> str:
    return " ".join(harmless(text).split()) or "-"


def _row(cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = (cell.ljust(size) for cell, size in zip(cells, sizes, strict=True))
    return _GAP.join(padded).rstrip()


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """`pool mac`, and below it the other cells that are not empty."""
    pairs = zip(columns[1:], row[1:], strict=True)
    below = ", ".join(f"{name}: {cell}" for name, cell in pairs if cell != "-")
    head = wrapped(f"{columns[0]} {row[0]}", width=width)
    return [*head, *(wrapped(below, width=width, indent=2) if below else [])]


def wrapped(text: str, *, width: int, indent: int = 0) -> list[str]:
    """The text in lines of that width; lines after the first are indented a little more."""
    return textwrap.wrap(
        _cell(text),
        width=width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
