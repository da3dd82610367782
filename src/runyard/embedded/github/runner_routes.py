"""The routes for runner programs, under `/practice/runner/`.

    POST   …/session             bearer: the JIT configuration   → 201 a session
    GET    …/session/job         bearer: the session             → 200 the one job, 204 none yet
    GET    …/session/cancelled                                   → 200 stop it, 204 continue
    POST   …/session/log?offset=                                 → 200 the log's size
    PUT    …/session/conclusion                                  → 200 accepted, also when repeated
    DELETE …/session                                             → 204 the program ends

The two reads wait (`wait=` seconds, bounded) until there is an answer, and repeat it when the request is repeated: an
answer counts as delivered only when the next request shows it. 410 means that the session is over for good:
its registration was deleted, or its job was given up.

Invariants:
- A session's key proves the JIT configuration and the start of the program that it was made from, and is not
  stored: it survives a restart of this GitHub, and a program that was given up as lost may reconnect with it.
- A program without contact for `silent_after` seconds, and without a waiting request, has vanished.
"""

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.bodies import number
from runyard.embedded.github.logs import LogFull, LogGap, Logs
from runyard.embedded.github.model import Assignment, Refused, Runner
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.state import PracticeState
from runyard.http.messages import Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.wire.problem_codes import ProblemCode

SESSION = "/practice/runner/session"


class Opening(msgspec.Struct, frozen=True):
    """The body that opens a session: a random text of this start of the program."""

    instance: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{8,64}$(?!\n)")]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An open session; its key authenticates all further requests."""

    session: str
    runner_id: int
    runner_name: str
    poll_seconds: float


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, how much of its log has arrived and how much is accepted."""

    id: int
    run_id: int
    name: str
    repository: str
    script: str
    env: dict[str, str]
    log_size: int
    log_limit: int
    log_chunk: int


class LogSize(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a log has arrived."""

    size: int


class Conclusion(msgspec.Struct, frozen=True):
    """How a job ended, as its runner reports it."""

    conclusion: Literal["success", "failure", "cancelled"]


class Concluded(msgspec.Struct, frozen=True):
    """How it ended, as GitHub records it: a cancelled job stays cancelled."""

    conclusion: str


class _Contact(msgspec.Struct, eq=False):
    last_contact: float
    waiting: int = 0


class RunnerRoutes:
    """Serves runner sessions over HTTP, and detects programs that lost contact."""

    def __init__(
        self, *, state: PracticeState, logs: Logs, clock: Clock, settings: PracticeSettings
    ) -> None:
        self._state = state
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._contacts: dict[int, _Contact] = {}
        self._next_check = math.inf
        self._reported: dict[int, int] = {}  # runner id to job id, for runners that lost our answer

    def restore(self, sessions: Iterable[RunnerSession]) -> None:
        """After a restart: takes the sessions that are assumed to run, and those that have reported."""
        for session in sessions:
            self._touch_contact(session.runner_id)
        for job in self._state.jobs.values():
            if job.reported_by and job.runner_id is not None:
                self._reported[job.runner_id] = job.id

    def routes(self) -> tuple[Route, ...]:
        """The table of routes for runner programs; each request carries its own credential."""
        over = {410: ("The session is over for good.", Problem)}
        known = {401: ("No such session: connect again.", Problem), **over}
        wait = (("wait", "Seconds to wait for an answer, bounded."),)
        return (
            Route(
                "POST",
                SESSION,
                self._open,
                "Connect with a JIT configuration.",
                body=Opening,
                answers={
                    201: ("Connected.", Opened),
                    401: ("No registration has it.", Problem),
                    403: ("Its runner already had its job.", Problem),
                    409: ("Another start of this runner is connected.", Problem),
                },
            ),
            Route(
                "DELETE",
                SESSION,
                self._leave,
                "End the session; its job fails.",
                answers={204: ("Signed off.", None), 401: known[401]},
            ),
            Route(
                "GET",
                f"{SESSION}/job",
                self._job,
                "Wait for the one job.",
                answers={200: ("The job.", JobOrder), 204: ("Not yet.", None), **known},
                query=wait,
            ),
            Route(
                "GET",
                f"{SESSION}/cancelled",
                self._cancelled,
                "Wait for a cancellation.",
                answers={200: ("Stop the job.", None), 204: ("Continue.", None), **known},
                query=wait,
            ),
            Route(
                "POST",
                f"{SESSION}/log",
                self._log,
                "Append to the log.",
                answers={
                    200: ("The log's size now.", LogSize),
                    409: ("Bytes are missing: continue at this size.", LogSize),
                    413: ("The chunk is too long, or the log is full.", Problem),
                    **known,
                },
                query=(("offset", "Where this chunk starts, in bytes."),),
            ),
            Route(
                "PUT",
                f"{SESSION}/conclusion",
                self._conclude,
                "Report how the job ended.",
                body=Conclusion,
                answers={200: ("Accepted, now or before.", Concluded), **known},
            ),
        )

    # Lost contact

    def advance(self) -> None:
        """Gives up programs that have been without contact for too long."""
        now = self._clock.monotonic()
        if now < self._next_check:
            return
        patience = self._settings.silent_after
        self._next_check = math.inf
        for runner_id, contact in list(self._contacts.items()):
            due = patience + (now if contact.waiting else contact.last_contact)
            if self._state.session_of(runner_id) is None:
                del self._contacts[runner_id]
            elif due <= now:
                del self._contacts[runner_id]
                self._state.vanish(self._state.runners[runner_id])
            else:
                self._next_check = min(self._next_check, due)

    def next_due(self) -> float:
        """When `advance` may have something to do."""
        return self._next_check

    def _touch_contact(self, runner_id: int) -> _Contact:
        now = self._clock.monotonic()
        contact = self._contacts.setdefault(runner_id, _Contact(last_contact=now))
        contact.last_contact = now
        self._next_check = min(self._next_check, now + self._settings.silent_after)
        return contact

    # Sessions

    async def _open(self, request: Request, *, body: Opening) -> Response:
        session = self._state.connect(_bearer(request), instance=body.instance)
        if isinstance(session, Refused):
            return _refusal(session)
        self._touch_contact(session.runner_id)
        runner = self._state.runners[session.runner_id]
        answer = Opened(
            session=_key(runner),
            runner_id=runner.id,
            runner_name=runner.name,
            poll_seconds=self._settings.poll_seconds,
        )
        return json_response(201, answer)

    async def _leave(self, request: Request) -> Response:
        """End the session of a program that was stopped. A job that was assigned to it meanwhile fails."""
        session = self._session(request)
        if isinstance(session, RunnerSession):
            self._state.leave(self._state.runners[session.runner_id])
        elif session.status != 410:
            return session
        return Response(status=204)

    def _session(self, request: Request) -> RunnerSession | Response:
        """The session of a request; a session that was given up as lost is resumed."""
        key = _bearer(request)
        runner_id = number(key.partition(".")[0], default=-1)
        runner = self._state.runners.get(runner_id)
        if runner is None and runner_id >= 0:
            return problem(410, ProblemCode.SESSION_OVER, reason="the registration is gone")
        if runner is None or not runner.instance or not hmac.compare_digest(_key(runner), key):
            return problem(
                401, ProblemCode.SESSION_UNKNOWN, fix="connect with the JIT configuration"
            )
        if runner.left == runner.instance:
            return problem(410, ProblemCode.SESSION_OVER, reason="its program has signed off")
        session = self._state.connect(runner.jit, instance=runner.instance)
        assert isinstance(session, RunnerSession)
        self._touch_contact(runner.id)
        return session

    # The job

    async def _job(self, request: Request) -> Response:
        session = self._session(request)
        if isinstance(session, Response):
            return session
        await self._until(request, session, lambda: session.assignment is not None)
        if session.over:
            return problem(410, ProblemCode.SESSION_OVER, reason="the registration is gone")
        if session.assignment is None:
            return Response(status=204)
        return json_response(200, self._order(session.assignment))

    async def _cancelled(self, request: Request) -> Response:
        found = self._at_work(request)
        if isinstance(found, Response):
            return found
        session, job = found
        await self._until(request, session, job.cancelled.is_set)
        if session.over:
            return problem(410, ProblemCode.SESSION_OVER, reason="the job was given up")
        return json_response(200, {}) if job.cancelled.is_set() else Response(status=204)

    async def _log(self, request: Request) -> Response:
        found = self._at_work(request)
        if isinstance(found, Response):
            return found
        _, job = found
        start = number(request.param("offset"), default=-1)
        if start < 0:
            return problem(
                422, ProblemCode.LOG_OFFSET_INVALID, reason="offset= must be a number of bytes"
            )
        if len(request.body) > self._settings.log_chunk:
            return problem(
                413, ProblemCode.LOG_CHUNK_TOO_LONG, reason=f"over {self._settings.log_chunk} bytes"
            )
        try:
            size = self._logs.append(job.job_id, start, request.body)
        except LogGap as gap:
            return json_response(409, LogSize(size=gap.size))
        except LogFull:
            return problem(
                413, ProblemCode.LOG_FULL, reason=f"over {self._settings.log_limit} bytes"
            )
        return json_response(200, LogSize(size=size))

    async def _conclude(self, request: Request, *, body: Conclusion) -> Response:
        found = self._at_work(request)
        if isinstance(found, Response):
            return self._concluded_before(_bearer(request)) if found.status == 410 else found
        session, assignment = found
        job = self._state.job(assignment.job_id)
        job.reported_by = _digest(_bearer(request))
        self._reported[session.runner_id] = job.id
        self._state.finish(self._state.runners[session.runner_id], body.conclusion)
        return json_response(200, Concluded(conclusion=job.conclusion or ""))

    def _concluded_before(self, key: str) -> Response:
        """Repeats the answer for a runner that lost it."""
        job = self._state.jobs.get(self._reported.get(number(key.partition(".")[0]), 0))
        if job is None or not hmac.compare_digest(job.reported_by, _digest(key)):
            return problem(410, ProblemCode.SESSION_OVER, reason="the registration is gone")
        return json_response(200, Concluded(conclusion=job.conclusion or ""))

    def _at_work(self, request: Request) -> tuple[RunnerSession, Assignment] | Response:
        session = self._session(request)
        if isinstance(session, Response):
            return session
        if session.assignment is None:
            return problem(
                409, ProblemCode.SESSION_WITHOUT_JOB, reason="this runner has not been given a job"
            )
        return session, session.assignment

    def _order(self, job: Assignment) -> JobOrder:
        return JobOrder(
            id=job.job_id,
            run_id=job.run_id,
            name=job.name,
            repository=job.repo,
            script=job.script or _usual_script(job),
            env=dict(job.env),
            log_size=self._logs.size(job.job_id),
            log_limit=self._settings.log_limit,
            log_chunk=self._settings.log_chunk,
        )

    async def _until(
        self, request: Request, session: RunnerSession, ready: Callable[[], bool]
    ) -> None:
        """Waits until there is an answer, the session is over, or the time is up."""
        wait = min(float(number(request.param("wait"))), self._settings.poll_seconds)
        if ready() or session.over or wait <= 0:
            return
        contact = self._touch_contact(session.runner_id)
        contact.waiting += 1
        try:
            async with self._clock.timeout(wait):
                while not ready() and not session.over:
                    changed = session.watch()
                    try:
                        await changed.wait()
                    finally:
                        session.unwatch(changed)
        except TimeoutError:
            return
        finally:
            contact.waiting -= 1
            contact.last_contact = self._clock.monotonic()


def _usual_script(job: Assignment) -> str:
    seconds = "" if job.duration is None else f"sleep {job.duration:g}\n"
    return f'echo "practice job $GITHUB_JOB of $GITHUB_REPOSITORY"\n{seconds}'


def _key(runner: Runner) -> str:
    text = f"{runner.instance}:{runner.jit}"
    return f"{runner.id}.{hashlib.sha256(text.encode()).hexdigest()}"


def _bearer(request: Request) -> str:
    """The credential of a request; without one, a value that matches none."""
    kind, _, credential = request.header("authorization").partition(" ")
    return credential if kind.lower() == "bearer" and credential.isascii() else ""


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _refusal(refused: Refused) -> Response:
    match refused.reason:
        case "unknown":
            return problem(401, ProblemCode.JIT_UNKNOWN, reason="no registration has it")
        case "conflict":
            return problem(
                409, ProblemCode.SESSION_EXISTS, reason="another start of this runner is connected"
            )
        case _:
            return problem(403, ProblemCode.JIT_USED, reason="its runner already had its job")
