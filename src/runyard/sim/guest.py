"""The guest of a simulated VM: a model of the poll loop and the runner program of the guest's scripts.

    poll ──200──▶ runner connects ──▶ its one job ──▶ exit code
      │ ▲
      │ └─ 204, transient errors, no answer: two seconds later again, for ever
      ├─ 401, 403 ──▶ exit 1          └─ 410 ──▶ exit 0

It behaves like the image's scripts and, on request, like broken ones. When it is asked to stop, it stops its runner;
when its VM has lost power, it has no further effect.

Invariants:
- The idle watchdog ends a runner only if GitHub has not assigned a job to it. Both happen in one step here,
  as they do in the guest, where the hook of a started job removes the watchdog first.
- A guest never polls again after it received a JIT configuration.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.model import Assignment, Refused
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Transport
from runyard.vm.contract import VmSpec
from runyard.wire import names
from runyard.wire.bodies import Dispatched
from runyard.wire.paths import DISPATCH

POLL_PAUSE = 2.0
POLL_TIMEOUT = 35.0  # beyond the 25 s that the server may hold a poll
GITHUB_PAUSE = 5.0
USUAL_JOB = 60.0
ASKED_TO_END = 143
CHECK_TO_KILL = (
    1.0  # seconds between check and kill in a watchdog that does them one after the other
)
_WAIT = ("prefer", "wait=25")

Fate = Literal[
    "hang-before-jit", "hang-with-jit", "die-with-jit", "die", "hang-after-job", "exit-code"
]
State = Literal["polling", "armed", "running", "hung", "ended"]
_dispatched = msgspec.json.Decoder(Dispatched)


class GuestView(msgspec.Struct, kw_only=True, eq=False):
    """The state of one guest, for invariants."""

    pod: str
    uid: str
    pool: str
    host: str
    vm: str
    since: float
    state: State = "polling"
    job_id: int | None = None
    session: RunnerSession | None = None
    jit_at: float | None = None


class GuestEnvironment(Protocol):
    """What guests need from the fleet."""

    rng: random.Random
    github: GithubCore
    guests: dict[str, GuestView]
    pollers: dict[str, GuestView]  # by token
    watchdog_yields: bool  # to a job that GitHub has assigned; False only in a test

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    def fate(self, kind: Fate, guest: GuestView) -> bool:
        """Whether this guest is to fail in that way now."""
        ...

    def delivered(self, guest: GuestView, jit: str) -> None:
        """Called when a JIT configuration arrived at this guest."""
        ...

    def die(self, guest: GuestView) -> None:
        """Ends its VM without a report."""
        ...

    @property
    def github_reachable(self) -> bool:
        """Whether a runner can reach GitHub now."""
        ...


class Guest:
    """The program of the VMs of one host. `over(vm)` says whether that VM has lost its power."""

    def __init__(
        self,
        environment: GuestEnvironment,
        *,
        host: str,
        server: Transport,
        over: Callable[[str], bool],
    ) -> None:
        self._environment = environment
        self._host = host
        self._server = server
        self._over = over

    async def live(self, spec: VmSpec, address: str) -> int:
        """Runs one guest from its boot to its exit code."""
        env = dict(spec.env)
        view = GuestView(
            pod=env[names.ENV_POD_NAME],
            uid=env[names.ENV_POD_UID],
            pool=env[names.ENV_POOL],
            host=self._host,
            vm=spec.name,
            since=self._environment.clock.monotonic(),
        )
        self._environment.guests[view.uid] = self._environment.pollers[spec.token] = view
        try:
            answer = await self._poll(view, spec.token)
            if isinstance(answer, int):
                return answer
            timeout = float(env.get(names.ENV_IDLE_TIMEOUT, "0") or 0)
            return await self._run(view, answer, timeout)
        except asyncio.CancelledError:
            return self._asked_to_end(view)
        finally:
            view.state = "ended"
            del self._environment.guests[view.uid], self._environment.pollers[spec.token]

    async def _poll(self, view: GuestView, token: str) -> int | str:
        """Polls until there is work; returns the JIT configuration, or an exit code."""
        headers = (("authorization", f"Bearer {token}"), _WAIT)
        request = Request(method="POST", path=DISPATCH, headers=headers, body=b"{}")
        while True:
            if self._environment.fate("hang-before-jit", view):
                await self._hang(view)
            answer = await self._ask(request)
            if answer is not None and answer.status in (401, 403):
                return 1
            if answer is not None and answer.status == 410:
                return 0
            jit = "" if answer is None else _jit(answer)
            if jit:
                self._environment.delivered(view, jit)
                return jit
            await self._environment.clock.sleep(POLL_PAUSE)

    async def _ask(self, request: Request) -> Response | None:
        try:
            answer = await self._server.send(request, timeout=POLL_TIMEOUT)
        except TransportError:
            return None
        return answer if isinstance(answer, Response) else None

    async def _run(self, view: GuestView, jit: str, idle_timeout: float) -> int:
        """Runs the runner program: one registration, one job."""
        view.state, view.jit_at = "armed", self._environment.clock.monotonic()
        if self._environment.fate("hang-with-jit", view):
            await self._hang(view)
        if self._environment.fate("die-with-jit", view):
            self._environment.die(view)
            await self._hang(view)
        await self._reach_github()
        session = self._environment.github.connect(jit)
        if isinstance(session, Refused):
            return 1
        view.session = session
        job = await self._next_job(session, idle_timeout)
        if job is None:
            session.vanish()
            return 0
        view.state, view.job_id = "running", job.job_id
        return await self._work(view, session, job)

    async def _next_job(self, session: RunnerSession, idle_timeout: float) -> Assignment | None:
        if idle_timeout <= 0:
            return await session.next_job()
        try:
            async with self._environment.clock.timeout(idle_timeout):
                return await session.next_job()
        except TimeoutError:
            if not self._environment.watchdog_yields:
                await self._environment.clock.sleep(CHECK_TO_KILL)
                return None
            return session.assignment  # assigned at this moment: then the watchdog yields

    async def _work(self, view: GuestView, session: RunnerSession, job: Assignment) -> int:
        seconds = USUAL_JOB if job.duration is None else job.duration
        if self._environment.fate("die", view):
            await self._environment.clock.sleep(seconds * self._environment.rng.random())
            self._environment.die(view)
            await self._hang(view)
        conclusion = "cancelled"
        try:
            async with self._environment.clock.timeout(seconds):
                await job.cancelled.wait()
        except TimeoutError:
            conclusion = "success"
        await self._reach_github()
        listened = session.finish(conclusion)
        if self._environment.fate("hang-after-job", view):
            await self._hang(view)
        if self._environment.fate("exit-code", view):
            return 7
        return 0 if listened else 1

    async def _reach_github(self) -> None:
        while not self._environment.github_reachable:
            await self._environment.clock.sleep(GITHUB_PAUSE)

    async def _hang(self, view: GuestView) -> None:
        """Does nothing more and ignores the request to end: only a power-off ends it."""
        view.state = "hung"
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._over(view.vm):
                raise
            await asyncio.get_running_loop().create_future()

    def _asked_to_end(self, view: GuestView) -> int:
        session = view.session
        if session is None:
            return ASKED_TO_END
        if self._over(view.vm) or not session.finish("failure"):
            session.vanish()
        return ASKED_TO_END


def _jit(answer: Response) -> str:
    if answer.status != 200:
        return ""
    try:
        return _dispatched.decode(answer.body).encoded_jit_config
    except msgspec.MsgspecError:
        return ""
