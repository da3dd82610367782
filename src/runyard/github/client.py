"""A client of the GitHub API: registrations, runners, jobs.

Mint and delete registrations, read runners and jobs; `hooks` adds deliveries, `setup` the calls for installation and
checks. Every call spends from one budget, goes through one transport with a deadline, and ends in a value or in an
error of `errors` that shows what may be concluded. Nothing is retried here, except once after a 401 with a fresh
token (a 401 proves that nothing happened): how often and when to try again is the caller's policy.

Invariants:
- A failure to get the token is `NoToken`, or `Unauthorized` if our own key is not accepted, hence definite: the
  call itself was never made.
- A 2xx that cannot be read is `Unreadable`, hence unknown: a runner may exist although we cannot name it.
- Lists are read page by page while they change; an item may be missed or seen twice. Absence from a
  list proves nothing.
"""

from typing import TypeVar

import msgspec

from runyard.clock import Clock
from runyard.github import answers, errors
from runyard.github.app import Auth
from runyard.github.budget import Spending
from runyard.github.calls import Calls, read
from runyard.github.hooks import Hooks
from runyard.github.scope import Scope
from runyard.github.setup import Setup
from runyard.github.views import JobView, MintedRunner, Removal, RunnerView, RunView
from runyard.http.messages import Pairs, Transport

T = TypeVar("T")
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
_runners = msgspec.json.Decoder(_Runners)
_job = msgspec.json.Decoder(JobView)
_jobs = msgspec.json.Decoder(_Jobs)
_run = msgspec.json.Decoder(RunView)
_runs = msgspec.json.Decoder(_Runs)


class GitHub(Hooks, Setup):
    """GitHub's REST API, as far as a fleet of runners needs it."""

    def __init__(
        self,
        transport: Transport,
        *,
        app: Auth,
        clock: Clock,
        budget: Spending,
        timeout: float = 10.0,
    ) -> None:
        calls = Calls(transport, app=app, clock=clock, budget=budget, timeout=timeout)
        Hooks.__init__(self, calls)
        Setup.__init__(self, calls)

    @property
    def only(self) -> Scope | None:
        """The one repository that we may act in, if it is only one: there is a token and no App."""
        return self._calls.only

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
        paid: bool = False,
    ) -> MintedRunner:
        """Register an ephemeral runner. After any `Unknown`, fence by `name` before freeing anything.

        `paid`: the points of this write were taken from the budget already.
        """
        body = {
            "name": name,
            "runner_group_id": group_id,
            "labels": labels,
            "work_folder": work_folder,
        }
        path = f"/{scope}/actions/runners/generate-jitconfig"
        response = await self._calls.as_installation(
            scope, "POST", path, purpose="mint", body=msgspec.json.encode(body), paid=paid
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

    async def find_runner(self, scope: Scope, name: str) -> RunnerView | None:
        """The registration of exactly that name; `None` only after a list that was read to its end."""
        return await self._find_runner(scope, name, purpose="fence")

    async def find_runners(
        self, scope: Scope, names: tuple[str, ...], *, purpose: str
    ) -> tuple[RunnerView, ...]:
        """The registrations of exactly these names; a name that is not among them has none.

        A scope with few runners costs one request. If they are on several pages, one may be missed while the list
        changes, so each name is then looked up on its own.
        """
        path = f"/{scope}/actions/runners"
        batch = await self._runner_page(scope, path, page=1, name="", purpose=purpose)
        found = {runner.name: runner for runner in batch.runners if runner.name in names}
        if len(batch.runners) >= _PAGE:
            for name in names:
                runner = found.get(name) or await self._find_runner(scope, name, purpose=purpose)
                if runner is not None:
                    found[name] = runner
        return tuple(found[name] for name in names if name in found)

    async def _find_runner(self, scope: Scope, name: str, *, purpose: str) -> RunnerView | None:
        path = f"/{scope}/actions/runners"
        for page in range(1, _MAX_PAGES + 1):
            batch = await self._runner_page(scope, path, page=page, name=name, purpose=purpose)
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
        return await self._one(repo, f"jobs/{job_id}", _job, what="job", purpose=purpose)

    async def get_run(self, repo: Scope, run_id: int, *, purpose: str = "read") -> RunView | None:
        """One workflow run; `None` on 404, which also a lost permission causes."""
        return await self._one(repo, f"runs/{run_id}", _run, what="run", purpose=purpose)

    async def _one(
        self, repo: Scope, path: str, decoder: "msgspec.json.Decoder[T]", *, what: str, purpose: str
    ) -> T | None:
        response = await self._calls.as_installation(
            repo, "GET", f"/{_repo(repo)}/actions/{path}", purpose=purpose
        )
        if response.status == 404:
            return None
        named = f"{what} {path.rpartition('/')[2]} at {repo}"
        self._calls.require(response, what=named, scope=repo)
        return read(decoder, response, what=named)

    async def list_queued_jobs(self, repo: Scope, *, purpose: str = "read") -> tuple[JobView, ...]:
        """Jobs that wait for a runner, of the runs that are queued or under way, by id."""
        jobs = await self.list_open_jobs(repo, purpose=purpose)
        return tuple(job for job in jobs if job.status == "queued")

    async def list_open_jobs(self, repo: Scope, *, purpose: str = "read") -> tuple[JobView, ...]:
        """All jobs of the runs that are queued or under way, by id; some of them may be over."""
        runs: dict[int, None] = {}
        for status in ("queued", "in_progress"):
            for run_id in await self._run_ids(repo, status, purpose):
                runs[run_id] = None
        found: dict[int, JobView] = {}
        for run_id in runs:
            for job in await self._run_jobs(repo, run_id, purpose):
                found[job.id] = job
        return tuple(found[job_id] for job_id in sorted(found))

    async def run_jobs(self, repo: Scope, run_id: int) -> tuple[JobView, ...]:
        """All jobs of one run, its last attempt."""
        return await self._run_jobs(repo, run_id, "user")

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

    async def _run_ids(self, repo: Scope, status: str, purpose: str) -> tuple[int, ...]:
        found: list[int] = []
        path = f"/{_repo(repo)}/actions/runs"
        for page in range(1, _MAX_PAGES + 1):
            query = (("status", status), ("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_installation(
                repo, "GET", path, query=query, purpose=purpose
            )
            self._calls.require(response, what=f"runs at {repo}", scope=repo)
            batch = read(_runs, response, what=f"runs at {repo}")
            found.extend(run.id for run in batch.workflow_runs)
            if len(batch.workflow_runs) < _PAGE:
                break
        return tuple(found)

    async def _run_jobs(self, repo: Scope, run_id: int, purpose: str) -> tuple[JobView, ...]:
        found: list[JobView] = []
        path = f"/{_repo(repo)}/actions/runs/{run_id}/jobs"
        for page in range(1, _MAX_PAGES + 1):
            query = (("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_installation(
                repo, "GET", path, query=query, purpose=purpose
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
