"""Runs `runyard status`: reads, prints, and with `--watch` again and again; the exit code is the verdict."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from runyard.cli.local_machine import Unreachable, machine_root
from runyard.cli.screen import output_width
from runyard.cli.server_client import ServerClient
from runyard.cli.statusread import not_running, read_status
from runyard.cli.statusscreen import screen
from runyard.cli.statusview import EXIT, StatusView, status_of
from runyard.clock import Clock, RealClock
from runyard.text import harmless

Find = Callable[[], ServerClient]
_CLEAR = "\x1b[H\x1b[2J"


def show_once(find: Find, data: Path | None, *, as_json: bool) -> int:
    """Print the status once; returns the exit code."""
    view = asyncio.run(_read(find, data, RealClock()))
    click.echo(_text(view, as_json=as_json, lines=False))
    return EXIT[view.state]


def watch(find: Find, data: Path | None, *, every: float, as_json: bool) -> NoReturn:
    """Print the status again and again, until an interrupt; one JSON object per line with `as_json`."""
    clock = RealClock()

    def show(view: StatusView) -> None:
        clear = _CLEAR if sys.stdout.isatty() and not as_json else ""
        click.echo(clear + _text(view, as_json=as_json, lines=True))

    asyncio.run(repeat(lambda: _read(find, data, clock), show, clock=clock, every=every))
    raise AssertionError  # `repeat` only ends by an exception


async def repeat(
    read: Callable[[], Awaitable[StatusView]],
    show: Callable[[StatusView], None],
    *,
    clock: Clock,
    every: float,
) -> NoReturn:
    """Read and show, with a pause after each."""
    while True:
        show(await read())
        await clock.sleep(every)


async def _read(find: Find, data: Path | None, clock: Clock) -> StatusView:
    root = machine_root(data)
    try:
        client = find()
    except Unreachable as error:
        return status_of(not_running(error, root, clock=clock))
    return status_of(await read_status(client, root, clock=clock))


def _text(view: StatusView, *, as_json: bool, lines: bool) -> str:
    if as_json:
        encoded = msgspec.json.encode(view)
        return harmless((encoded if lines else msgspec.json.format(encoded, indent=2)).decode())
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return "\n".join(screen(view, width=output_width(), color=color))
