"""A runner program for the practice GitHub: connects, runs its one job, reports how that ended, and exits.

It stands where GitHub's runner would be and needs nothing but a Python: it imports the standard library only,
no part of runyard imports it, and it is started as `python3 -I -S practice_runner.py --jitconfig-file PATH`
(by `run.sh`, which explains why a file). The file is removed once it was read.

    listener    connects, waits for the job, then for its cancellation        (thread)
    reader      takes what the job writes                                     (thread)
    sender      carries that to GitHub, in order, from where it has got to    (thread)
    main        starts and ends processes, reports; hears of all others, and of signals, through one queue

Exit codes: 0 the job's end was reported, whatever it was, or there was none to run; 1 GitHub refused this runner
or had given it up; 2 wrong usage; 143 it was told to end while a job ran, and said so.

Invariants:
- GitHub may be away at any time for long: everything is tried again, and the job goes on meanwhile. What the
  job writes never blocks it: the log is bounded, the rest is read and dropped.
- The job sees a clean environment: nothing of this program's own but PATH and the language. With
  RUNYARD_JOB_USER (`uid:gid`, when we are root) it runs as that user, without groups and without a way to more
  rights. Our memory, with the session's key in it, is closed to others of our own user too; root sees all.
- However the job ends, its whole process group has ended before its end is reported.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import http.client
import json
import math
import os
import platform
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

FACE = "/practice/runner/session"
LONG = 24 * 3600.0  # how long a report is tried while GitHub is away
SHORT = 20.0  # the same when we were told to end
CONFLICT = 240.0  # how long another start of this runner may be connected before we give up
GRACE = 5.0  # between asking a job to end and ending it
LINGER = 2.0  # for what a job left behind to let go of its output
SPACING = 0.2  # between two parts of the log
HOOK_LIMIT = 300.0
RESULTS = {"success": "Succeeded", "failure": "Failed", "cancelled": "Canceled"}
DROPPED = b"\n[the log is full; the rest was dropped]\n"
ARCHITECTURES = {"x86_64": "X64", "amd64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}
NO_NEW_PRIVS = 38  # prctl: what this thread starts cannot gain rights, not even by a setuid file
DUMPABLE = 4  # prctl: whether others of our user may look into our memory


class Refused(Exception):
    """GitHub does not want this runner, or no longer."""


def say(text: str) -> None:
    """Tell whoever reads our output; nobody need."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}: {text}\n")
        sys.stdout.flush()


class Link:
    """Speaks to GitHub's side. Each request has a connection of its own: none can go stale."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise Refused(f"the JIT configuration names no address that we can use: {url!r}")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self.bearer = ""

    def once(
        self, method: str, path: str, body: bytes = b"", *, timeout: float = 15.0
    ) -> tuple[int, dict[str, Any]]:
        """One request; raises OSError or HTTPException when there was no whole answer."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        headers = {
            "authorization": f"Bearer {self.bearer}",
            "content-type": "application/json",
            "user-agent": "practice-runner",
            "connection": "close",
        }
        try:
            connection.request(method, self._base + path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read(1 << 20)
        finally:
            connection.close()
        try:
            value = json.loads(content or b"{}")
        except ValueError:
            value = {}
        return answer.status, value if isinstance(value, dict) else {}

    def tried(
        self, method: str, path: str, body: bytes = b"", *, timeout: float = 15.0
    ) -> tuple[int, dict[str, Any]]:
        """As `once`; status 0 means that it should be tried again."""
        try:
            status, value = self.once(method, path, body, timeout=timeout)
        except (OSError, http.client.HTTPException):
            return 0, {}
        return (0, {}) if status >= 500 or status in {408, 429} else (status, value)


class Pace:
    """How long to wait before the next try: longer each time, and not in step with others."""

    def __init__(self, *, first: float = 0.1, last: float = 10.0) -> None:
        self._first, self._last = first, last
        self._next = first

    def again(self) -> float:
        """One more try failed."""
        delay = self._next * (0.5 + random.random())
        self._next = min(self._next * 2, self._last)
        return delay

    def calm(self) -> None:
        """One succeeded."""
        self._next = self._first


Events = queue.SimpleQueue  # of tuples whose first item says what happened


class Listener(threading.Thread):
    """Connects and waits: for the job, then for its cancellation."""

    def __init__(self, link: Link, jit: str, events: Events[Any]) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._jit = jit
        self._events = events
        self._instance = os.urandom(16).hex()
        self._wait = 25

    def run(self) -> None:
        """Tell of the job, of its cancellation, or of why there is nothing more to hear."""
        try:
            self._connect()
            say("Listening for Jobs")
            job = self._poll("job")
            self._events.put(("job", job))
            self._poll("cancelled")
            self._events.put(("cancelled",))
        except Refused as refused:
            self._events.put(("gone", str(refused)))
        except EOFError:
            self._events.put(("over",))

    def _connect(self) -> None:
        self._link.bearer = self._jit
        body = json.dumps({"instance": self._instance}).encode()
        pace = Pace()
        since = time.monotonic()
        while True:
            status, value = self._link.tried("POST", FACE, body)
            if status == 201:
                self._link.bearer = str(value["session"])
                self._wait = max(1, int(value.get("poll_seconds", 25)))
                return
            conflict = status == 409 and time.monotonic() - since < CONFLICT
            if status != 0 and not conflict:
                raise Refused(f"{status} {value.get('error', '')}: {value.get('reason', '')}")
            time.sleep(pace.again())

    def _poll(self, what: str) -> dict[str, Any]:
        """Ask until there is an answer; EOFError when this session is over."""
        pace = Pace()
        path = f"{FACE}/{what}?wait={self._wait}"
        while True:
            status, value = self._link.tried("GET", path, timeout=self._wait + 15.0)
            if status == 200:
                return value
            if status == 410:
                raise EOFError
            if status not in {0, 204}:
                raise Refused(f"{status} {value.get('error', '')}")
            if status == 204:
                pace.calm()
            else:
                time.sleep(pace.again())


class Log:
    """What the job has written, up to a limit, and how much of it GitHub has."""

    def __init__(self, *, limit: int, sent: int) -> None:
        self._limit = max(0, limit - len(DROPPED) - sent)
        self._base = sent  # what GitHub had before this program began
        self._held = bytearray()
        self._full = False
        self._closed = False
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        """Keep what fits."""
        with self._changed:
            if self._full or self._closed:
                return
            room = self._limit - len(self._held)
            self._held += data[:room]
            if len(data) > room:
                self._full = True
                self._held += DROPPED
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self, offset: int, size: int) -> bytes | None:
        """The next part after an offset, as soon as there is one; None at the end."""
        with self._changed:
            start = offset - self._base
            while len(self._held) <= start:
                if self._closed:
                    return None
                self._changed.wait()
            return bytes(self._held[start : start + size])


class Sender(threading.Thread):
    """Carries the log to GitHub; its event says that all has arrived or that nobody wants it."""

    def __init__(
        self, link: Link, log: Log, events: Events[Any], *, offset: int, chunk: int
    ) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._log = log
        self._events = events
        self._offset = offset
        self._chunk = chunk

    def run(self) -> None:
        """Send part by part; GitHub says how far it has got."""
        pace = Pace()
        while True:
            part = self._log.next(self._offset, self._chunk)
            if part is None:
                break
            path = f"{FACE}/log?offset={self._offset}"
            status, value = self._link.tried("POST", path, part)
            if status == 200 or (status == 409 and "size" in value):
                self._offset = int(value["size"])
                pace.calm()
                time.sleep(SPACING if len(part) < self._chunk else 0)
            elif status == 0:
                time.sleep(pace.again())
            else:
                break
        self._events.put(("sent",))


class Program:
    """A process group: started, heard of, ended."""

    def __init__(self, argv: list[str], events: Events[Any], log: Log, **options: Any) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
            **options,
        )
        self._events = events
        self._log = log
        self.silent = False
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._reap, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._process.stdout.fileno(), 65536):
                self._log.write(data)
        self._events.put(("silent", self))

    def _reap(self) -> None:
        self._events.put(("exit", self, self._process.wait()))

    def signal(self, number: int) -> None:
        """Signal the whole group, which may outlive its leader.

        A process of the leader's number that exists after the leader was reaped is somebody else's.
        """
        pid = self._process.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 0)
                    return
            os.killpg(pid, number)


class Runner:
    """The one life of this program."""

    def __init__(
        self, link: Link, jit: str, identity: dict[str, Any], user: tuple[int, int] | None
    ) -> None:
        self._link = link
        self._jit = jit
        self._identity = identity
        self._user = user
        self.events: Events[Any] = queue.SimpleQueue()
        self._told_to_end = False
        self._cancelled = False
        self._gone = ""
        self._sent = False

    def live(self) -> int:
        """Connect, run the job if one comes, report; the exit code."""
        Listener(self._link, self._jit, self.events).start()
        while True:
            event = self.events.get()
            if event[0] == "job":
                return self._run(event[1])
            if event[0] == "over":
                say("The registration of this runner is gone; there is no job to run")
                return 0
            if event[0] == "gone":
                say(f"GitHub refused this runner: {event[1]}")
                return 1
            if event[0] == "stop":
                say("Told to end")
                return self._leave()

    def _leave(self) -> int:
        """End without having seen a job. If one was given to us unseen, GitHub fails it on this word."""
        deadline = time.monotonic() + SHORT
        pace = Pace()
        while time.monotonic() < deadline:
            status, _ = self._link.tried("DELETE", FACE, timeout=5.0)
            if status != 0:
                break
            time.sleep(pace.again())
        return 0

    def _run(self, job: dict[str, Any]) -> int:
        say(f"Running job: {job['name']}")
        offset, chunk = int(job["log_size"]), int(job["log_chunk"])
        log = Log(limit=int(job["log_limit"]), sent=offset)
        Sender(self._link, log, self.events, offset=offset, chunk=chunk).start()
        succeeded = False
        try:
            succeeded = self._hook(log) and self._script(job, log)
        except OSError as error:
            log.write(f"the job could not be started: {error}\n".encode())
        log.close()
        if self._gone:
            say(f"GitHub has given this runner up: {self._gone}")
            return 1
        conclusion = "success" if succeeded else "failure"
        if self._cancelled and not self._told_to_end:
            conclusion = "cancelled"
        return self._report(conclusion, str(job["name"]))

    def _hear(self, until: float = math.inf) -> tuple[Any, ...]:
        """The next event, remembered where it must be; ("time",) when there was none by then."""
        timeout = None if until == math.inf else max(0.0, until - time.monotonic())
        try:
            event: tuple[Any, ...] = self.events.get(timeout=timeout)
        except queue.Empty:
            return ("time",)
        if event[0] == "stop":
            self._told_to_end = True
        elif event[0] == "cancelled":
            self._cancelled = True
        elif event[0] == "gone":
            self._gone = event[1]
        elif event[0] == "over":
            self._gone = "the session is over"
        elif event[0] == "sent":
            self._sent = True
        elif event[0] == "silent":
            event[1].silent = True
        return event

    # Processes

    def _hook(self, log: Log) -> bool:
        path = os.environ.get("ACTIONS_RUNNER_HOOK_JOB_STARTED", "")
        if not path:
            return True
        argv = [path] if os.access(path, os.X_OK) else ["/bin/sh", path]
        code = self._attend(Program(argv, self.events, log), limit=HOOK_LIMIT)
        if code != 0:
            log.write(f"the hook of a started job failed: {code}\n".encode())
        return code == 0

    def _script(self, job: dict[str, Any], log: Log) -> bool:
        if self._unwanted():
            return False
        work = make_work(self._identity, self._user)
        try:
            script = work / "_temp" / "script.sh"
            script.write_bytes(str(job["script"]).encode("utf-8", "surrogateescape"))
            options: dict[str, Any] = {}
            if self._user is not None:
                options = {"user": self._user[0], "group": self._user[1], "extra_groups": []}
                restrict(NO_NEW_PRIVS, 1)
            program = Program(
                ["/bin/sh", "-e", str(script)],
                self.events,
                log,
                cwd=work / "workspace",
                env=environment(job, work, self._identity),
                **options,
            )
            return self._attend(program) == 0
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _unwanted(self) -> bool:
        return self._told_to_end or self._cancelled or bool(self._gone)

    def _attend(self, program: Program, *, limit: float = math.inf) -> int:
        """Wait for a program's end, or bring it about; nothing of its group is left afterwards."""
        due = time.monotonic() + limit
        means = [signal.SIGTERM, signal.SIGKILL]
        while (event := self._hear(due))[:2] != ("exit", program):
            if self._unwanted() and len(means) == 2:
                due = time.monotonic()
            if means and time.monotonic() >= due:
                program.signal(means.pop(0))
                due = time.monotonic() + GRACE if means else math.inf
        self._let_go(program)
        program.signal(signal.SIGKILL)
        self._let_go(program)
        return int(event[2])

    def _let_go(self, program: Program) -> None:
        end = time.monotonic() + LINGER
        while not program.silent and time.monotonic() < end:
            self._hear(end)

    # The end

    def _report(self, conclusion: str, name: str) -> int:
        """Say how it ended, once the log has arrived; GitHub may be away."""
        since = time.monotonic()
        # Being told to end, the end is worth more than the rest of the log.
        while not self._sent and time.monotonic() - since < (GRACE if self._told_to_end else LONG):
            self._hear(time.monotonic() + 1.0)
        body = json.dumps({"conclusion": conclusion}).encode()
        pace = Pace()
        status = 0
        while time.monotonic() - since < (SHORT if self._told_to_end else LONG):
            status, _ = self._link.tried("PUT", f"{FACE}/conclusion", body)
            if status != 0:
                break
            self._hear(time.monotonic() + pace.again())
        if status != 200:
            say(f"Job {name} could not be reported: {status or 'GitHub is away'}")
            return 1
        say(f"Job {name} completed with result: {RESULTS[conclusion]}")
        return 143 if self._told_to_end else 0


def job_user() -> tuple[int, int] | None:
    """Whom the job runs as, if that is somebody else; ValueError if that makes no sense."""
    text = os.environ.get("RUNYARD_JOB_USER", "")
    if not text or os.geteuid() != 0:
        return None
    uid, _, gid = text.partition(":")
    return int(uid), int(gid)


def restrict(option: int, value: int) -> None:
    """Ask the kernel for less; only Linux can be asked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def make_work(identity: dict[str, Any], user: tuple[int, int] | None) -> Path:
    """A fresh directory for the job, and its own. RUNYARD_JOB_DIR says where, else it is beside us."""
    folder = Path(str(identity.get("workFolder", ""))).name or "_work"
    base = Path(os.environ.get("RUNYARD_JOB_DIR") or Path.cwd() / folder)
    base.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="job-", dir=base))
    for path in (work, work / "workspace", work / "_temp"):
        path.mkdir(exist_ok=True)
        if user is not None:
            os.chown(path, *user)
    return work


def environment(job: dict[str, Any], work: Path, identity: dict[str, Any]) -> dict[str, str]:
    """All that the job sees of the world."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ
    }
    machine = platform.machine().lower()
    ours = {
        "CI": "true",
        "HOME": work,
        "TMPDIR": work / "_temp",
        "SHELL": "/bin/sh",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_JOB": job["name"],
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_REPOSITORY": job["repository"],
        "GITHUB_REPOSITORY_OWNER": str(job["repository"]).partition("/")[0],
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_RUN_ID": job["run_id"],
        "GITHUB_SERVER_URL": identity["serverUrl"],
        "GITHUB_SHA": f"{int(job['run_id']):040x}",
        "GITHUB_WORKFLOW": "practice",
        "GITHUB_WORKSPACE": work / "workspace",
        "RUNNER_ARCH": ARCHITECTURES.get(machine, machine.upper()),
        "RUNNER_NAME": identity["agentName"],
        "RUNNER_OS": "macOS" if sys.platform == "darwin" else "Linux",
        "RUNNER_TEMP": work / "_temp",
        "RUNNER_WORKSPACE": work,
    }
    kept.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    return {name: str(value) for name, value in {**kept, **ours, **job["env"]}.items()}


def read_jit(argv: list[str]) -> str:
    """The JIT configuration from the command line, or from a file that is then removed."""
    jit = ""
    rest = [each for each in argv if each != "--disableupdate"]
    if len(rest) == 2 and rest[0] == "--jitconfig":
        jit = rest[1]
    elif len(rest) == 2 and rest[0] == "--jitconfig-file":
        jit = Path(rest[1]).read_text(encoding="ascii").strip()
        Path(rest[1]).unlink()
    return jit


def identity_of(jit: str) -> dict[str, Any]:
    """Who the JIT configuration says we are."""
    try:
        files = json.loads(base64.b64decode(jit, validate=True))
        identity = json.loads(base64.b64decode(files[".runner"], validate=True))
        if not isinstance(identity["serverUrl"], str) or not isinstance(identity["agentName"], str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise Refused("this is no JIT configuration of a practice GitHub") from None
    return dict(identity)


def main(argv: list[str]) -> int:
    """From the command line to the exit code."""
    try:
        jit = read_jit(argv)
    except (OSError, ValueError) as error:
        say(f"the JIT configuration cannot be read: {error}")
        return 2
    if not jit:
        say("usage: practice_runner.py --jitconfig JIT | --jitconfig-file PATH [--disableupdate]")
        return 2
    try:
        identity = identity_of(jit)
        runner = Runner(Link(identity["serverUrl"]), jit, identity, job_user())
    except (Refused, ValueError) as error:
        say(f"this runner cannot be started: {error}")
        return 2
    restrict(DUMPABLE, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A queue of this kind may be put into while its reader is interrupted; a lock could not be taken.
        signal.signal(number, lambda *_: runner.events.put(("stop",)))
    return runner.live()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that wait for a GitHub that is away are not waited for
