"""A practice GitHub: imitates the endpoints of GitHub that a fleet of runners uses, on this machine.

Every answer carries `x-runyard-practice: github`, and `GET /meta` says that it is not GitHub. With it a whole
fleet can be tried, tested and simulated without an account, with GitHub's difficult behaviour: jobs that go to another
runner than the one minted for them, answers that are lost, deliveries that are not retried, and rate limits.

`handle` serves HTTP: GitHub's REST API, and under `/practice/` what GitHub offers elsewhere: the service for runner
programs (`runner_routes`) and what its users do on the site (`practice_routes`). The methods offer the same two in
Python, for tests and simulations. `run` sends webhooks and handles timeouts; without it, `settle` does both once.

Invariants:
- `handle` answers every request; an internal error is a counted 500.
- `/healthz` and `/readyz`, which GitHub does not have, need no credential. It is ready while everything that should
  be on disk is.
- After each call the state is consistent; all randomness comes from the given generator.
- With a store, an answer is given and a webhook is sent only when everything that led to it is on disk. Such a core
  is created inside the running loop, because loading needs the clock; and with an unused generator, because names
  that must not repeat are drawn from it.
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
from runyard.embedded.github.identity import Authenticator, Denied
from runyard.embedded.github.limits import Faults, Limits
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.manifests import Manifests
from runyard.embedded.github.model import (
    AccountKind,
    HistoryEntry,
    Job,
    PracticeError,
    Refused,
    Runner,
)
from runyard.embedded.github.persistence import Persistence
from runyard.embedded.github.practice_routes import PracticeRoutes
from runyard.embedded.github.registration import PAGE, register
from runyard.embedded.github.repohooks import RepoHooks
from runyard.embedded.github.rest import Rest
from runyard.embedded.github.runner_routes import RunnerRoutes
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PRACTICE_HEADER, PracticeSettings
from runyard.embedded.github.state import PracticeState
from runyard.embedded.github.store import RecordStore, StoreError
from runyard.http.messages import Request, Response, json_response
from runyard.http.probes import HEALTHZ, READYZ, probe_routes
from runyard.http.problems import problem
from runyard.http.routes import OPENAPI, Routes
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.names import Loop
from runyard.wire.problem_codes import ProblemCode

_META = {
    "practice": True,
    "component": "runyard practice GitHub",
    "note": "This is not GitHub. It imitates the endpoints that a fleet of runners uses.",
}
_PERSIST_RETRY = 1.0  # seconds until a failed write is tried again
_PERSIST_ALERT_AFTER = 10.0  # seconds of failed writes after which it counts as unhealthy
STORE_LOOP = Loop.GITHUB_STATE


class PracticeApp(msgspec.Struct, frozen=True, kw_only=True):
    """The App of the practice GitHub, and the token of the practice routes."""

    app_id: int
    public_key: str
    webhook_secret: str
    practice_token: str = ""

    def __repr__(self) -> str:
        return f"PracticeApp({self.app_id})"


class GithubCore:
    """The practice GitHub."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        app: PracticeApp,
        deliver: Deliver | None = None,
        on_event: Callable[[str, dict[str, Any]], None] | None = None,
        settings: PracticeSettings | None = None,
        store: RecordStore | None = None,
    ) -> None:
        self.settings = settings or PracticeSettings()
        self.faults = Faults()
        self.internal_errors = 0
        self._clock = clock
        self._on_event = on_event
        self._wake = asyncio.Event()
        self._limits = Limits(clock=clock)
        self._state = PracticeState(
            clock=clock, rng=rng, settings=self.settings, emit=self._emit, trace=self._trace
        )
        self._log = DeliveryLog(
            clock=clock, rng=rng, secret=app.webhook_secret, settings=self.settings, deliver=deliver
        )
        self._authenticator = Authenticator(
            clock=clock,
            rng=rng,
            app_id=app.app_id,
            public_key=app.public_key,
            installations=self._state.installations,
            settings=self.settings,
        )
        self._hooks = RepoHooks(clock=clock, rng=rng, settings=self.settings)
        self._manifests = Manifests(
            rng=rng, app_id=app.app_id, authenticator=self._authenticator, log=self._log
        )
        self._rest = Rest(
            state=self._state,
            log=self._log,
            hooks=self._hooks,
            authenticator=self._authenticator,
            faults=self.faults,
            settings=lambda: self.settings,
            app_id=app.app_id,
        )
        logs = Logs(settings=self.settings, store=store)
        self._runner_routes = RunnerRoutes(
            state=self._state, logs=logs, clock=clock, settings=self.settings
        )
        self._practice_routes = PracticeRoutes(
            state=self._state, log=self._log, logs=logs, token=app.practice_token
        )
        self._practice: Routes | None = None
        self._freshness = Freshness(clock)
        self._unpersisted_since: float | None = None  # None: all changes are on disk
        self._persistence: Persistence | None = None
        if store is not None:
            self._persistence = Persistence(
                store,
                clock=clock,
                app_id=app.app_id,
                state=self._state,
                log=self._log,
                authenticator=self._authenticator,
                logs=logs,
            )
            self._runner_routes.restore(self._persistence.load())
            self._state.settled = self._try_to_persist

    # HTTP

    async def handle(self, request: Request) -> Response:
        """Answers one request; never raises."""
        if request.path in (HEALTHZ, READYZ):
            return await self._probe(request)
        try:
            if request.path.startswith("/practice/"):
                response = await self._serve_practice(request)
            else:
                response = self._answer(request)
        except Denied as denied:
            response = _refusal(denied)
        except Exception as error:  # noqa: BLE001 - the boundary of `handle`; counted and traced
            self.internal_errors += 1
            self._trace("internal_error", {"error": repr(error), "path": request.path})
            response = json_response(500, {"message": "Internal error of the practice GitHub"})
        if not self._try_to_persist():
            response = problem(
                503,
                ProblemCode.PRACTICE_NOT_KEPT,
                reason="the practice GitHub cannot write its store",
            )
        if self._log.has_pending or self._hooks.has_pending:
            self._wake.set()
        return msgspec.structs.replace(response, headers=(*response.headers, PRACTICE_HEADER))

    async def _probe(self, request: Request) -> Response:
        self._try_to_persist()  # so that a recovered disk shows in the next probe
        probes = probe_routes(Health(self._clock), self._freshness, None)
        answer = await Routes("practice GitHub", "1", probes).handle(request)
        assert isinstance(answer, Response)
        return msgspec.structs.replace(answer, headers=(*answer.headers, PRACTICE_HEADER))

    async def _serve_practice(self, request: Request) -> Response:
        self._advance()
        scripted = None
        if request.path.startswith(
            "/practice/runner/"
        ):  # faults do not apply to the other practice routes
            scripted = self.faults.before(request.method, request.path)
        if scripted is not None:
            return scripted
        if self._practice is None:  # created on demand: most simulations never use it
            routes = (*self._runner_routes.routes(), *self._practice_routes.routes())
            self._practice = Routes(
                "practice GitHub", "1", routes, guard=self._practice_routes.guard
            )
        if request.path == f"/practice{OPENAPI}":
            request = msgspec.structs.replace(request, path=OPENAPI)
        try:
            response = await self._practice.handle(request)
        finally:
            self._wake.set()  # contact with a runner: the next due time may have changed
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
            self._practice_routes.check_registration(request)
            return register(request, self.submit_manifest)
        if path[0] == "app-manifests":
            return self._manifests.serve(request, path)
        credential = _credential(request)
        if path[0] == "app":
            self._authenticator.check_app(credential)
            return self._metered("app", request, lambda: self._rest.as_app(request, path))
        only = self._authenticator.personal(credential)
        if only is not None:
            return self._known(
                "user", request, path, lambda: self._rest.as_user(request, path, only)
            )
        caller = self._authenticator.check_installation(credential)
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

    # The Python interface

    def install(self, account: str, *, kind: AccountKind = "Organization") -> int:
        """Installs the App at an account; returns the installation's id."""
        installation = self._state.install(account, kind=kind)
        self._persist()
        return installation.id

    def add_repo(self, full_name: str, *, runners_allowed: bool = True) -> int:
        """Gives the App access to a repository of an account where it is installed; returns the repository's id."""
        repo = self._state.add_repo(full_name)
        repo.runners_allowed = runners_allowed
        self._persist()
        return repo.id

    def allow_token(self, token: str, *, repo: str, hooks: bool = True) -> None:
        """Adds a personal access token for one repository, which may read its webhooks or not."""
        self._authenticator.allow(token, repository=repo, hooks=hooks)

    def add_hook(self, repo: str, *, url: str, secret: str, deliver: Deliver | None = None) -> int:
        """Adds a webhook to a repository; returns its id."""
        owner, _, name = repo.partition("/")
        found = self._state.repo(owner, name)
        if found is None:
            raise PracticeError(f"no repository {repo}")
        return self._hooks.add(found, url=url, secret=secret, deliver=deliver).id

    def submit_manifest(self, manifest: Mapping[str, Any]) -> str:
        """Submits an App's manifest as if the user had agreed on the page; returns the code of the redirect."""
        return self._manifests.submit(manifest)

    def suspend(self, installation_id: int, *, suspended: bool = True) -> None:
        """Suspends an installation, or lifts the suspension."""
        installation = self._state.installations[installation_id]
        installation.suspended_at = self._clock.now() if suspended else None
        self._state.touch("installation", installation_id)
        self._persist()

    def set_limits(
        self, *, primary_per_hour: int | None = None, points_per_minute: int | None = None
    ) -> None:
        """Limits the request rate from now on; `None` lifts a limit."""
        self.settings = msgspec.structs.replace(
            self.settings,
            primary_per_hour=primary_per_hour,
            secondary_points_per_minute=points_per_minute,
        )

    def revoke_tokens(self) -> None:
        """Revokes every installation token issued so far."""
        self._authenticator.revoke_all()
        self._persist()

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
        """Queues a job as a push would; returns its id. `run_id` adds to a run that exists."""
        self._advance()
        owner, _, name = repo.partition("/")
        found = self._state.repo(owner, name)
        if found is None:
            raise PracticeError(f"no repository {repo}")
        job = self._state.queue_job(
            found,
            tuple(labels),
            duration=duration,
            run_id=run_id,
            waiting=waiting,
            name=job_name,
            script=script,
            env=tuple((env or {}).items()),
        )
        self._persist()
        return job.id

    def approve_job(self, job_id: int) -> bool:
        """Moves a waiting job into the queue."""
        self._advance()
        approved = self._state.approve(job_id)
        self._persist()
        return approved

    def cancel_job(self, job_id: int) -> bool:
        """Cancels a job; `False` if it had ended."""
        self._advance()
        cancelled = self._state.cancel_job(job_id)
        self._persist()
        return cancelled

    def connect(self, jit: str) -> RunnerSession | Refused:
        """Connects a runner program with a JIT configuration."""
        self._advance()
        session = self._state.connect(jit)
        self._persist()
        return session

    # Reading

    def jobs(self) -> Mapping[int, Job]:
        """All jobs by id, live and not copied."""
        return self._state.jobs

    def runners(self) -> Mapping[int, Runner]:
        """All registrations by id, live and not copied."""
        return self._state.runners

    def history(self, job_id: int) -> tuple[HistoryEntry, ...]:
        """What happened to a job: (time, what, runner)."""
        return tuple(self._state.job(job_id).history)

    def attempts(self) -> tuple[Attempt, ...]:
        """Every remembered attempt to deliver a webhook, oldest first."""
        return self._log.attempts

    # Time

    async def run(self) -> None:
        """Sends webhooks and handles timeouts, until cancelled. Deliveries run concurrently, as GitHub's do."""
        self._freshness.follow(STORE_LOOP, _PERSIST_ALERT_AFTER, self._last_persisted)
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._advance()
                if not self._try_to_persist():
                    await self._clock.sleep(_PERSIST_RETRY)
                    continue
                for log, attempt in self._take_pending():
                    group.create_task(self._attempt(log, attempt))
                await self._pause()

    async def settle(self) -> None:
        """Sends everything that is pending, one after the other, and does what is due."""
        self._advance()
        self._persist()
        while pending := self._take_pending():
            for log, attempt in pending:
                await self._attempt(log, attempt)
            self._advance()
            self._persist()

    def _take_pending(self) -> list[tuple[DeliveryLog, Attempt]]:
        own = [(self._log, attempt) for attempt in self._log.take_pending()]
        return own + self._hooks.take_pending()

    async def _attempt(self, log: DeliveryLog, attempt: Attempt) -> None:
        await log.attempt(attempt)
        self._try_to_persist()

    def _advance(self) -> None:
        self._runner_routes.advance()
        self._state.advance()

    def _persist(self) -> None:
        """Writes what has changed, if there is a store; raises `StoreError`."""
        if self._persistence is not None:
            self._persistence.commit()

    def _try_to_persist(self) -> bool:
        """As `_persist`; a failure is counted, and what was not written stays due."""
        try:
            self._persist()
        except StoreError as error:
            self.internal_errors += 1
            self._trace("not_kept", {"error": error.cause})
            if self._unpersisted_since is None:
                self._unpersisted_since = self._clock.monotonic()
            return False
        self._unpersisted_since = None
        return True

    def _last_persisted(self) -> float:
        return (
            self._clock.monotonic() if self._unpersisted_since is None else self._unpersisted_since
        )

    async def _pause(self) -> None:
        due = min(self._state.next_due(), self._runner_routes.next_due())
        if due == math.inf:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, due - self._clock.monotonic())):
                await self._wake.wait()

    def _emit(self, job: Job, action: str) -> None:
        owner = self._state.installations[job.installation_id]
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
