"""The few calls that runyard makes to GitHub.

Mint and delete registrations, read runners and jobs, list and redeliver webhooks. Every call spends from one
budget, goes through one transport with a deadline, and ends in a value or in an error of `errors` that says
what may be concluded. Nothing is retried here, except once after a 401 with a fresh token (a 401 proves that
nothing happened): how often and when to try again is the caller's policy.

Invariants:
- A failure to get the token is `NoToken`, hence definite: the call itself was never made.
- A 2xx that cannot be read is `Unreadable`, hence unknown: a runner may exist although we cannot name it.
- Lists are read page by page while the world moves; an item may be missed or seen twice. Absence from a
  list proves nothing.
"""

import msgspec

from runyard.clock import Clock
from runyard.github import answers, errors
from runyard.github.app import AppAuth
from runyard.github.budget import Budget
from runyard.github.calls import Calls, read
from runyard.github.scope import Scope
from runyard.github.views import (
    DeliveryPage,
    DeliveryView,
    FullDelivery,
    InstallationView,
    JobView,
    MintedRunner,
    Removal,
    RunnerView,
)
from runyard.http.messages import Pairs, Transport

_PAGE = 100
_MAX_PAGES = 200


class _RunnerId(msgspec.Struct):
    id: int


class _Mint(msgspec.Struct):
    runner: _RunnerId
    encoded_jit_config: str


class _Runners(msgspec.Struct):
    runners: tuple[RunnerView, ...]
    total_count: int = 0


class _Jobs(msgspec.Struct):
    jobs: tuple[JobView, ...]
    total_count: int = 0


class _Runs(msgspec.Struct):
    workflow_runs: tuple[_RunnerId, ...]
    total_count: int = 0


_mint = msgspec.json.Decoder(_Mint)
_runner = msgspec.json.Decoder(RunnerView)
_runners = msgspec.json.Decoder(_Runners)
_job = msgspec.json.Decoder(JobView)
_jobs = msgspec.json.Decoder(_Jobs)
_runs = msgspec.json.Decoder(_Runs)
_attempts = msgspec.json.Decoder(tuple[DeliveryView, ...])
_attempt = msgspec.json.Decoder(FullDelivery)
_installations = msgspec.json.Decoder(tuple[InstallationView, ...])


class GitHub:
    """GitHub's REST API, as far as a fleet of runners needs it."""

    def __init__(
        self,
        transport: Transport,
        *,
        app: AppAuth,
        clock: Clock,
        budget: Budget,
        base_path: str = "",
        timeout: float = 10.0,
    ) -> None:
        self._calls = Calls(
            transport, app=app, clock=clock, budget=budget, base_path=base_path, timeout=timeout
        )

    @property
    def last_answer(self) -> float | None:
        """Wall-clock time of GitHub's last answer other than 5xx; `None` before the first."""
        return self._calls.last_answer

    async def generate_jit(
        self,
        scope: Scope,
        *,
        name: str,
        labels: tuple[str, ...],
        group_id: int = 1,
        work_folder: str = "_work",
    ) -> MintedRunner:
        """Register an ephemeral runner. After any `Unknown`, fence by `name` before freeing anything."""
        body = {
            "name": name,
            "runner_group_id": group_id,
            "labels": labels,
            "work_folder": work_folder,
        }
        path = f"/{scope}/actions/runners/generate-jitconfig"
        response = await self._calls.as_installation(
            scope, "POST", path, purpose="mint", body=msgspec.json.encode(body)
        )
        if response.status == 409:
            text = f"mint at {scope}: 409 {answers.message_of(response)}"
            raise errors.NameTaken(text, status=409, scope="job")
        self._calls.require(response, what=f"mint at {scope}", scope=scope)
        minted = read(_mint, response, what=f"mint at {scope}")
        return MintedRunner(
            runner_id=minted.runner.id, encoded_jit_config=minted.encoded_jit_config
        )

    async def delete_runner(self, scope: Scope, runner_id: int) -> Removal:
        """The fence: after `DELETED` that runner can never take a job; `BUSY` proves that it has one."""
        path = f"/{scope}/actions/runners/{runner_id}"
        response = await self._calls.as_installation(scope, "DELETE", path, purpose="fence")
        if response.status == 404:
            return Removal.ABSENT
        if response.status == 422:
            # The only documented reason; if there ever is another, "busy" errs on the side of not killing.
            return Removal.BUSY
        self._calls.require(response, what=f"delete runner {runner_id} at {scope}", scope=scope)
        return Removal.DELETED

    async def get_runner(self, scope: Scope, runner_id: int) -> RunnerView | None:
        """One registration; `None` on 404, which also a lost permission causes."""
        path = f"/{scope}/actions/runners/{runner_id}"
        response = await self._calls.as_installation(scope, "GET", path, purpose="fence")
        if response.status == 404:
            return None
        self._calls.require(response, what=f"runner {runner_id} at {scope}", scope=scope)
        return read(_runner, response, what=f"runner {runner_id} at {scope}")

    async def find_runner(self, scope: Scope, name: str) -> RunnerView | None:
        """The registration of exactly that name; `None` only after a list that was read to its end."""
        path = f"/{scope}/actions/runners"
        for page in range(1, _MAX_PAGES + 1):
            batch = await self._runner_page(scope, path, page=page, name=name, purpose="fence")
            for runner in batch.runners:
                if runner.name == name:
                    return runner
            if len(batch.runners) < _PAGE:
                return None
        raise errors.Unreadable(f"runners at {scope}: no end after {_MAX_PAGES} pages")

    async def list_runners(self, scope: Scope) -> tuple[RunnerView, ...]:
        """All registrations of a scope."""
        found: list[RunnerView] = []
        path = f"/{scope}/actions/runners"
        for page in range(1, _MAX_PAGES + 1):
            batch = await self._runner_page(scope, path, page=page, name="", purpose="read")
            found.extend(batch.runners)
            if len(batch.runners) < _PAGE:
                return tuple(found)
        raise errors.Unreadable(f"runners at {scope}: no end after {_MAX_PAGES} pages")

    async def get_job(self, repo: Scope, job_id: int, *, purpose: str = "read") -> JobView | None:
        """One workflow job, fresh; `None` on 404, which also a lost permission causes."""
        path = f"/{_repo(repo)}/actions/jobs/{job_id}"
        response = await self._calls.as_installation(repo, "GET", path, purpose=purpose)
        if response.status == 404:
            return None
        self._calls.require(response, what=f"job {job_id} at {repo}", scope=repo)
        return read(_job, response, what=f"job {job_id} at {repo}")

    async def list_queued_jobs(self, repo: Scope) -> tuple[JobView, ...]:
        """Jobs that wait for a runner, of the runs that are queued or under way, by id."""
        runs: dict[int, None] = {}
        for status in ("queued", "in_progress"):
            for run_id in await self._run_ids(repo, status):
                runs[run_id] = None
        queued: dict[int, JobView] = {}
        for run_id in runs:
            for job in await self._run_jobs(repo, run_id):
                if job.status == "queued":
                    queued[job.id] = job
        return tuple(queued[job_id] for job_id in sorted(queued))

    async def deliveries(self, *, cursor: str = "") -> DeliveryPage:
        """One page of attempts to deliver the App's webhook, newest first."""
        query: Pairs = (("per_page", str(_PAGE)),)
        if cursor:
            query = (*query, ("cursor", cursor))
        response = await self._calls.as_app(
            "GET", "/app/hook/deliveries", query=query, purpose="audit"
        )
        self._calls.require(response, what="deliveries")
        items = read(_attempts, response, what="deliveries")
        return DeliveryPage(items=items, next_cursor=answers.next_cursor(response))

    async def deliveries_since(self, moment: float) -> tuple[tuple[DeliveryView, ...], bool]:
        """Every attempt at or after `moment`, newest first, and whether these are really all of them.

        An attempt shows only once it has ended: look back further than the receiver's timeout.
        """
        found: list[DeliveryView] = []
        cursor = ""
        for _ in range(_MAX_PAGES):
            page = await self.deliveries(cursor=cursor)
            try:
                recent = [item for item in page.items if item.moment >= moment]
            except ValueError:
                raise errors.Unreadable("deliveries: an instant that is none") from None
            found.extend(recent)
            cursor = page.next_cursor
            if not cursor or len(recent) < len(page.items):
                return tuple(found), True
        return tuple(found), False

    async def delivery(self, delivery_id: int) -> FullDelivery | None:
        """One attempt with its payload; `None` when GitHub no longer keeps it."""
        path = f"/app/hook/deliveries/{delivery_id}"
        response = await self._calls.as_app("GET", path, purpose="audit")
        if response.status == 404:
            return None
        self._calls.require(response, what=f"delivery {delivery_id}")
        return read(_attempt, response, what=f"delivery {delivery_id}")

    async def redeliver(self, delivery_id: int) -> bool:
        """Ask for another attempt; `False` when GitHub no longer keeps that one."""
        path = f"/app/hook/deliveries/{delivery_id}/attempts"
        response = await self._calls.as_app("POST", path, purpose="audit")
        if response.status == 404:
            return False
        self._calls.require(response, what=f"redeliver {delivery_id}")
        return True

    async def installations(self) -> tuple[InstallationView, ...]:
        """Where the App is installed."""
        found: list[InstallationView] = []
        for page in range(1, _MAX_PAGES + 1):
            query = (("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_app(
                "GET", "/app/installations", query=query, purpose="read"
            )
            self._calls.require(response, what="installations")
            batch = read(_installations, response, what="installations")
            found.extend(batch)
            if len(batch) < _PAGE:
                break
        return tuple(found)

    async def _runner_page(
        self, scope: Scope, path: str, *, page: int, name: str, purpose: str
    ) -> _Runners:
        query: Pairs = (("per_page", str(_PAGE)), ("page", str(page)))
        if name:
            query = (*query, ("name", name))
        response = await self._calls.as_installation(
            scope, "GET", path, query=query, purpose=purpose
        )
        self._calls.require(response, what=f"runners at {scope}", scope=scope)
        return read(_runners, response, what=f"runners at {scope}")

    async def _run_ids(self, repo: Scope, status: str) -> tuple[int, ...]:
        found: list[int] = []
        path = f"/{_repo(repo)}/actions/runs"
        for page in range(1, _MAX_PAGES + 1):
            query = (("status", status), ("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_installation(
                repo, "GET", path, query=query, purpose="read"
            )
            self._calls.require(response, what=f"runs at {repo}", scope=repo)
            batch = read(_runs, response, what=f"runs at {repo}")
            found.extend(run.id for run in batch.workflow_runs)
            if len(batch.workflow_runs) < _PAGE:
                break
        return tuple(found)

    async def _run_jobs(self, repo: Scope, run_id: int) -> tuple[JobView, ...]:
        found: list[JobView] = []
        path = f"/{_repo(repo)}/actions/runs/{run_id}/jobs"
        for page in range(1, _MAX_PAGES + 1):
            query = (("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_installation(
                repo, "GET", path, query=query, purpose="read"
            )
            if response.status == 404:
                break  # the run was deleted since it was listed
            self._calls.require(response, what=f"jobs of run {run_id} at {repo}", scope=repo)
            batch = read(_jobs, response, what=f"jobs of run {run_id} at {repo}")
            found.extend(batch.jobs)
            if len(batch.jobs) < _PAGE:
                break
        return tuple(found)


def _repo(scope: Scope) -> Scope:
    if scope.kind != "repos":
        raise ValueError(f"jobs belong to a repository, not to {scope}")
    return scope
