"""What the commands share that run a part of the fleet until they are told to end.

Exit code 0 when it was told to end, 1 when it failed. SIGTERM and SIGINT set an event; the part ends in order.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any

import click
import msgspec

from runyard.cli.speaking import Option
from runyard.db.contract import DatabaseError, Unavailable
from runyard.telemetry.causes import first_of

LOGGING: tuple[Option, ...] = (
    click.option("--json", "as_json", is_flag=True, help="Log one JSON object a line."),
    click.option(
        "--log-level",
        envvar="RUNYARD_LOG",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is worth a line.",
    ),
)


class Failed(click.ClickException):
    """It had begun, and cannot go on."""

    exit_code = 1


def live(part: Coroutine[Any, Any, None]) -> None:
    """Run a part to its end. A database that can never be used is one line, and no traceback."""
    try:
        asyncio.run(part)
    except BaseExceptionGroup as group:
        first = first_of(group)
        if not isinstance(first, DatabaseError) or isinstance(first, Unavailable):
            raise
        raise Failed(f"the database cannot be used: {first}") from None


def ending_by_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    return ending


def name_of(given: str) -> str:
    """What this process is called in leases, logs and the audit trail."""
    return given or f"{socket.gethostname()}-{os.getpid()}"


def say(text: str, *, as_json: bool, event: str, url: str, name: str) -> None:
    """The one line on standard output: it works, and where."""
    told = {"event": event, "url": url, "name": name}
    click.echo(msgspec.json.encode(told).decode() if as_json else text)
