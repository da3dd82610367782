"""The host's side of a shim: starts one, sends it commands, waits for its end, reaps a VM whose shim was killed.

Invariants:
- No process is signalled by an id read from a file. A VM is alive while its shim holds the pipe `alive` open; it is
  sent commands through the pipe `control`.
- The process that starts or reaps a VM holds its lock, and a shim inherits the lock: it is held without a gap.
- Waits are bounded: a VM that is hard to kill is reaped by a process of its own, which goes on without its starter.
"""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from runyard import proc
from runyard.clock import Clock
from runyard.vm.contract import DriverFailed, NoSpace
from runyard.vm.oserrors import FULL
from runyard.vm.shim.directory import ShimDirectory, ShimState
from runyard.vm.shim.locks import flock

SHUT_DOWN, POWER_OFF = b"T", b"K"
POWER_OFF_TIMEOUT = 20.0  # seconds for the kernel to end what was killed
PLAIN = "runyard.vm.shim.main"  # the program of a shim whose guest is a plain command
_START_TIMEOUT = 60.0
# A shim needs only its package's modules and the standard library.
_IMPORT = """
import sys
sys.path.append(sys.argv.pop(1))
from {program} import main
sys.exit(main(sys.argv[1:]))
"""
_SOURCE = str(Path(__file__).resolve().parents[3])
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}


def program_argv(program: str, *words: str) -> list[str]:
    """The command that runs a module of this package in a Python with the standard library alone."""
    text = _IMPORT.format(program=program)
    return [sys.executable, "-I", "-S", "-c", text, _SOURCE, *words]


async def start(
    directory: ShimDirectory,
    lock: int,
    clock: Clock,
    *,
    program: str = PLAIN,
    environ: Mapping[str, str] = ENV,
) -> None:
    """Starts a shim and returns when the guest has started. The shim inherits the lock and the pipe `alive`.

    Programs of the guest get `environ` only if the order says so; it is in no file.
    """
    alive = os.open(directory.state / "alive", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        failure = await _detached(
            directory,
            "run",
            (lock, alive),
            clock,
            program=program,
            within=_START_TIMEOUT,
            environ=environ,
        )
    finally:
        os.close(alive)
    number, _, text = (failure or "").partition(" ")
    if number.isdigit():
        message = f"{directory.name} was not started: {text}"
        raise NoSpace(message) if int(number) in FULL else DriverFailed(message)
    if directory.shim_state() is ShimState.STOPPED:
        raise DriverFailed(f"{directory.name} was not started; {_log(directory)}")


async def try_guest(directory: ShimDirectory, *, within: float, program: str = PLAIN) -> None:
    """Runs a guest from start to exit record, for a trial; raises `ProcError` if it does not end in time."""
    argv = program_argv(program, "try", str(directory.state))
    done = await proc.run(argv, timeout=within, env=ENV, cwd="/")
    if done.code != 0:
        raise DriverFailed(done.stderr.decode(errors="replace")[-500:].strip())


async def send(directory: ShimDirectory, command: bytes, clock: Clock) -> None:
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


async def wait_gone(directory: ShimDirectory, clock: Clock, *, within: float) -> bool:
    """Waits until the shim has ended, at most `within` seconds; returns whether it has."""
    try:
        handle = directory.listen()
    except OSError:
        return True
    try:
        return await _closed(handle, clock, within=within)
    finally:
        os.close(handle)


async def reap(
    directory: ShimDirectory,
    clock: Clock,
    *,
    program: str = PLAIN,
    within: float = POWER_OFF_TIMEOUT,
    environ: Mapping[str, str] = ENV,
) -> None:
    """Kills what is left of a VM whose shim was killed, and writes its exit record.

    What takes longer than `within` goes on and is `DriverFailed`; so does what another caller has begun.
    """
    async with locked(directory, clock) as lock:
        if directory.shim_state() is not ShimState.ORPHANED:
            return
        if lock is None:
            raise DriverFailed(f"{directory.name} is being reaped")
        failure = await _detached(
            directory, "reap", (lock,), clock, program=program, within=within, environ=environ
        )
    if failure is None:
        raise DriverFailed(f"{directory.name} cannot be reaped: its processes have not ended yet")
    if directory.shim_state() is ShimState.ORPHANED:
        raise DriverFailed(f"{directory.name} cannot be reaped; {_log(directory)}")


async def _detached(
    directory: ShimDirectory,
    command: str,
    handles: Iterable[int],
    clock: Clock,
    *,
    program: str,
    within: float,
    environ: Mapping[str, str],
) -> str | None:
    """Starts a process that detaches itself, and waits until it closes its last handle, `ready`.

    Returns what it wrote there, or None if it has not closed it in time.
    """
    ready, starting = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(directory.state / "shim.log", flags, 0o600)
    try:
        passed = (*handles, starting)
        argv = program_argv(program, command, str(directory.state), *map(str, passed))
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environ),
            cwd="/",
            pass_fds=passed,
        )
        os.close(starting)
        starting = -1
        await child.wait()
        return await _last_words(ready, clock, within=within)
    finally:
        for handle in (ready, starting, log):
            if handle >= 0:
                os.close(handle)


def _log(directory: ShimDirectory) -> str:
    text = (directory.state / "shim.log").read_text(encoding="utf-8", errors="replace")
    return f"its shim.log ends with: {text[-500:].strip()}"


@contextlib.asynccontextmanager
async def locked(directory: ShimDirectory, clock: Clock) -> AsyncIterator[int | None]:
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
    return await _last_words(handle, clock, within=within) is not None


async def _last_words(handle: int, clock: Clock, *, within: float) -> str | None:
    """What arrives until the other end of this pipe is closed; None if that takes longer than `within` seconds."""
    os.set_blocking(handle, False)
    text = b""
    with contextlib.suppress(TimeoutError):
        async with clock.timeout(within):
            while True:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(handle, 4096)
                    if not data:
                        return text.decode(errors="replace")
                    text += data
                    continue
                await _readable(handle)
    return None


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, _settle, there)
    try:
        await there
    finally:
        loop.remove_reader(handle)


def _settle(there: asyncio.Future[None]) -> None:
    if not there.done():
        there.set_result(None)
