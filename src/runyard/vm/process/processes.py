"""The host's processes: who descends from whom, who belongs to a VM, and how to end them all.

Imported by the keeper, so it imports nothing but the standard library. A process is its number together with its start:
a number alone may be somebody else's a moment later.

Who belongs to a VM is told by ancestry while its keeper lives. When the keeper is gone it is told by the VM's own
users, where it has some; by its control group, where it has one; and by the mark in the environment that every process
of it inherits. Where there is neither user nor group, a process that has dropped its environment outlives a killed
keeper.
"""

import contextlib
import os
import signal
import subprocess
import sys

MARK = "RUNYARD_VM_MARK"  # in the environment of every process of a guest: the VM's directory


class Process:
    """One line of the process table; a process is its number together with its start."""

    def __init__(self, pid: int, parent: int, *, uid: int, start: str) -> None:
        self.pid, self.parent, self.uid, self.start = pid, parent, uid, start


def table() -> dict[int, Process]:
    """Every process that has not ended, by number."""
    if sys.platform == "linux":
        return _proc_table()
    else:  # noqa: RET505 a type checker follows platforms only so
        return parse_ps(_ps("-o", "ppid=", "-o", "uid=", "-o", "stat=", "-o", "lstart="))


def _proc_table() -> dict[int, Process]:
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 pathlib is slow to import
        if name.isdigit():
            process = look(int(name))
            if process is not None:
                found[process.pid] = process
    return found


def look(pid: int) -> Process | None:
    """One process of Linux, if it is there and not merely waiting to be buried."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 as above
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 as above
            user = file.read().partition(b"\nUid:")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or not user or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), uid=int(user[0]), start=fields[19].decode())


def _ps(*options: str) -> str:
    argv = ["/bin/ps", "-A", "-o", "pid=", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
    return done.stdout


def parse_ps(text: str) -> dict[int, Process]:
    """The same from `ps`, where there is no /proc."""
    found: dict[int, Process] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].isdigit() and not words[3].startswith("Z"):
            pid = int(words[0])
            start = " ".join(words[4:])
            found[pid] = Process(pid, int(words[1]), uid=int(words[2]), start=start)
    return found


def descendants(root: int, processes: dict[int, Process]) -> list[Process]:
    """Children, their children and so on; the root itself is not among them."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    known = {root: True}
    waiting = [root]
    while waiting:
        for process in children.get(waiting.pop(), ()):
            if process.pid not in known:
                known[process.pid] = True
                found.append(process)
                waiting.append(process.pid)
    return found


def strike(process: Process, number: int) -> None:
    """Signal this very process: its number may be another's by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "linux":
            handle = os.pidfd_open(process.pid)
            try:
                now = look(process.pid)
                if now is not None and now.start == process.start:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        else:
            os.kill(process.pid, number)


def end_user(uid: int) -> None:
    """End every process of a user in one stroke, which no fork outruns. Only for root, and users of our own."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def end(processes: list[Process], users: list[int]) -> None:
    """One round: afterwards these are ended; whom they have started meanwhile the next round finds."""
    for uid in users:
        end_user(uid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped cannot fork
        for process in processes:
            strike(process, number)


def marked(mark: str, users: list[int]) -> list[Process]:
    """The processes of a guest whose keeper is gone, by its users or its mark; only ours and the VM's own."""
    everybody = table()
    ours = {pid: p for pid, p in everybody.items() if p.uid in (os.geteuid(), *users)}
    bearers = _bearers(ours, mark)
    found = {pid: p for pid, p in ours.items() if p.uid in users or pid in bearers}
    for process in list(found.values()):
        for child in descendants(process.pid, everybody):
            found.setdefault(child.pid, child)
    found.pop(os.getpid(), None)
    return list(found.values())


def _bearers(processes: dict[int, Process], mark: str) -> dict[int, bool]:
    """Those that carry the mark in their environment."""
    if sys.platform == "linux":
        return {pid: True for pid in processes if _bears(pid, mark)}
    else:  # noqa: RET505 a type checker follows platforms only so
        return dict.fromkeys(parse_marks(_ps("-E", "-ww", "-o", "command="), mark), True)


def parse_marks(text: str, mark: str) -> list[int]:
    """Who bears the mark, from `ps` with environments."""
    lines = [line.split() for line in text.splitlines()]
    return [int(words[0]) for words in lines if f"{MARK}={mark}" in words]


def _bears(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 as above
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False
