"""Directories that appear and disappear whole.

What is being made or removed has a name that begins with a dot and is held by a lock on the directory itself, so that
a sweep takes away what a killed agent has left and nothing that somebody is working on. Programs do the work (`cp`,
`rm`): cancelled, they are ended; and they get through whatever depth and modes a guest has made.
"""

import contextlib
import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from runyard import proc
from runyard.vm.contract import DriverFailed, NoSpace, VmError
from runyard.vm.guest.envfile import BadEnvironment

_PATIENCE = 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
_numbers = itertools.count()


def within(place: str, homes: tuple[Path, ...]) -> bool:
    """Is that in one of these? Everything is in none."""
    return not homes or any(Path(place).is_relative_to(home) for home in homes)


class Fresh:
    """A directory that is being made, at `path`: either it appears at its place or nothing of it stays."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.holder = _hidden(target, "new")
        self.path = self.holder / "made"
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        self.holder.mkdir(mode=0o700)
        self._stack.enter_context(holding(self.holder))
        return self

    def appear(self) -> None:
        """Let it be seen; one that is there already is kept."""
        try:
            self.path.rename(self._target)
        except OSError as error:
            if not self._target.is_dir():
                raise DriverFailed(
                    f"{self._target.name} cannot be put in place: {error}"
                ) from error

    async def __aexit__(self, *_: object) -> None:
        with self._stack, contextlib.suppress(VmError):  # what stays is swept away another time
            await remove(self.holder)


async def away(path: Path) -> None:
    """Out of sight at once, then removed. Absent is success."""
    gone = _hidden(path, "gone")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    with holding(gone):
        await remove(gone)


async def sweep(folder: Path) -> None:
    """Remove what is half made or half removed and held by nobody."""
    for path in sorted(folder.glob(".*")):
        with contextlib.suppress(OSError, VmError), holding(path) as held:
            if held:
                await remove(path)


def _hidden(path: Path, word: str) -> Path:
    return path.with_name(f".{word}-{os.getpid()}-{next(_numbers)}-{path.name[:100]}")


@contextlib.contextmanager
def holding(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Hold a directory that is on its way in or out, so that nobody sweeps it away; False if somebody else does."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield flock(handle, shared=shared)
    finally:
        os.close(handle)


def flock(handle: int, *, shared: bool = False) -> bool:
    """Whether the lock is ours now."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def visible(folder: Path) -> tuple[Path, ...]:
    """The complete directories in it, by name."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return ()
    return tuple(path for path in found if path.is_dir())


@contextlib.contextmanager
def full_disk_is_told() -> Iterator[None]:
    """Turn the system's errors into the contract's."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(str(error)) from error
        raise DriverFailed(str(error)) from error
    except BadEnvironment as error:
        raise DriverFailed(str(error)) from error


async def copy(source: Path, target: Path) -> None:
    """Copy a directory as it is; links stay links. A program does it: cancelled, it is ended."""
    argv = ["cp", "-R", "-P", "-p", "--", str(source), str(target)]
    await _do(argv, timeout=_PATIENCE)


async def remove(path: Path) -> None:
    """Remove a directory, however deep and whatever a guest has done to its modes."""
    argv = ["rm", "-rf", "--", str(path)]
    try:
        await _do(argv, timeout=_PATIENCE)
    except DriverFailed:
        with contextlib.suppress(DriverFailed):
            await _do(["chmod", "-R", "u+rwx", str(path)], timeout=_PATIENCE)
        await _do(argv, timeout=_PATIENCE)


async def _do(argv: list[str], *, timeout: float) -> None:
    try:
        done = await proc.run(argv, timeout=timeout, env=_ENV)
    except proc.ProcError as error:
        raise DriverFailed(str(error)) from error
    if done.code != 0:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        full = any(os.strerror(number) in said for number in _FULL)
        raise NoSpace(said) if full else DriverFailed(said)
