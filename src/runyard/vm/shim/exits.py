"""Records that a VM was started and how it ended, and validates the guest's own report.

Imported by the shim, so it imports nothing but the standard library.

Invariants:
- That a VM was started is on the disk before anything of it runs: after any crash it is never started again.
- The exit record is replaced whole, in space that was reserved beforehand: a full disk does not lose it.
- What the guest reports is hostile input.
- A VM that has ended is sealed before its exit is recorded: its directory is closed to its users, and to the next VM
  that gets the same users.
"""

import contextlib
import fcntl
import json
import os
import stat
import sys

SHIM_DIED = "the VM's shim was killed, or the host was restarted"
TOKEN = "token"  # the Pod's token in the state directory, if the host polls
_RESERVE = 4096


def read_report(directory: str) -> int | None:
    """The exit code that the guest wrote, or None if there is no valid one.

    The guest may have put anything there: a link, a pipe that never ends, a huge file, another directory.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        parent = os.open(directory, flags | os.O_DIRECTORY)
        try:
            handle = os.open("runner-rc", flags, dir_fd=parent)
        finally:
            os.close(parent)
    except OSError:
        return None
    try:
        held = os.fstat(handle)
        if not stat.S_ISREG(held.st_mode) or held.st_size > 16:
            return None
        text = os.read(handle, 17).strip()
    except OSError:
        return None
    finally:
        os.close(handle)
    if not text.isdigit() or len(text) > 3 or int(text) > 255:
        return None
    return int(text)


def seal(directory: str) -> None:
    """Takes a VM's directory back from its users; its content stays as it is."""
    os.chown(directory, os.geteuid(), os.getegid())
    os.chmod(directory, 0o700)  # noqa: PTH101 pathlib is slow to import


def reserve(state: str) -> None:
    """Reserves the disk space that the exit record will need."""
    _write(f"{state}/exit.new", b" " * _RESERVE)


def write_started(state: str, pid: int) -> None:
    """Records durably that the VM is started; called before anything of it runs. On a full disk nothing is left."""
    path = f"{state}/started"
    try:
        _write(path, f"{pid}\n".encode())
        _sync_directory(state)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 pathlib is slow to import
        raise


def write_exit(
    state: str,
    code: int | None,
    reason: str,
    finished_at: float,
    *,
    status: int | None = None,
    refused: bool = False,
) -> None:
    """Writes the exit record durably; `status`: of the program, `refused`: it has ended before the guest ran."""
    record = {
        "exit_code": code,
        "exit_reason": reason[:1024],
        "finished_at": finished_at,
        "status": status,
        "refused": refused,
    }
    path = f"{state}/exit.new"
    _write(path, json.dumps(record).encode().ljust(_RESERVE), keep=True)
    os.replace(path, f"{state}/exit.json")  # noqa: PTH105 pathlib is slow to import
    _sync_directory(state)


def _write(path: str, data: bytes, *, keep: bool = False) -> None:
    """Writes a file and waits for the disk; `keep`: into the space that it has already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if keep else os.O_TRUNC)
    handle = os.open(path, flags, 0o600)
    try:
        while data:
            data = data[os.write(handle, data) :]
        _sync(handle)
    finally:
        os.close(handle)


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    """Waits until the disk has it; on macOS `fsync` alone leaves it in the disk's own cache."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError):  # not every file system can
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def wipe(state: str) -> None:
    """Removes the token from the state directory."""
    with contextlib.suppress(OSError):
        os.unlink(f"{state}/{TOKEN}")  # noqa: PTH108 pathlib is slow to import


def ended_how(code: int | None, status: int | None) -> str:
    """The exit reason when the guest ended by itself."""
    if code is not None:
        return "completed" if code == 0 else f"the guest reported {code}"
    if status is not None and status < 0:
        return f"the guest was killed by signal {-status} and reported nothing"
    return f"the guest ended with status {status} and reported nothing"
