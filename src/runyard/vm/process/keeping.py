"""The host's side of a keeper: start one, tell it, wait for its end, and bury a VM whose keeper was killed.

Invariants:
- Nobody signals a process by a number that he has read from a file. A VM is alive while its keeper holds the pipe
  `alive` open; it is asked to end through the pipe `control`.
- Who starts or buries a VM holds its lock, and a keeper inherits it: there is no moment without a holder.
"""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from runyard import proc
from runyard.clock import Clock
from runyard.vm.contract import DriverFailed
from runyard.vm.process import sandbox
from runyard.vm.process.folders import flock
from runyard.vm.process.layout import Place, Pulse

ASK, POWER_OFF = b"T", b"K"
POWER_OFF_PATIENCE = 20.0  # for the kernel to end what was killed
_START_PATIENCE = 60.0
# The keeper needs nothing but this package's own modules and the standard library.
_IMPORT = """
import sys
sys.path.append(sys.argv.pop(1))
from runyard.vm.process.keeper import main
sys.exit(main(sys.argv[1:]))
"""
_KEEPER = (
    *(sys.executable, "-I", "-S", "-c"),
    _IMPORT,
    str(Path(__file__).resolve().parents[3]),
)
_ENV = {"PATH": sandbox.PATH, "LC_ALL": "C"}


async def start(place: Place, lock: int, clock: Clock) -> None:
    """Start a keeper, and return when the guest has been started. It inherits the lock and the pipe `alive`."""
    ready, starting = os.pipe()
    alive = os.open(place.state / "alive", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    log = os.open(
        place.state / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        handles = (lock, alive, starting)
        argv = [*_KEEPER, "keep", str(place.state), *map(str, handles)]
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_ENV,
            cwd="/",
            pass_fds=handles,
        )
        os.close(starting)
        starting = -1
        await child.wait()
        await _closed(ready, clock, within=_START_PATIENCE)
    finally:
        for handle in (ready, starting, alive, log):
            if handle >= 0:
                os.close(handle)
    if place.pulse() is Pulse.STOPPED:
        said = (place.state / "keeper.log").read_text(encoding="utf-8", errors="replace")
        raise DriverFailed(f"{place.name} was not started: {said[-500:].strip()}")


async def tell(place: Place, what: bytes, clock: Clock) -> None:
    """Tell the keeper, as soon as it listens; one that is gone need not be told."""
    while place.alive():
        try:
            handle = os.open(place.state / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise DriverFailed(f"{place.name} cannot be told: {error}") from error
            await clock.sleep(0.01)
            continue
        try:
            os.write(handle, what)
        finally:
            os.close(handle)
        return


async def gone(place: Place, clock: Clock, *, within: float) -> bool:
    """Whether its keeper has ended, waiting for that; it ends last of all."""
    try:
        handle = place.listen()
    except OSError:
        return True
    try:
        return await _closed(handle, clock, within=within)
    finally:
        os.close(handle)


async def bury(place: Place, clock: Clock) -> None:
    """End what is left of a VM whose keeper was killed, and write its exit."""
    async with locked(place, clock) as lock:
        if lock is None or place.pulse() is not Pulse.ORPHANED:
            return
        argv = [*_KEEPER, "bury", str(place.state)]
        try:
            done = await proc.run(argv, timeout=POWER_OFF_PATIENCE, env=_ENV, cwd="/")
        except proc.ProcError as error:
            raise DriverFailed(f"{place.name} cannot be buried: {error}") from error
        if done.code != 0:
            said = done.stderr.decode(errors="replace")[-500:]
            raise DriverFailed(f"{place.name} cannot be buried: {said}")


@contextlib.asynccontextmanager
async def locked(place: Place, clock: Clock) -> AsyncIterator[int | None]:
    """The VM's lock as an open file, or None if a living keeper or somebody else at work has it.

    The two things that a dead keeper held are not freed in the same instant: it is worth a short wait.
    """
    try:
        handle = os.open(place.state / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise DriverFailed(f"{place.name} cannot be locked: {error}") from error
    try:
        mine = flock(handle)
        for _ in range(100):
            if mine or place.alive():
                break
            await clock.sleep(0.01)
            mine = flock(handle)
        yield handle if mine else None
    finally:
        os.close(handle)  # an heir of this open file keeps the lock


async def _closed(handle: int, clock: Clock, *, within: float) -> bool:
    """Whether the other end of this pipe is closed, waiting for that at most so long."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(handle, False)
        if os.read(handle, 1) == b"":
            return True
    closed: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, _settle, closed)
    try:
        async with clock.timeout(within):
            await closed
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True


def _settle(closed: asyncio.Future[None]) -> None:
    if not closed.done():
        closed.set_result(None)
