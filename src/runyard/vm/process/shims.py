"""The host's side of a shim: starts one, sends it commands, waits for its end, reaps a VM whose shim was killed.

Invariants:
- No process is signalled by an id read from a file. A VM is alive while its shim holds the pipe `alive` open; it is
  sent commands through the pipe `control`.
- The process that starts or reaps a VM holds its lock, and a shim inherits the lock: it is held without a gap.
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
from runyard.vm.process.layout import ShimState, VmDirectory

SHUT_DOWN, POWER_OFF = b"T", b"K"
POWER_OFF_TIMEOUT = 20.0  # seconds for the kernel to end what was killed
_START_TIMEOUT = 60.0
# The shim needs only this package's modules and the standard library.
_IMPORT = """
import sys
sys.path.append(sys.argv.pop(1))
from runyard.vm.process.shim import main
sys.exit(main(sys.argv[1:]))
"""
_SHIM = (
    *(sys.executable, "-I", "-S", "-c"),
    _IMPORT,
    str(Path(__file__).resolve().parents[3]),
)
_ENV = {"PATH": sandbox.PATH, "LC_ALL": "C"}


async def start(directory: VmDirectory, lock: int, clock: Clock) -> None:
    """Starts a shim and returns when the guest has started. The shim inherits the lock and the pipe `alive`."""
    ready, starting = os.pipe()
    alive = os.open(directory.state / "alive", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    log = os.open(
        directory.state / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        handles = (lock, alive, starting)
        argv = [*_SHIM, "run", str(directory.state), *map(str, handles)]
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
        await _closed(ready, clock, within=_START_TIMEOUT)
    finally:
        for handle in (ready, starting, alive, log):
            if handle >= 0:
                os.close(handle)
    if directory.shim_state() is ShimState.STOPPED:
        log_text = (directory.state / "shim.log").read_text(encoding="utf-8", errors="replace")
        raise DriverFailed(
            f"{directory.name} was not started; its shim.log ends with: {log_text[-500:].strip()}"
        )


async def send(directory: VmDirectory, command: bytes, clock: Clock) -> None:
    """Sends a command as soon as the shim reads its control pipe; does nothing if the shim is gone."""
    while directory.alive():
        try:
            handle = os.open(
                directory.state / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise DriverFailed(
                    f"{directory.name} cannot be reached through its control pipe: {error}"
                ) from error
            await clock.sleep(0.01)
            continue
        try:
            os.write(handle, command)
        finally:
            os.close(handle)
        return


async def wait_gone(directory: VmDirectory, clock: Clock, *, within: float) -> bool:
    """Waits until the shim has ended, at most `within` seconds; returns whether it has."""
    try:
        handle = directory.listen()
    except OSError:
        return True
    try:
        return await _closed(handle, clock, within=within)
    finally:
        os.close(handle)


async def reap(directory: VmDirectory, clock: Clock) -> None:
    """Kills what is left of a VM whose shim was killed, and writes its exit record."""
    async with locked(directory, clock) as lock:
        if lock is None or directory.shim_state() is not ShimState.ORPHANED:
            return
        argv = [*_SHIM, "reap", str(directory.state)]
        try:
            done = await proc.run(argv, timeout=POWER_OFF_TIMEOUT, env=_ENV, cwd="/")
        except proc.ProcError as error:
            raise DriverFailed(f"{directory.name} cannot be reaped: {error}") from error
        if done.code != 0:
            message = done.stderr.decode(errors="replace")[-500:]
            raise DriverFailed(f"{directory.name} cannot be reaped: {message}")


@contextlib.asynccontextmanager
async def locked(directory: VmDirectory, clock: Clock) -> AsyncIterator[int | None]:
    """Yields the VM's lock as an open file, or None while a live shim or another caller holds it.

    A killed shim's lock and `alive` pipe are not released in the same instant, so this retries for a short time.
    """
    try:
        handle = os.open(directory.state / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise DriverFailed(f"{directory.name} cannot be locked: {error}") from error
    try:
        mine = flock(handle)
        for _ in range(100):
            if mine or directory.alive():
                break
            await clock.sleep(0.01)
            mine = flock(handle)
        yield handle if mine else None
    finally:
        os.close(handle)  # a child that inherited this file keeps the lock


async def _closed(handle: int, clock: Clock, *, within: float) -> bool:
    """Waits until the other end of this pipe is closed, at most `within` seconds; returns whether it is."""
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
