"""A practice GitHub: the part of GitHub that a fleet of runners deals with, on this machine.

It is not GitHub and does not pretend to be: every answer carries `x-runyard-practice: github`, and `GET /meta`
says so in words. It exists so that a whole fleet can be tried, tested and simulated without an account, with
GitHub's awkward habits kept: jobs that go to another runner than the one minted for them, answers that
are lost, deliveries that are not retried, and limits.

It has two faces. `handle` speaks REST. The methods are the world around it: people who queue and cancel jobs,
runner programs that connect. `run` is its heart: it carries webhooks and lets time pass; without it,
`settle` does both once.

Invariants:
- `handle` answers every request; an error of its own is a counted 500.
- After each call the world is consistent; all randomness comes from the given generator.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.embedded.github import render
from runyard.embedded.github.deliveries import Attempt, Deliver, DeliveryLog
from runyard.embedded.github.identity import Denied, Door
from runyard.embedded.github.limits import Faults, Limits
from runyard.embedded.github.model import (
    AccountKind,
    HistoryEntry,
    Job,
    Refused,
    Runner,
    WorldError,
)
from runyard.embedded.github.rest import Rest
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PRACTICE_HEADER, PracticeSettings
from runyard.embedded.github.world import World
from runyard.http.messages import Request, Response, json_response

_META = {
    "practice": True,
    "component": "runyard practice GitHub",
    "note": "This is not GitHub. It imitates the endpoints that a fleet of runners uses.",
}


class GithubCore:
    """The practice GitHub."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        app_id: int,
        public_key: str,
        webhook_secret: str,
        deliver: Deliver | None = None,
        on_event: Callable[[str, dict[str, Any]], None] | None = None,
        settings: PracticeSettings | None = None,
    ) -> None:
        self.settings = settings or PracticeSettings()
        self.faults = Faults()
        self.internal_errors = 0
        self._clock = clock
        self._on_event = on_event
        self._wake = asyncio.Event()
        self._limits = Limits(clock=clock)
        self._world = World(
            clock=clock, rng=rng, settings=self.settings, emit=self._emit, trace=self._trace
        )
        self._log = DeliveryLog(
            clock=clock, rng=rng, secret=webhook_secret, settings=self.settings, deliver=deliver
        )
        self._door = Door(
            clock=clock, rng=rng, app_id=app_id, public_key=public_key, settings=self.settings
        )
        self._rest = Rest(
            world=self._world,
            log=self._log,
            door=self._door,
            faults=self.faults,
            settings=lambda: self.settings,
            app_id=app_id,
        )

    # The REST face

    async def handle(self, request: Request) -> Response:
        """Answer one request, whatever it is."""
        try:
            response = self._answer(request)
        except Denied as denied:
            response = _refusal(denied)
        except Exception as error:  # noqa: BLE001 - the last line of defence; counted and traced
            self.internal_errors += 1
            self._trace("internal_error", {"error": repr(error), "path": request.path})
            response = json_response(500, {"message": "Internal error of the practice GitHub"})
        if self._log.has_pending:
            self._wake.set()
        return msgspec.structs.replace(response, headers=(*response.headers, PRACTICE_HEADER))

    def _answer(self, request: Request) -> Response:
        self._world.advance()
        scripted = self.faults.before(request.method, request.path)
        if scripted is not None:
            return scripted
        path = tuple(request.path.strip("/").split("/"))
        if path == ("meta",):
            return json_response(200, _META)
        if not request.header("user-agent"):
            raise Denied(403, "Request forbidden by administrative rules: no User-Agent header")
        credential = _credential(request)
        if path[0] == "app":
            self._door.check_app(credential)
            return self._metered("app", request, lambda: self._rest.as_app(request, path))
        caller = self._door.check_installation(credential)
        return self._metered(
            f"installation ID {caller.id}",
            request,
            lambda: self._rest.as_installation(request, path, caller),
        )

    def _metered(self, caller: str, request: Request, serve: Callable[[], Response]) -> Response:
        headers, refusal = self._limits.charge(caller, request.method, settings=self.settings)
        if refusal is not None:
            return refusal
        try:
            response = serve()
        except Denied as denied:
            response = _refusal(denied)
        if not headers:
            return response
        return msgspec.structs.replace(response, headers=(*response.headers, *headers))

    # The world's face

    def install(self, account: str, *, kind: AccountKind = "Organization") -> int:
        """Install the App at an account; the installation's id."""
        return self._world.install(account, kind=kind).id

    def add_repo(self, full_name: str, *, runners_allowed: bool = True) -> int:
        """Let the App see a repository of an account where it is installed; the repository's id."""
        repo = self._world.add_repo(full_name)
        repo.runners_allowed = runners_allowed
        return repo.id

    def suspend(self, installation_id: int, *, suspended: bool = True) -> None:
        """Suspend an installation, or lift that."""
        installation = self._world.installations[installation_id]
        installation.suspended_at = self._clock.now() if suspended else None

    def set_limits(
        self, *, primary_per_hour: int | None = None, points_per_minute: int | None = None
    ) -> None:
        """Limit the request rate from now on; `None` lifts a limit."""
        self.settings = msgspec.structs.replace(
            self.settings,
            primary_per_hour=primary_per_hour,
            secondary_points_per_minute=points_per_minute,
        )

    def revoke_tokens(self) -> None:
        """Every installation token handed out so far stops working."""
        self._door.revoke_all()

    def queue_job(
        self,
        repo: str,
        labels: tuple[str, ...],
        *,
        duration: float | None = None,
        run_id: int | None = None,
        waiting: bool = False,
    ) -> int:
        """Somebody pushes; the job's id. `run_id` adds to a run that exists."""
        self._world.advance()
        owner, _, name = repo.partition("/")
        found = self._world.repo(owner, name)
        if found is None:
            raise WorldError(f"no repository {repo}")
        job = self._world.queue_job(
            found, tuple(labels), duration=duration, run_id=run_id, waiting=waiting
        )
        return job.id

    def approve_job(self, job_id: int) -> bool:
        """Let a waiting job into the queue."""
        self._world.advance()
        return self._world.approve(job_id)

    def cancel_job(self, job_id: int) -> bool:
        """Somebody cancels; `False` when the job had ended."""
        self._world.advance()
        return self._world.cancel_job(job_id)

    def connect(self, jit: str) -> RunnerSession | Refused:
        """A runner program starts with a JIT configuration."""
        self._world.advance()
        return self._world.connect(jit)

    # Looking on

    def jobs(self) -> Mapping[int, Job]:
        """All jobs by id, live and not copied."""
        return self._world.jobs

    def runners(self) -> Mapping[int, Runner]:
        """All registrations by id, live and not copied."""
        return self._world.runners

    def history(self, job_id: int) -> tuple[HistoryEntry, ...]:
        """What happened to a job: (time, what, runner)."""
        return tuple(self._world.job(job_id).history)

    def attempts(self) -> tuple[Attempt, ...]:
        """Every remembered attempt to deliver a webhook, oldest first."""
        return self._log.attempts

    # Time

    async def run(self) -> None:
        """Carry webhooks and let time pass, until cancelled. Attempts run side by side, as GitHub's do."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._world.advance()
                for attempt in self._log.take_pending():
                    group.create_task(self._log.attempt(attempt))
                await self._pause()

    async def settle(self) -> None:
        """Carry everything that is pending, one after the other, and do what is due."""
        self._world.advance()
        while pending := self._log.take_pending():
            for attempt in pending:
                await self._log.attempt(attempt)
            self._world.advance()

    async def _pause(self) -> None:
        due = self._world.next_due()
        if due is None:
            await self._wake.wait()
            return
        try:
            async with self._clock.timeout(max(0.0, due - self._clock.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            return

    def _emit(self, job: Job, action: str) -> None:
        owner = self._world.installations[job.installation_id]
        body = msgspec.json.encode(render.job_event(job, action, owner=owner))
        self._log.add(job, action, body=body)

    def _trace(self, what: str, detail: dict[str, Any]) -> None:
        self._wake.set()
        if self._on_event is not None:
            self._on_event(what, detail)


def _credential(request: Request) -> str:
    kind, _, credential = request.header("authorization").partition(" ")
    if kind.lower() not in ("bearer", "token") or not credential:
        raise Denied(401, "Requires authentication")
    return credential


def _refusal(denied: Denied) -> Response:
    return json_response(denied.status, {"message": denied.message})
