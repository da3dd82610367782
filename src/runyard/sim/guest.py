"""The guest of a simulated VM: the poll loop and the runner program, as the guest's scripts behave.

    poll ──200──▶ runner connects ──▶ its one job ──▶ exit code
      │ ▲
      │ └─ 204, transient errors, no answer: two seconds later again, for ever
      ├─ 401, 403 ──▶ exit 1          └─ 410 ──▶ exit 0

It is a model, and it decides nothing about the fleet: it does what the image's scripts do, and, when told
to, what broken ones do. Asked to end, it ends its runner; when its machine is gone it says nothing more.

Invariants:
- The idle watchdog ends a runner only if GitHub has not committed a job to it. Both happen in one step here,
  as they do in the guest, where the hook of a started job removes the watchdog first.
- A guest never polls again after it was given a JIT configuration.
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
LOOK_TO_KILL = 1.0  # between a look and a kill, in a watchdog that does both one after the other
_WAIT = ("prefer", "wait=25")

Fate = Literal[
    "hang-before-jit", "hang-with-jit", "die-with-jit", "die", "hang-after-job", "exit-code"
]
State = Literal["polling", "armed", "running", "hung", "ended"]
_dispatched = msgspec.json.Decoder(Dispatched)


class GuestView(msgspec.Struct, kw_only=True, eq=False):
    """One guest, for whoever looks on."""

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


class GuestWorld(Protocol):
    """What surrounds the guests."""

    rng: random.Random
    github: GithubCore
    guests: dict[str, GuestView]
    pollers: dict[str, GuestView]  # by token
    watchdog_yields: bool  # to a job that GitHub has committed; only a test has it otherwise

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    def fate(self, kind: Fate, guest: GuestView) -> bool:
        """Whether this guest is the one that breaks in that way now."""
        ...

    def delivered(self, guest: GuestView, jit: str) -> None:
        """A JIT configuration arrived at this guest."""
        ...

    def die(self, guest: GuestView) -> None:
        """Let its VM end without a word."""
        ...

    @property
    def github_reachable(self) -> bool:
        """Whether a runner can talk to GitHub now."""
        ...


class Guest:
    """What runs in the VMs of one host. `over(vm)` tells whether that machine has lost its power."""

    def __init__(
        self, world: GuestWorld, *, host: str, server: Transport, over: Callable[[str], bool]
    ) -> None:
        self._world = world
        self._host = host
        self._server = server
        self._over = over

    async def live(self, spec: VmSpec, address: str) -> int:
        """One guest from its boot to its exit code."""
        env = dict(spec.env)
        view = GuestView(
            pod=env[names.ENV_POD_NAME],
            uid=env[names.ENV_POD_UID],
            pool=env[names.ENV_POOL],
            host=self._host,
            vm=spec.name,
            since=self._world.clock.monotonic(),
        )
        self._world.guests[view.uid] = self._world.pollers[spec.token] = view
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
            del self._world.guests[view.uid], self._world.pollers[spec.token]

    async def _poll(self, view: GuestView, token: str) -> int | str:
        """Ask for work until there is some; the JIT configuration, or an exit code."""
        headers = (("authorization", f"Bearer {token}"), _WAIT)
        request = Request(method="POST", path=DISPATCH, headers=headers, body=b"{}")
        while True:
            if self._world.fate("hang-before-jit", view):
                await self._hang(view)
            answer = await self._ask(request)
            if answer is not None and answer.status in (401, 403):
                return 1
            if answer is not None and answer.status == 410:
                return 0
            jit = "" if answer is None else _jit(answer)
            if jit:
                self._world.delivered(view, jit)
                return jit
            await self._world.clock.sleep(POLL_PAUSE)

    async def _ask(self, request: Request) -> Response | None:
        try:
            answer = await self._server.send(request, timeout=POLL_TIMEOUT)
        except TransportError:
            return None
        return answer if isinstance(answer, Response) else None

    async def _run(self, view: GuestView, jit: str, idle_timeout: float) -> int:
        """The runner program: one registration, one job."""
        view.state, view.jit_at = "armed", self._world.clock.monotonic()
        if self._world.fate("hang-with-jit", view):
            await self._hang(view)
        if self._world.fate("die-with-jit", view):
            self._world.die(view)
            await self._hang(view)
        await self._reach_github()
        session = self._world.github.connect(jit)
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
            async with self._world.clock.timeout(idle_timeout):
                return await session.next_job()
        except TimeoutError:
            if not self._world.watchdog_yields:
                await self._world.clock.sleep(LOOK_TO_KILL)
                return None
            return session.assignment  # committed in this very moment: then the watchdog yields

    async def _work(self, view: GuestView, session: RunnerSession, job: Assignment) -> int:
        seconds = USUAL_JOB if job.duration is None else job.duration
        if self._world.fate("die", view):
            await self._world.clock.sleep(seconds * self._world.rng.random())
            self._world.die(view)
            await self._hang(view)
        conclusion = "cancelled"
        try:
            async with self._world.clock.timeout(seconds):
                await job.cancelled.wait()
        except TimeoutError:
            conclusion = "success"
        await self._reach_github()
        listened = session.finish(conclusion)
        if self._world.fate("hang-after-job", view):
            await self._hang(view)
        if self._world.fate("exit-code", view):
            return 7
        return 0 if listened else 1

    async def _reach_github(self) -> None:
        while not self._world.github_reachable:
            await self._world.clock.sleep(GITHUB_PAUSE)

    async def _hang(self, view: GuestView) -> None:
        """Do nothing more, and do not listen when asked to end: only the loss of power helps."""
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
