"""Creates and removes directories atomically.

A directory that is being created or removed has a name with a leading dot and is locked, so that a sweep removes what
a killed agent has left and nothing that is in use. The programs `cp` and `rm` do the work: cancelling kills them, and
they handle whatever depth and modes a guest has made.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from runyard import proc
from runyard.vm import oserrors
from runyard.vm.contract import DriverFailed, NoSpace, VmError
from runyard.vm.guest.envfile import BadEnvironment
from runyard.vm.shim.locks import flock

_TIMEOUT = 3600.0
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
_numbers = itertools.count()


def within(path: str, homes: tuple[Path, ...]) -> bool:
    """Whether the path is in one of the homes; always true if no homes are given."""
    return not homes or any(Path(path).is_relative_to(home) for home in homes)


class NewDirectory:
    """A directory under construction at `path`: it is published whole at its target, or removed."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.holder = _hidden(target, "new")
        self.path = self.holder / "made"
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        self.holder.mkdir(mode=0o700)
        self._stack.enter_context(holding(self.holder))
        return self

    def publish(self) -> None:
        """Renames it to its target; a target that already exists is kept."""
        try:
            self.path.rename(self._target)
        except OSError as error:
            if not self._target.is_dir():
                raise DriverFailed(
                    f"{self._target.name} cannot be put in place: {error}"
                ) from error

    async def __aexit__(self, *_: object) -> None:
        with self._stack, contextlib.suppress(VmError):  # a later sweep removes what stays
            await remove(self.holder)


async def remove_whole(path: Path) -> None:
    """Hides it by a rename, then removes it. Absent is success."""
    gone = _hidden(path, "gone")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    with holding(gone):
        await remove(gone)


async def sweep(folder: Path) -> None:
    """Removes incomplete directories that no process holds."""
    for path in sorted(folder.glob(".*")):
        with contextlib.suppress(OSError, VmError), holding(path) as held:
            if held:
                await remove(path)


def _hidden(path: Path, word: str) -> Path:
    return path.with_name(f".{word}-{os.getpid()}-{next(_numbers)}-{path.name[:100]}")


@contextlib.contextmanager
def holding(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Locks a directory that is being created or removed, against sweeps; yields whether it got the lock."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield flock(handle, shared=shared)
    finally:
        os.close(handle)


def visible(folder: Path) -> tuple[Path, ...]:
    """The complete directories in it, by name."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return ()
    return tuple(path for path in found if path.is_dir())


@contextlib.contextmanager
def map_os_errors() -> Iterator[None]:
    """Turns OSErrors, and a bad environment of a guest, into the contract's errors."""
    with oserrors.map_os_errors():
        try:
            yield
        except BadEnvironment as error:
            raise DriverFailed(str(error)) from error


async def copy(source: Path, target: Path) -> None:
    """Copies a directory as it is; links stay links. Cancelling kills the copying program."""
    argv = ["cp", "-R", "-P", "-p", "--", str(source), str(target)]
    await _do(argv, timeout=_TIMEOUT)


async def remove(path: Path) -> None:
    """Removes a directory, whatever its depth and modes."""
    argv = ["rm", "-rf", "--", str(path)]
    try:
        await _do(argv, timeout=_TIMEOUT)
    except DriverFailed:
        with contextlib.suppress(DriverFailed):
            await _do(["chmod", "-R", "u+rwx", str(path)], timeout=_TIMEOUT)
        await _do(argv, timeout=_TIMEOUT)


async def _do(argv: list[str], *, timeout: float) -> None:
    try:
        done = await proc.run(argv, timeout=timeout, env=_ENV)
    except proc.ProcError as error:
        raise DriverFailed(str(error)) from error
    if done.code != 0:
        message = done.stderr.decode(errors="replace").strip()[-500:]
        # cp and rm exit with 1 whatever happened: only the C library's text, in the locale C, has the error number.
        full = any(os.strerror(number) in message for number in oserrors.FULL)
        raise NoSpace(message) if full else DriverFailed(message)
