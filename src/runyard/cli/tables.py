"""Tables for people: what anybody called anything commands nobody's terminal.

Invariant: on something that is no terminal, lines are as long as they must be: nothing is cut for a reader that has
no width.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runyard.cli.harmless import harmless

_WIDE = 4000


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """A table without lines, as kubectl draws it."""
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
    """One JSON value, for scripts."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def moment(at: float | None) -> str:
    """An instant as people write it, in UTC."""
    if at is None:
        return "-"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
