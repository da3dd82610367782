"""A VM's own control group, as its keeper uses it: enter it, end everybody in it, look who is left, remove it.

Imported by the keeper, so it imports nothing but the standard library. An empty path means that there is no group, and
a group that is gone is a group with nobody in it.
"""

import contextlib
import os
import signal


def enter(path: str) -> None:
    """Move this very process into the group; its children are born there."""
    with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
        file.write("0")


def end_all(path: str) -> None:
    """End everybody in the group: at once where the kernel can, else one by one, round after round."""
    if not path:
        return
    try:
        _write(f"{path}/cgroup.kill", "1")
    except OSError:  # Linux before 5.14, or the group is gone
        for pid in members(path):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def members(path: str) -> list[int]:
    """Who is in it at this moment, without those that cannot be seen from here."""
    text = _read(f"{path}/cgroup.procs") if path else ""
    return [int(word) for word in text.split() if word.isdigit() and word != "0"]


def lives(path: str) -> bool:
    """Whether anybody is left in it, also in groups that the guest has made below."""
    return bool(path) and "populated 1" in _read(f"{path}/cgroup.events")


def starved(path: str) -> int:
    """How many of its processes the kernel has ended because the group had used up its memory."""
    for line in _read(f"{path}/memory.events").splitlines() if path else ():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return 0


def drop(path: str) -> None:
    """Remove the group with whatever empty groups are in it; one that is not empty stays."""
    if not path:
        return
    for folder, below, _ in os.walk(path, topdown=False):
        for name in below:
            with contextlib.suppress(OSError):
                os.rmdir(f"{folder}/{name}")  # noqa: PTH106 pathlib is slow to import
    with contextlib.suppress(OSError):
        os.rmdir(path)  # noqa: PTH106 pathlib is slow to import


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never makes the file
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
