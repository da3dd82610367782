"""Reads the host's process table, finds the processes of a VM, and kills them.

Imported by the shim, so it imports nothing but the standard library. A process is identified by its number and its
start time: the number alone may soon belong to another process.

While its shim runs, a VM's processes are found by ancestry. After that they are found by the VM's own users, by its
control group, and by the mark that every process of it inherits in its environment. Where there is neither user nor
group, a process that has dropped its environment survives a killed shim.
"""

import contextlib
import os
import signal
import subprocess
import sys

MARK = "RUNYARD_VM_MARK"  # in the environment of every process of a guest: the VM's directory
KEY = "RUNYARD_VM_KEY"  # the same in hexadecimal: `ps` prints environments as words, and a path may hold blanks
_COLUMNS = (
    "-o",
    "ppid=",
    "-o",
    "uid=",
    "-o",
    "stat=",
    "-o",
    "lstart=",
)  # after `pid`, as `parse_ps` reads them


class Process:
    """One line of the process table; identified by number and start time."""

    def __init__(self, pid: int, parent: int, *, uid: int, start: str) -> None:
        self.pid, self.parent, self.uid, self.start = pid, parent, uid, start


def table() -> dict[int, Process]:
    """Every process that has not exited, by number."""
    if sys.platform == "linux":
        return _proc_table()
    else:  # noqa: RET505 a type checker follows platforms only so
        return parse_ps(_ps(*_COLUMNS))


def _proc_table() -> dict[int, Process]:
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 pathlib is slow to import
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                found[process.pid] = process
    return found


def read_process(pid: int) -> Process | None:
    """Reads one process from /proc; None if it is gone or a zombie."""
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


def read_by_ps(pid: int) -> Process | None:
    """Reads one process where there is no /proc; None if it is gone or a zombie."""
    return parse_ps(_ps(*_COLUMNS, which=("-p", str(pid)))).get(pid)


def has_not_ended(process: Process) -> bool:
    """Whether this process, and no later one with its number, is still in the process table."""
    now = read_process(process.pid) if sys.platform == "linux" else read_by_ps(process.pid)
    return now is not None and now.start == process.start


def _ps(*options: str, which: tuple[str, ...] = ("-A",)) -> str:
    argv = ["/bin/ps", *which, "-o", "pid=", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
    return done.stdout


def parse_ps(text: str) -> dict[int, Process]:
    """Parses the output of `ps`, where there is no /proc."""
    found: dict[int, Process] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].isdigit() and not words[3].startswith("Z"):
            pid = int(words[0])
            start = " ".join(words[4:])
            found[pid] = Process(pid, int(words[1]), uid=int(words[2]), start=start)
    return found


def descendants(root: int, processes: dict[int, Process]) -> list[Process]:
    """Children, their children and so on, without the root itself."""
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


def mark_variables(mark: str) -> dict[str, str]:
    """The variables by which the processes of a guest are found again."""
    return {MARK: mark, KEY: os.fsencode(mark).hex()}


def signal_process(process: Process, number: int) -> None:
    """Signals this process, unless its number belonged to another one a moment ago."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "linux":
            handle = os.pidfd_open(process.pid)
            try:
                now = read_process(process.pid)
                if now is not None and now.start == process.start:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        elif (now := read_by_ps(process.pid)) is not None and now.start == process.start:
            os.kill(process.pid, number)


def named_signal(name: str) -> int:
    """The number of a signal, by its name as in `TERM`."""
    return signal.Signals[f"SIG{name}"]


def kill_user(uid: int) -> None:
    """Kills every process of a user at once, so that no fork escapes. Only for root, and for users of VMs."""
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


def kill(processes: list[Process], users: list[int]) -> None:
    """Stops and kills these processes once; the caller's next round finds those that they started meanwhile."""
    for uid in users:
        kill_user(uid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # a stopped process cannot fork
        for process in processes:
            signal_process(process, number)


def marked(mark: str, users: list[int]) -> list[Process]:
    """The processes of a guest whose shim is gone, by its users or its mark; only ours and the VM's."""
    processes = table()
    ours = {pid: p for pid, p in processes.items() if p.uid in (os.geteuid(), *users)}
    with_mark = _with_mark(ours, mark)
    found = {pid: p for pid, p in ours.items() if p.uid in users or pid in with_mark}
    for process in list(found.values()):
        for child in descendants(process.pid, processes):
            found.setdefault(child.pid, child)
    found.pop(os.getpid(), None)
    return list(found.values())


def _with_mark(processes: dict[int, Process], mark: str) -> dict[int, bool]:
    """The processes that carry the mark in their environment."""
    if sys.platform == "linux":
        return {pid: True for pid in processes if _has_mark(pid, mark)}
    else:  # noqa: RET505 a type checker follows platforms only so
        return dict.fromkeys(parse_marks(_ps("-E", "-ww", "-o", "command="), mark), True)


def parse_marks(text: str, mark: str) -> list[int]:
    """The ids of processes with the mark, from the output of `ps` with environments."""
    wanted = f"{KEY}={mark_variables(mark)[KEY]}"
    lines = [line.split() for line in text.splitlines()]
    return [int(words[0]) for words in lines if wanted in words]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 as above
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False
