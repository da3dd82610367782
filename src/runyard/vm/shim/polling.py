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

Invariants:
- No job is taken before a runner was found.
- The token's file is removed before the job starts, and at the end in any case. The JIT configuration is on no disk
  and in no argument of a process of the host.
- Nothing here needs the agent or, once the job runs, the server.

Imported by the shim, so it imports nothing but the standard library.
"""

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

NO_RUNNER = 78
_AGAIN = 1.0  # seconds between two attempts to reach a guest, or after a poller that died
_ATTEMPT = 60.0  # seconds for one attempt
_UNPACK = 1200.0  # the same, if it has to copy an archive
_IDLE_AGAIN = 60.0
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
mkdir -p "$HOME/actions-runner" && cd "$HOME/actions-runner" || exit 1
case $2 in
*.gz | *.tgz) gzip -dc | tar -xf - ;;
*) tar -xf - ;;
esac || exit 1
find_runner "$1" && exit 0
echo "the archive $2 holds no run.sh at its top" >&2
exit {NO_RUNNER}
"""
# The first line of the input is the JIT configuration, the others are variables. Users of the guest can read
# arguments: a runner that takes a file gets one.
RUN = f"""{_FIND}
IFS= read -r jit || exit 1
while IFS= read -r line; do
    case $line in ?*=*) export "$line" ;; esac
done
exec </dev/null
find_runner "$1" || exit {NO_RUNNER}
cd "$found" || exit 1
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
_HAS_JOB = f"ps -A -o args= | grep -q '[{_WORKER[0]}]{_WORKER[1:]}'"


class Polling:
    """From a guest that boots to a runner that has ended."""

    def __init__(self, host: Host, guest: Guest, show: "Callable[[bytes], None]") -> None:
        self._host, self._guest, self._show = host, guest, show
        self._order: dict[str, Any] = guest.order["polling"]
        self._begin: Callable[[float], None] = self._prepare
        self._end: Callable[[int, float], None] = self._prepared
        self._pid = 0  # of the child of this phase
        self._due = 0.0  # when the next one is started
        self._until = 0.0  # when this one is killed; 0: never
        self._answer_by = 0.0  # when a guest that has not answered is given up
        self._check = 0  # the child that looks whether the runner has a job
        self._check_due = 0.0  # 0: never
        self._reader = -1  # what the child of this phase says
        self._text = b""
        self._held = -1  # the input of the poller: closed, it ends
        self._job: dict[str, Any] = {}

    def work(self, now: float) -> float:
        """Begins what is due; returns the seconds until something is. Raises OSError."""
        self._answer_by = self._answer_by or now + self._order["boot"]
        if not self._pid and now >= self._due:
            self._begin(now)
        if self._pid and self._until and now >= self._until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            self._until = now + _ATTEMPT
        if self._check_due and now >= self._check_due and not self._check:
            self._check = self._in_guest(_HAS_JOB)
        due = [] if self._pid else [self._due]
        due += [self._until] if self._until else []
        due += [self._check_due] if self._check_due and not self._check else []
        return max(0.0, min(due) - now) if due else _ATTEMPT

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
            words = (PREPARE, "sh", self._order["runner"], archive.rpartition("/")[2])
            self._pid = self._in_guest(*words, stdin=handle, stderr=writer)
        finally:
            os.close(handle)
            os.close(writer)
        self._until = now + (_UNPACK if archive else _ATTEMPT)

    def _prepared(self, status: int, now: float) -> None:
        output = self._received().decode(errors="replace").strip()[-500:]
        if status == 0:
            self._begin, self._end, self._due = self._poll, self._polled, now
        elif status == NO_RUNNER:
            self._host.end(output)
        elif now > self._answer_by:
            self._host.end(f"the guest did not answer within {self._order['boot']:g} s: {output}")

    # ── poll ────────────────────────────────────────────────────────────────────────────────────

    def _poll(self, now: float) -> None:
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
        os.close(self._held)
        try:
            found = json.loads(self._received())
        except ValueError:  # it was killed, or there is no token: poll again
            return
        if "jit" not in found:
            self._host.end(found["why"], int(found["end"]))
            return
        self._job = found
        wipe(self._guest.state)
        self._begin, self._end, self._due = self._run, self._ran, now

    # ── run ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self, now: float) -> None:
        idle = self._order["idle"]
        self._check_due = now + idle if idle else 0.0
        values = {**dict(self._order["env"]), **self._job["env"]}
        lines = [self._job.pop("jit"), *(f"{name}={value}" for name, value in values.items())]
        text = "".join(f"{line}\n" for line in lines if "\n" not in line).encode()
        reader, writer = os.pipe()
        output = self._shown()
        try:
            os.set_blocking(writer, False)
            if os.write(writer, text) != len(text):
                raise OSError("the JIT configuration and the environment are too large for a pipe")
            words = (RUN, "sh", self._order["runner"])
            self._pid = self._in_guest(*words, stdin=reader, stdout=output, stderr=output)
        finally:
            for handle in (reader, writer, output):
                os.close(handle)

    def _ran(self, status: int, now: float) -> None:
        if status < 0:
            self._host.end(f"the session with the runner was lost: signal {-status}")
        else:
            why = "completed" if status == 0 else f"the runner exited with {status}"
            self._host.end(why, status)

    def _checked(self, status: int, now: float) -> None:
        self._check, self._check_due = 0, now + _IDLE_AGAIN
        if status == 1:  # it ran, and found no worker
            self._host.end(f"the runner got no job within {self._order['idle']:g} s", 0)
        elif status == 0:
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
