"""Polls on behalf of a guest and runs its one job: what a shim does if the host polls.

    prepare   a command in the guest finds the runner, or unpacks one; it is repeated until the guest answers
    poll      a program beside the shim asks the server (`poller.py`), for as long as it takes
    run       a command in the guest gets the JIT configuration as its input and becomes the runner

Then the runner's exit code is the VM's, and the VM ends. The guest holds no token and needs no route to the server.

    order.json   polling  url ca pause timeout   of the server
                          poller                 the command that polls
                          exec                   the command that, followed by words, runs them in the guest
                          runner archive         as in the contract's `HostPolling`
                          env                    names and values for the runner
                          boot                   seconds in which the guest has to answer
                          idle                   seconds in which the runner has to get a job; 0: for ever
                          silence                seconds without output of the poller after which it is replaced

Invariants:
- No job is taken before a runner was found.
- An archive that arrived whole and cannot be unpacked ends the VM: no later attempt reads another one.
- A command in a guest counts only by what it printed or by a code of its own: an agent of the guest that does not
  answer ends the command with 1 as well. A runner is started again only if the first attempt has started nothing.
- A program that cannot be started now, because it is being upgraded, is an attempt that failed: no VM ends for it. One
  that stays missing ends the VM, which would be idle for ever.
- The token's file is removed before the job starts, and at the end in any case. The JIT configuration is on no disk
  and in no argument of a process of the host.
- Nothing here needs the agent or, once the job runs, the server.

Imported by the shim, so it imports nothing but the standard library.
"""

import _thread
import contextlib
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from runyard.vm.shim.exits import wipe
from runyard.vm.shim.guest import Guest, Host

if TYPE_CHECKING:
    from collections.abc import Callable

BAD_ARCHIVE, NO_RUNNER, STARTED_BEFORE = 77, 78, 79
WORKER, NO_WORKER = 80, 81
STARTS = "runyard: the runner starts"  # printed by the guest immediately before
_AGAIN = 1.0  # seconds between two attempts to reach a guest, or after a poller that died
_ATTEMPT = 60.0  # seconds for one attempt
_UNPACK = 1200.0  # the same, if it has to copy an archive
_MISSING = 600.0  # seconds in which a poller that cannot be started may appear again
_REACH = 120.0  # seconds in which a guest has to start the runner of a job that was taken
_QUIET = 30.0  # seconds without a word about attempts that fail: a guest boots, or its program is refused
_SHOWN = 20  # different failures at most that the console log shows
_IDLE_AGAIN = 60.0
_IDLE_CHECK = 30.0  # seconds for the look at the guest's processes
_FIRST = 4096  # bytes of output in which the runner's start is announced
_KEPT = 1 << 20  # bytes of a child's output
_WORKER = "Runner.Worker"  # the process of the runner that has a job

_FIND = """
find_runner() {
    for found in "$1" "${RUNYARD_WORK_DIR:-}/runner" "$HOME/actions-runner" "$HOME/runner" /opt/actions-runner \
        /Users/*/actions-runner /home/*/actions-runner; do
        if [ -n "$found" ] && [ -f "$found/run.sh" ]; then
            return 0
        fi
    done
    found=''
    return 1
}
"""
PREPARE = f"""{_FIND}
find_runner "$1" && exit 0
if [ -z "$2" ]; then
    echo "there is no Actions runner in this image: looked for run.sh in ${{1:-no given folder}}, ~/actions-runner," \
        "~/runner and /opt/actions-runner" >&2
    exit {NO_RUNNER}
fi
# A runner appears whole or not at all: the archive may be cut short, and this may be repeated.
fresh=$(mktemp -d "$HOME/.runner-XXXXXX") || exit 1
trap 'rm -rf "$fresh"' EXIT
cat >"$fresh/archive" && [ "$(($(wc -c <"$fresh/archive")))" -eq "$3" ] || {{
    echo "the archive $2 did not arrive whole" >&2
    exit 1
}}
mkdir "$fresh/runner" || exit 1
case $2 in
*.gz | *.tgz) gzip -t "$fresh/archive" && gzip -dc "$fresh/archive" | tar -xf - -C "$fresh/runner" ;;
*) tar -xf "$fresh/archive" -C "$fresh/runner" ;;
esac 2>"$fresh/problem" || {{
    echo "the archive $2 cannot be unpacked: $(grep . "$fresh/problem" | head -n 1)" >&2
    exit {BAD_ARCHIVE}
}}
if [ ! -f "$fresh/runner/run.sh" ]; then
    echo "the archive $2 holds no run.sh at its top" >&2
    exit {NO_RUNNER}
fi
find_runner "$1" && exit 0
if [ -e "$HOME/actions-runner" ]; then
    mv "$HOME/actions-runner" "$fresh/other" || exit 1
fi
mv "$fresh/runner" "$HOME/actions-runner"
"""
# The first line of the input is the JIT configuration, the others export variables. Users of the guest can read
# arguments: a runner that takes a file gets one. The directory is made by the first attempt only.
RUN = f"""{_FIND}
IFS= read -r jit || exit 1
[ -n "$jit" ] || exit 1
eval "$(cat)" || exit 1
exec </dev/null
find_runner "$1" || exit {NO_RUNNER}
cd "$found" || exit 1
mkdir .runyard-started 2>/dev/null || [ ! -d .runyard-started ] || exit {STARTED_BEFORE}
echo '{STARTS}'
if grep -q -e '--jitconfig-file' run.sh; then
    umask 077
    file=$(mktemp) || exit 1
    printf '%s\\n' "$jit" >"$file" || exit 1
    set -- --jitconfig-file "$file"
else
    set -- --jitconfig "$jit"
fi
unset jit
exec ./run.sh "$@" --disableupdate
"""
HAS_JOB = f"""
processes=$(ps -A -ww -o args=) && [ -n "$processes" ] || exit 1
printf '%s\\n' "$processes" | grep -q '[{_WORKER[0]}]{_WORKER[1:]}'
case $? in
0) exit {WORKER} ;;
1) exit {NO_WORKER} ;;
esac
exit 1
"""


class Polling:
    """From a guest that boots to a runner that has ended."""

    def __init__(self, host: Host, guest: Guest, show: "Callable[[bytes], None]") -> None:
        self._host, self._guest, self._show = host, guest, show
        self._order: dict[str, Any] = guest.order["polling"]
        self._begin: Callable[[float], None] = self._prepare
        self._end: Callable[[int, float], None] = self._prepared
        self._pid = 0  # of the child of this phase
        self._due = 0.0  # when the next one is started
        self._missing = 0.0  # since when no program can be started; 0: one was
        self._until = 0.0  # when this one is killed; 0: never
        self._answer_by = 0.0  # when a guest that has not answered is given up
        self._check = 0  # the child that looks whether the runner has a job
        self._check_due = 0.0  # 0: never
        self._check_until = 0.0  # when that child is killed
        self._reader = -1  # what the child of this phase says
        self._text = b""
        self._held = -1  # the input of the poller: closed, it ends
        self._active = False  # whether that was something since the last look
        self._job: dict[str, Any] = {}
        self._start_by = 0.0  # when a job whose runner has not started is given up
        self._output = -1  # of the runner
        self._first = b""  # the beginning of that
        self._failures: list[str] = []  # of attempts to prepare it, as the console log shows them
        self.reached = False  # whether the guest has answered

    def work(self, now: float) -> float:
        """Begins what is due; returns the seconds until something is."""
        self._answer_by = self._answer_by or now + self._order["boot"]
        if not self._pid and now >= self._due:
            self._attempt(now)
        if self._pid and self._until and now >= self._until:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            self._until = now + _ATTEMPT
        if self._active and self._begin == self._poll:  # the poller lives
            self._active, self._until = False, now + self._order["silence"]
        self._look_at_runner(now)
        due = [] if self._pid else [self._due]
        due += [self._until] if self._until else []
        due += [self._check_until if self._check else self._check_due] if self._check_due else []
        return max(0.0, min(due) - now) if due else _ATTEMPT

    def _attempt(self, now: float) -> None:
        try:
            self._begin(now)
            self._missing = 0.0
        except OSError as error:
            self._missing = self._missing or now
            if self._begin == self._poll and now - self._missing >= _MISSING:
                self._host.end(f"the host cannot poll for the guest: {error}")
            why = f"a program cannot be started: {error}"
            self._show_failure(why, now)
            self._until, self._due = 0.0, now + _AGAIN
            self._text = self._first = why.encode()
            self._end(1, now)

    def child_ended(self, pid: int, status: int, now: float) -> bool:
        """Whether this child was one of ours; goes on to what follows its end."""
        if pid == self._check:
            self._checked(status, now)
        elif pid == self._pid:
            self._pid, self._until, self._due = 0, 0.0, now + _AGAIN
            self._end(status, now)
        else:
            return False
        return True

    def shut_down(self) -> bool:
        """Ends a VM that has no job; returns whether that was all. A runner is asked by the guest's own means."""
        if self._job:
            return False
        self._host.end("asked to end while it had no job", 143)
        return True

    # ── prepare ─────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, now: float) -> None:
        archive: str = self._order["archive"]
        handle = os.open(archive or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        writer = self._hear()
        try:
            size = str(os.fstat(handle).st_size)
            words = (PREPARE, "sh", self._order["runner"], archive.rpartition("/")[2], size)
            self._pid = self._in_guest(*words, stdin=handle, stderr=writer)
        finally:
            os.close(handle)
            os.close(writer)
        self._until = now + (_UNPACK if archive else _ATTEMPT)

    def _prepared(self, status: int, now: float) -> None:
        output = self._received().decode(errors="replace").strip()[-500:]
        self.reached = self.reached or status in (0, BAD_ARCHIVE, NO_RUNNER)
        if status == 0:
            self._begin, self._end, self._due = self._poll, self._polled, now
        elif status in (BAD_ARCHIVE, NO_RUNNER):
            self._show(f"runyard: {output}\n".encode())
            self._host.end(output)
        elif now > self._answer_by:
            self._host.end(f"the guest did not answer within {self._order['boot']:g} s: {output}")
        else:
            self._show_failure(output or f"a command in it ended with {status}", now)

    def _show_failure(self, why: str, now: float) -> None:
        """Shows why the guest is not ready, each reason once, and none while that is usual.

        A program that refuses the guest is recognised by its output alone (`Guest.was_refused`).
        """
        quiet_until = self._answer_by - self._order["boot"] + _QUIET
        if now >= quiet_until and why not in self._failures and len(self._failures) < _SHOWN:
            self._failures.append(why)
            self._show(f"runyard: the guest is not ready yet: {why}\n".encode())

    # ── poll ────────────────────────────────────────────────────────────────────────────────────

    def _poll(self, now: float) -> None:
        self._active, self._until = False, now + self._order["silence"]
        reader, self._held = os.pipe()
        writer = self._hear()
        errors = self._shown()
        try:
            self._pid = self._guest.spawn(
                self._order["poller"], stdin=reader, stdout=writer, stderr=errors
            )
        finally:
            for handle in (reader, writer, errors):
                os.close(handle)

    def _polled(self, status: int, now: float) -> None:
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)
        try:
            found = json.loads(self._received())
        except ValueError:  # it was killed: poll again
            return
        if "jit" not in found:
            self._host.end(found["why"], int(found["end"]))
            return
        self._job = found
        wipe(self._guest.state)
        self._begin, self._end, self._due = self._run, self._ran, now
        self._start_by = now + _REACH

    # ── run ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self, now: float) -> None:
        idle = self._order["idle"]
        self._check_due = now + idle if idle else 0.0
        values = {**dict(self._order["env"]), **self._job["env"]}
        text = f"{self._job['jit']}\n{exports(values)}".encode(errors="surrogateescape")
        self._first = b""
        reader, writer = os.pipe()
        self._output, output = os.pipe()
        self._host.listen(self._output, self.show_runner)
        try:
            words = (RUN, "sh", self._order["runner"])
            self._pid = self._in_guest(*words, stdin=reader, stdout=output, stderr=output)
        finally:
            os.close(reader)
            os.close(output)
            # More than a pipe holds: a thread waits until it is read.
            _thread.start_new_thread(_feed, (writer, text))

    def show_runner(self, data: bytes) -> None:
        """Shows the runner's output and keeps its beginning."""
        if not data:
            self._output = -1  # the shim has closed it
        self._first += data[: _FIRST - len(self._first)]
        self._show(data)

    def _ran(self, status: int, now: float) -> None:
        self._finish_output()
        started = STARTS.encode() in self._first
        if not started and status != STARTED_BEFORE:
            if now < self._start_by:
                return  # nothing of it ran in the guest: `work` tries again
            why = self._first.decode(errors="replace").strip()[-500:]
            self._host.end(f"the guest did not start the runner within {_REACH:g} s: {why}")
        elif status < 0 or not started:
            how = f"signal {-status}" if status < 0 else "the runner had been started before"
            self._host.end(f"the session with the runner was lost: {how}")
        else:
            why = "completed" if status == 0 else f"the runner exited with {status}"
            self._host.end(why, status)

    def _finish_output(self) -> None:
        """Shows the rest of the output of a runner that has ended."""
        if self._output < 0:
            return
        handle = self._output
        self._host.forget(handle)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(handle, 65536):
                self.show_runner(data)
        self._output = -1
        os.close(handle)

    def _look_at_runner(self, now: float) -> None:
        """Looks whether the runner has a job when that is due; ends a look that takes too long."""
        if self._check and now >= self._check_until:
            self._check_until = now + _IDLE_CHECK
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._check, signal.SIGKILL)
        if self._check_due and now >= self._check_due and not self._check:
            self._check_due = now + _IDLE_AGAIN  # of a look that cannot be begun
            with contextlib.suppress(OSError):
                self._check, self._check_until = self._in_guest(HAS_JOB), now + _IDLE_CHECK

    def _checked(self, status: int, now: float) -> None:
        self._check, self._check_due = 0, now + _IDLE_AGAIN
        if status == NO_WORKER:
            self._host.end(f"the runner got no job within {self._order['idle']:g} s", 0)
        elif status == WORKER:
            self._check_due = 0.0

    # ── children ────────────────────────────────────────────────────────────────────────────────

    def _in_guest(
        self,
        *words: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
    ) -> int:
        argv = [*self._order["exec"], "/bin/sh", "-c", *words]
        return self._guest.spawn(argv, stdin=stdin, stdout=stdout, stderr=stderr)

    def _shown(self) -> int:
        """The writing end of a pipe whose content goes to the console log; the caller closes it."""
        reader, writer = os.pipe()
        self._host.listen(reader, self._show)
        return writer

    def _hear(self) -> int:
        """The same for a pipe whose content `_received` returns."""
        self._text = b""
        self._reader, writer = os.pipe()
        self._host.listen(self._reader, self._collect)
        return writer

    def _collect(self, data: bytes) -> None:
        self._active = True
        self._text = (self._text + data)[-_KEPT:]
        if not data:
            self._reader = -1  # the shim has closed it

    def _received(self) -> bytes:
        """All the output of the child of this phase."""
        if self._reader >= 0:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._reader, 65536):
                    self._collect(data)
            self._host.forget(self._reader)
            os.close(self._reader)
            self._reader = -1
        text, self._text = self._text, b""
        return text


def exports(values: dict[str, str]) -> str:
    """Commands for a shell that export these variables, whatever their values hold."""
    quoted = {name: value.replace("'", "'\\''") for name, value in values.items()}
    return "".join(
        f"export {name}='{value}'\n"
        for name, value in quoted.items()
        if name.isascii() and name.isidentifier()
    )


def _feed(writer: int, text: bytes) -> None:
    """Writes all of it and closes the pipe; a reader that has gone ends that."""
    with contextlib.suppress(OSError), os.fdopen(writer, "wb") as file:
        file.write(text)
