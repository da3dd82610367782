"""The lifecycle of this program: it connects, runs the job if one comes, reports, and ends.

All events, from any thread or signal, arrive through one queue and are handled one after the other. However the job
ends, its whole process group has ended before its end is reported.
"""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import signal
import time
from typing import Any

from .client import BASE_PATH, Backoff, Client
from .events import Events, print_line
from .listener import Listener
from .log import Log, Sender
from .program import NO_NEW_PRIVS, Program, restrict
from .workspace import environment, make_work

LONG = 24 * 3600.0  # seconds for which a report is retried while GitHub is unreachable
SHORT = 20.0  # the same after TERM
GRACE = 5.0  # seconds between asking a job to end and killing it
LINGER = 2.0  # seconds for processes that a job left behind to close its output
HOOK_LIMIT = 300.0
RESULTS = {"success": "Succeeded", "failure": "Failed", "cancelled": "Canceled"}


class Runner:
    """Runs this program from its start to its exit code."""

    def __init__(
        self, client: Client, jit: str, identity: dict[str, Any], user: tuple[int, int] | None
    ) -> None:
        self._client = client
        self._jit = jit
        self._identity = identity
        self._user = user
        self.events: Events[Any] = queue.SimpleQueue()
        self._terminated = False
        self._cancelled = False
        self._gone = ""
        self._sent = False

    def run(self) -> int:
        """Connects, runs the job if one comes, reports; returns the exit code."""
        Listener(self._client, self._jit, self.events).start()
        while True:
            event = self.events.get()
            if event[0] == "job":
                return self._run(event[1])
            if event[0] == "over":
                print_line("This runner's registration was removed; there is no job to run")
                return 0
            if event[0] == "gone":
                print_line(f"GitHub refused this runner: {event[1]}")
                return 1
            if event[0] == "stop":
                print_line("Received a signal to end")
                return self._leave()

    def _leave(self) -> int:
        """Ends without having received a job. If one was assigned meanwhile, GitHub fails it on this request."""
        deadline = time.monotonic() + SHORT
        pace = Backoff()
        while time.monotonic() < deadline:
            status, _ = self._client.request("DELETE", BASE_PATH, timeout=5.0)
            if status != 0:
                break
            time.sleep(pace.failed())
        return 0

    def _run(self, job: dict[str, Any]) -> int:
        print_line(f"Running job: {job['name']}")
        offset, chunk = int(job["log_size"]), int(job["log_chunk"])
        log = Log(limit=int(job["log_limit"]), sent=offset)
        Sender(self._client, log, self.events, offset=offset, chunk=chunk).start()
        succeeded = False
        try:
            succeeded = self._hook(log) and self._script(job, log)
        except (OSError, ValueError) as error:  # ValueError: arguments that no process can have
            log.write(f"the job could not be started: {error}\n".encode("utf-8", "replace"))
        log.close()
        if self._gone:
            print_line(f"GitHub has given this runner up: {self._gone}")
            return 1
        conclusion = "success" if succeeded else "failure"
        if self._cancelled and not self._terminated:
            conclusion = "cancelled"
        return self._report(conclusion, str(job["name"]))

    def _next_event(self, until: float = math.inf) -> tuple[Any, ...]:
        """The next event, recorded where necessary; ("time",) if there was none by then."""
        timeout = None if until == math.inf else max(0.0, until - time.monotonic())
        try:
            event: tuple[Any, ...] = self.events.get(timeout=timeout)
        except queue.Empty:
            return ("time",)
        if event[0] == "stop":
            self._terminated = True
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
        code = self._wait_for(Program(argv, self.events, log), limit=HOOK_LIMIT)
        if code != 0:
            log.write(f"the hook of a started job failed: {code}\n".encode())
        return code == 0

    def _script(self, job: dict[str, Any], log: Log) -> bool:
        if self._stop_requested():
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
            return self._wait_for(program) == 0
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _stop_requested(self) -> bool:
        return self._terminated or self._cancelled or bool(self._gone)

    def _wait_for(self, program: Program, *, limit: float = math.inf) -> int:
        """Waits for a program's end, or ends it; nothing of its group is left afterwards."""
        due = time.monotonic() + limit
        signals = [signal.SIGTERM, signal.SIGKILL]
        while (event := self._next_event(due))[:2] != ("exit", program):
            if self._stop_requested() and len(signals) == 2:
                due = time.monotonic()
            if signals and time.monotonic() >= due:
                program.signal(signals.pop(0))
                due = time.monotonic() + GRACE if signals else math.inf
        self._close_output(program)
        program.signal(signal.SIGKILL)
        self._close_output(program)
        return int(event[2])

    def _close_output(self, program: Program) -> None:
        end = time.monotonic() + LINGER
        while not program.silent and time.monotonic() < end:
            self._next_event(end)

    # The end

    def _report(self, conclusion: str, name: str) -> int:
        """Reports how the job ended, once the log has arrived; retries while GitHub is unreachable."""
        since = time.monotonic()
        # After TERM, the report is more important than the rest of the log.
        while not self._sent and time.monotonic() - since < (GRACE if self._terminated else LONG):
            self._next_event(time.monotonic() + 1.0)
        body = json.dumps({"conclusion": conclusion}).encode()
        pace = Backoff()
        status = 0
        while time.monotonic() - since < (SHORT if self._terminated else LONG):
            status, _ = self._client.request("PUT", f"{BASE_PATH}/conclusion", body)
            if status != 0:
                break
            self._next_event(time.monotonic() + pace.failed())
        if status != 200:
            print_line(f"Job {name} could not be reported: {status or 'GitHub is unreachable'}")
            return 1
        print_line(f"Job {name} completed with result: {RESULTS[conclusion]}")
        return 143 if self._terminated else 0
