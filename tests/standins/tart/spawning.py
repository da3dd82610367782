"""Starts the processes of a guest, each in a session of its own.

On Linux a guest's process also dies with the process that started it (`PR_SET_PDEATHSIG`), and orphans are adopted by
the machine (`PR_SET_CHILD_SUBREAPER`), so that nothing of a guest outlives it. macOS has neither: there the machine
kills the process groups that it knows.
"""

import errno
import fcntl
import os
import signal
import sys
import termios

LINUX = sys.platform == "linux"
_PDEATHSIG, _SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if LINUX:
        import ctypes  # noqa: PLC0415 - slow to import; only `run` needs it

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of the orphans among this process's descendants."""
    _prctl(_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


def fresh_signals() -> None:
    """The dispositions that a new program expects."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def spawn(
    argv: list[str],
    env: dict[str, str],
    *,
    cwd: str,
    files: tuple[int, int, int],
    terminal: bool = False,
) -> int:
    """Start a program; raises OSError if it cannot be started."""
    failed, report = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become(argv, env, cwd=cwd, files=files, terminal=terminal)
        except OSError as error:
            os.write(report, str(error.errno or errno.EIO).encode())
        os._exit(127)
    os.close(report)
    try:
        trouble = os.read(failed, 16)
    finally:
        os.close(failed)
    if trouble:
        os.waitpid(child, 0)
        raise OSError(int(trouble), os.strerror(int(trouble)), argv[0])
    return child


def _become(
    argv: list[str], env: dict[str, str], *, cwd: str, files: tuple[int, int, int], terminal: bool
) -> None:
    os.setsid()
    die_with_parent()
    fresh_signals()
    for target, source in enumerate(files):
        if source == target:
            os.set_inheritable(target, True)
        else:
            os.dup2(source, target)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.execvpe(argv[0], argv, env)


def children() -> list[int]:
    """The direct children of this process, adopted ones included."""
    if not LINUX:
        return []
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def signal_all(number: int, known: set[int]) -> None:
    """Signal the process groups of these children and of all others that this process has."""
    for pid in sorted({*known, *children()}):
        for send in (os.killpg, os.kill):
            try:
                send(pid, number)
            except (ProcessLookupError, PermissionError):
                continue


def kill_all(known: set[int]) -> None:
    """Kill and reap every child, and the orphans that arrive meanwhile."""
    while True:
        signal_all(signal.SIGKILL, known)
        try:
            pid, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        known.discard(pid)
