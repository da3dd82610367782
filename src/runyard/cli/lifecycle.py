"""Runs a component of the fleet until a signal stops it.

Exit code 0 after SIGTERM or SIGINT, 1 if the component failed. Both signals set an event; the component then stops in
order.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any

import click
import msgspec

from runyard.cli.options import Failed
from runyard.db.contract import DatabaseError, Unavailable
from runyard.telemetry.causes import first_of


def run_component(component: Coroutine[Any, Any, None]) -> None:
    """Run a component to its end. An unusable database becomes one line instead of a traceback."""
    try:
        asyncio.run(component)
    except BaseExceptionGroup as group:
        first = first_of(group)
        if not isinstance(first, DatabaseError) or isinstance(first, Unavailable):
            raise
        raise Failed(f"the database cannot be used: {first}") from None


def stop_on_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    return ending


async def until(ending: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it fails or until `ending`; then cancel it and wait until it has ended in order."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        waiter = group.create_task(ending.wait())
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        waiter.cancel()


def process_name(given: str) -> str:
    """The name of this process in leases, logs and the audit trail."""
    return given or f"{socket.gethostname()}-{os.getpid()}"


def announce(text: str, *, as_json: bool, event: str, url: str, name: str) -> None:
    """Print the one line on standard output: the component is ready, and its URL."""
    line = {"event": event, "url": url, "name": name}
    click.echo(msgspec.json.encode(line).decode() if as_json else text)
