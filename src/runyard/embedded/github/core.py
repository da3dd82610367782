"""A practice GitHub: the part of GitHub that a fleet of runners deals with, on this machine.

It is not GitHub and does not pretend to be: every answer carries `x-runyard-practice: github`, and `GET /meta`
says so in words. It exists so that a whole fleet can be tried, tested and simulated without an account, with
GitHub's awkward habits kept: jobs that go to another runner than the one minted for them, answers that
are lost, deliveries that are not retried, and limits.

`handle` is what HTTP sees: GitHub's REST API, and under `/practice/` what at GitHub is behind other doors: the
service that runner programs talk to (`runnerface`) and the site where people push and look (`people`). The
methods are the same two as Python, for tests and simulations. `run` is its heart: it carries webhooks and lets
time pass; without it, `settle` does both once.

Invariants:
- `handle` answers every request; an error of its own is a counted 500.
- `/healthz` and `/readyz`, which GitHub does not have, are answered to anybody. It is ready while
  all that should be on disk is.
- After each call the world is consistent; all randomness comes from the given generator.
- With a keeper, an answer is given and a webhook is sent only when all that led to it is on disk. Such a core is
  made inside the running loop, because taking up its memory needs the clock; and with a generator that was not
  used before, because names that must not repeat are drawn from it.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.embedded.github import render
from runyard.embedded.github.deliveries import Attempt, Deliver, DeliveryLog
from runyard.embedded.github.identity import Denied, Door
from runyard.embedded.github.keep import Keeper, KeepError
from runyard.embedded.github.limits import Faults, Limits
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.manifests import Manifests
from runyard.embedded.github.memory import Memory
from runyard.embedded.github.model import (
    AccountKind,
    HistoryEntry,
    Job,
    Refused,
    Runner,
    WorldError,
)
from runyard.embedded.github.people import People
from runyard.embedded.github.registration import PAGE, register
from runyard.embedded.github.repohooks import RepoHooks
from runyard.embedded.github.rest import Rest
from runyard.embedded.github.runnerface import RunnerFace
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PRACTICE_HEADER, PracticeSettings
from runyard.embedded.github.world import World
from runyard.http.messages import Request, Response, json_response
from runyard.http.probes import HEALTHZ, READYZ, probe_routes
from runyard.http.problems import problem
from runyard.http.routes import OPENAPI, Routes
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health

_META = {
    "practice": True,
    "component": "runyard practice GitHub",
    "note": "This is not GitHub. It imitates the endpoints that a fleet of runners uses.",
}
_KEEP_AGAIN = 1.0  # seconds until a memory that could not be written is tried again
_UNKEPT = 10.0  # seconds after which such a memory is no longer a blip
MEMORY = "memory"


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
        people_token: str = "",
        keeper: Keeper | None = None,
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
            clock=clock,
            rng=rng,
            app_id=app_id,
            public_key=public_key,
            installations=self._world.installations,
            settings=self.settings,
        )
        self._hooks = RepoHooks(clock=clock, rng=rng, settings=self.settings)
        self._manifests = Manifests(rng=rng, app_id=app_id, door=self._door, log=self._log)
        self._rest = Rest(
            world=self._world,
            log=self._log,
            hooks=self._hooks,
            door=self._door,
            faults=self.faults,
            settings=lambda: self.settings,
            app_id=app_id,
        )
        logs = Logs(settings=self.settings, keeper=keeper)
        self._runner_face = RunnerFace(
            world=self._world, logs=logs, clock=clock, settings=self.settings
        )
        self._people = People(world=self._world, log=self._log, logs=logs, token=people_token)
        self._practice: Routes | None = None
        self._freshness = Freshness(clock)
        self._unkept_since: float | None = None  # None: what should be on disk is
        self._memory: Memory | None = None
        if keeper is not None:
            self._memory = Memory(
                keeper,
                clock=clock,
                app_id=app_id,
                world=self._world,
                log=self._log,
                door=self._door,
                logs=logs,
            )
            self._runner_face.restore(self._memory.load())
            self._world.settled = self._try_to_keep

    # HTTP

    async def handle(self, request: Request) -> Response:
        """Answer one request, whatever it is."""
        if request.path in (HEALTHZ, READYZ):
            return await self._probe(request)
        try:
            if request.path.startswith("/practice/"):
                response = await self._visit(request)
            else:
                response = self._answer(request)
        except Denied as denied:
            response = _refusal(denied)
        except Exception as error:  # noqa: BLE001 - the last line of defence; counted and traced
            self.internal_errors += 1
            self._trace("internal_error", {"error": repr(error), "path": request.path})
            response = json_response(500, {"message": "Internal error of the practice GitHub"})
        if not self._try_to_keep():
            response = problem(
                503, "not kept", reason="the practice GitHub cannot write its memory"
            )
        if self._log.has_pending or self._hooks.has_pending:
            self._wake.set()
        return msgspec.structs.replace(response, headers=(*response.headers, PRACTICE_HEADER))

    async def _probe(self, request: Request) -> Response:
        self._try_to_keep()  # so that a disk which is well again is noticed by whoever waits for it
        probes = probe_routes(Health(self._clock), self._freshness, None)
        answer = await Routes("practice GitHub", "1", probes).handle(request)
        assert isinstance(answer, Response)
        return msgspec.structs.replace(answer, headers=(*answer.headers, PRACTICE_HEADER))

    async def _visit(self, request: Request) -> Response:
        self._advance()
        scripted = None
        if request.path.startswith("/practice/runner/"):  # people fix what they broke
            scripted = self.faults.before(request.method, request.path)
        if scripted is not None:
            return scripted
        if self._practice is None:  # made on demand: most simulations are never asked
            routes = (*self._runner_face.routes(), *self._people.routes())
            self._practice = Routes("practice GitHub", "1", routes, guard=self._people.guard)
        if request.path == f"/practice{OPENAPI}":
            request = msgspec.structs.replace(request, path=OPENAPI)
        try:
            response = await self._practice.handle(request)
        finally:
            self._wake.set()  # somebody was heard of: there may be a new time to look at
        assert isinstance(response, Response)
        return response

    def _answer(self, request: Request) -> Response:
        self._advance()
        scripted = self.faults.before(request.method, request.path)
        if scripted is not None:
            return scripted
        path = tuple(request.path.strip("/").split("/"))
        if path == ("meta",):
            return json_response(200, _META)
        if not request.header("user-agent"):
            raise Denied(403, "Request forbidden by administrative rules: no User-Agent header")
        if request.path.endswith(PAGE):
            return register(request, self.submit_manifest)
        if path[0] == "app-manifests":
            return self._manifests.serve(request, path)
        credential = _credential(request)
        if path[0] == "app":
            self._door.check_app(credential)
            return self._metered("app", request, lambda: self._rest.as_app(request, path))
        only = self._door.personal(credential)
        if only is not None:
            return self._known(
                "user", request, path, lambda: self._rest.as_person(request, path, only)
            )
        caller = self._door.check_installation(credential)
        return self._known(
            f"installation ID {caller.id}",
            request,
            path,
            lambda: self._rest.as_installation(request, path, caller),
        )

    def _known(
        self, caller: str, request: Request, path: tuple[str, ...], serve: Callable[[], Response]
    ) -> Response:
        if path != ("rate_limit",):
            return self._metered(caller, request, serve)
        core = self._limits.left(caller, settings=self.settings)
        return json_response(200, {"resources": {"core": core}, "rate": core})

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
        installation = self._world.install(account, kind=kind)
        self._keep()
        return installation.id

    def add_repo(self, full_name: str, *, runners_allowed: bool = True) -> int:
        """Let the App see a repository of an account where it is installed; the repository's id."""
        repo = self._world.add_repo(full_name)
        repo.runners_allowed = runners_allowed
        self._keep()
        return repo.id

    def allow_token(self, token: str, *, repo: str, hooks: bool = True) -> None:
        """A person made a personal access token for one repository, which may see its webhooks or not."""
        self._door.allow(token, repository=repo, hooks=hooks)

    def add_hook(self, repo: str, *, url: str, secret: str, deliver: Deliver | None = None) -> int:
        """A repository's owner adds a webhook of its own; its id."""
        owner, _, name = repo.partition("/")
        found = self._world.repo(owner, name)
        if found is None:
            raise WorldError(f"no repository {repo}")
        return self._hooks.add(found, url=url, secret=secret, deliver=deliver).id

    def submit_manifest(self, manifest: Mapping[str, Any]) -> str:
        """Somebody sent an App's manifest and agreed to it on the page; the code that they are sent back with."""
        return self._manifests.submit(manifest)

    def suspend(self, installation_id: int, *, suspended: bool = True) -> None:
        """Suspend an installation, or lift that."""
        installation = self._world.installations[installation_id]
        installation.suspended_at = self._clock.now() if suspended else None
        self._world.touch("installation", installation_id)
        self._keep()

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
        self._keep()

    def queue_job(
        self,
        repo: str,
        labels: tuple[str, ...],
        *,
        duration: float | None = None,
        run_id: int | None = None,
        waiting: bool = False,
        script: str = "",
        job_name: str = "",
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Somebody pushes; the job's id. `run_id` adds to a run that exists."""
        self._advance()
        owner, _, name = repo.partition("/")
        found = self._world.repo(owner, name)
        if found is None:
            raise WorldError(f"no repository {repo}")
        job = self._world.queue_job(
            found,
            tuple(labels),
            duration=duration,
            run_id=run_id,
            waiting=waiting,
            name=job_name,
            script=script,
            env=tuple((env or {}).items()),
        )
        self._keep()
        return job.id

    def approve_job(self, job_id: int) -> bool:
        """Let a waiting job into the queue."""
        self._advance()
        approved = self._world.approve(job_id)
        self._keep()
        return approved

    def cancel_job(self, job_id: int) -> bool:
        """Somebody cancels; `False` when the job had ended."""
        self._advance()
        cancelled = self._world.cancel_job(job_id)
        self._keep()
        return cancelled

    def connect(self, jit: str) -> RunnerSession | Refused:
        """A runner program starts with a JIT configuration."""
        self._advance()
        session = self._world.connect(jit)
        self._keep()
        return session

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
        self._freshness.follow(MEMORY, _UNKEPT, self._last_kept)
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._advance()
                if not self._try_to_keep():
                    await self._clock.sleep(_KEEP_AGAIN)
                    continue
                for log, attempt in self._take_pending():
                    group.create_task(self._attempt(log, attempt))
                await self._pause()

    async def settle(self) -> None:
        """Carry everything that is pending, one after the other, and do what is due."""
        self._advance()
        self._keep()
        while pending := self._take_pending():
            for log, attempt in pending:
                await self._attempt(log, attempt)
            self._advance()
            self._keep()

    def _take_pending(self) -> list[tuple[DeliveryLog, Attempt]]:
        own = [(self._log, attempt) for attempt in self._log.take_pending()]
        return own + self._hooks.take_pending()

    async def _attempt(self, log: DeliveryLog, attempt: Attempt) -> None:
        await log.attempt(attempt)
        self._try_to_keep()

    def _advance(self) -> None:
        self._runner_face.advance()
        self._world.advance()

    def _keep(self) -> None:
        """Write what has changed, if anybody keeps it; raises `KeepError`."""
        if self._memory is not None:
            self._memory.commit()

    def _try_to_keep(self) -> bool:
        """As `_keep`; a failure is counted, and what was not written stays due."""
        try:
            self._keep()
        except KeepError as error:
            self.internal_errors += 1
            self._trace("not_kept", {"error": error.cause})
            if self._unkept_since is None:
                self._unkept_since = self._clock.monotonic()
            return False
        self._unkept_since = None
        return True

    def _last_kept(self) -> float:
        return self._clock.monotonic() if self._unkept_since is None else self._unkept_since

    async def _pause(self) -> None:
        due = min(self._world.next_due(), self._runner_face.next_due())
        if due == math.inf:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, due - self._clock.monotonic())):
                await self._wake.wait()

    def _emit(self, job: Job, action: str) -> None:
        owner = self._world.installations[job.installation_id]
        body = msgspec.json.encode(render.job_event(job, action, owner=owner))
        self._log.add(job, action, body=body)
        self._hooks.emit(job, action, owner=owner)

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
