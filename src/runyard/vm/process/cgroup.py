"""Operates on one VM's control group: enters it, kills its processes, counts what is left, removes it.

Imported by the shim, so it imports nothing but the standard library. An empty path means that there is no group;
a group that is gone counts as empty.
"""

import contextlib
import os
import signal


def enter(path: str) -> None:
    """Moves the current process into the group; its children start there."""
    with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
        file.write("0")


def kill_all(path: str) -> None:
    """Kills every process in the group: at once where the kernel can, else one by one; callers repeat it."""
    if not path:
        return
    try:
        _write(f"{path}/cgroup.kill", "1")
    except OSError:  # Linux before 5.14, or the group is gone
        for pid in members(path):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def members(path: str) -> list[int]:
    """The process ids in the group, without those that this process cannot see."""
    text = _read(f"{path}/cgroup.procs") if path else ""
    return [int(word) for word in text.split() if word.isdigit() and word != "0"]


def is_populated(path: str) -> bool:
    """Whether a process is left in the group or in a group that the guest has made below it."""
    return bool(path) and "populated 1" in _read(f"{path}/cgroup.events")


def oom_kills(path: str) -> int:
    """How many of its processes the kernel has killed because the group's memory was used up."""
    for line in _read(f"{path}/memory.events").splitlines() if path else ():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return 0


def remove(path: str) -> None:
    """Removes the group and the empty groups below it; a group that is not empty stays."""
    if not path:
        return
    for folder, below, _ in os.walk(path, topdown=False):
        for name in below:
            with contextlib.suppress(OSError):
                os.rmdir(f"{folder}/{name}")  # noqa: PTH106 pathlib is slow to import
    with contextlib.suppress(OSError):
        os.rmdir(path)  # noqa: PTH106 pathlib is slow to import


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never creates the file
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _read(path: str) -> str:
    with (
        contextlib.suppress(OSError),
        open(path, encoding="ascii") as file,  # noqa: PTH123 pathlib is slow to import
    ):
        return file.read()
    return ""
