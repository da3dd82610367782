"""The process of one component: `python -m runyard.embedded.up.child`, started by the supervisor.

It reads its configuration from standard input (see `boot.py`), prints `ready` to standard output once it serves, and
logs to standard error, which is its log file. It ends on SIGTERM, and when its parent is gone: then its standard
input closes.

Exit codes: 0 ended on request, 1 crashed (restart it), 3 cannot work like this (an operator must act).
"""

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from importlib import import_module

import msgspec

from runyard.clock import RealClock
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import BadDirectory
from runyard.telemetry.causes import first_of
from runyard.telemetry.log import configure, get_logger

CANNOT_WORK = 3
ROLES = ("kube", "github", "server", "operator", "agent", "hosts")
_PATIENCE = 8.0  # seconds after the parent's end, for a loop that does not end
Main = Callable[[Context], Awaitable[None]]


def main() -> int:
    """Runs one component."""
    line = sys.stdin.buffer.readline()
    if not line.strip():
        sys.stderr.write("this program is started by `runyard up`\n")
        return 2
    boot = msgspec.json.decode(line, type=Boot)
    configure(level=os.environ.get("RUNYARD_LOG", "info"))
    log = get_logger(boot.role, component=boot.name)
    role: Main = import_module(f"runyard.embedded.up.roles.{boot.role}").run
    try:
        asyncio.run(_run(boot, role))
    except asyncio.CancelledError:
        return 0
    except BadDirectory as error:
        log.critical("cannot work", error=str(error))
        return CANNOT_WORK
    except BaseException as error:
        first = first_of(error)
        log.critical("crashed", error=f"{type(first).__name__}: {first}", exc_info=error)
        return 1
    return 0


async def _run(boot: Boot, role: Main) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    watch = threading.Thread(target=_watch_parent, args=(loop, task), daemon=True)
    watch.start()
    context = Context(boot=boot, clock=RealClock(), rng=random.SystemRandom(), ready=_print_ready)
    await role(context)


def _watch_parent(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    while os.read(0, 4096):  # no data follows; wait for the end of file
        pass
    try:
        loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        return  # the loop has ended already
    time.sleep(_PATIENCE)
    os._exit(CANNOT_WORK)


def _print_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
