"""Prints tables and JSON; cells are made safe for a terminal.

Invariant: if the output is not a terminal, no line is cut.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec

from runyard.text import harmless

_WIDE = 4000


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table without borders, like kubectl."""
    from rich.console import Console  # not for --help: rich is slow to load
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = (line.rstrip() for line in captured.get().splitlines())
    click.echo("\n".join(lines))


def show_json(value: object) -> None:
    """Print one JSON value, for scripts."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def moment(at: float | None) -> str:
    """A time as text, in UTC."""
    if at is None:
        return "-"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
