"""The REST endpoints for authenticated callers.

Every request is one synchronous step of the state. Unknown paths answer 404, as at GitHub. A repository or
organisation that the caller's installation does not own is hidden (404) or refused (403), also as at GitHub.
"""

from collections.abc import Callable, Iterable, Sequence

from runyard.embedded.github import deliveries, render
from runyard.embedded.github.bodies import number, read_mint
from runyard.embedded.github.deliveries import DeliveryLog
from runyard.embedded.github.identity import Authenticator, Denied, NotFound, Personal
from runyard.embedded.github.limits import Faults
from runyard.embedded.github.model import Installation, Repo, Run, Runner
from runyard.embedded.github.pages import delivery_page, paged
from runyard.embedded.github.render import Json
from runyard.embedded.github.repohooks import RepoHooks
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.state import PracticeState
from runyard.http.messages import Request, Response, json_response
from runyard.wire.instants import to_rfc3339

_NOT_ACCESSIBLE = "Resource not accessible by personal access token"


class Rest:
    """GitHub's REST API over a `PracticeState`."""

    def __init__(
        self,
        *,
        state: PracticeState,
        log: DeliveryLog,
        hooks: RepoHooks,
        authenticator: Authenticator,
        faults: Faults,
        settings: Callable[[], PracticeSettings],
        app_id: int,
    ) -> None:
        self._state = state
        self._log = log
        self._hooks = hooks
        self._authenticator = authenticator
        self._faults = faults
        self._settings = settings
        self._app_id = app_id

    def as_app(self, request: Request, path: Sequence[str]) -> Response:
        """Endpoints under `/app`, for the App itself."""
        match (request.method, *path):
            case ("GET", "app"):
                return json_response(200, self._app())
            case ("GET", "app", "installations"):
                found = self._state.installations.values()
                return paged(request, found, len(found), render.installation)
            case ("GET", "app", "installations", text):
                return json_response(200, render.installation(self._installation(number(text))))
            case ("POST", "app", "installations", text, "access_tokens"):
                return self._token(number(text))
            case ("GET", "app", "hook", "deliveries"):
                return delivery_page(request, self._log)
            case ("GET", "app", "hook", "deliveries", text):
                attempt = self._log.get(number(text))
                if attempt is None:
                    raise NotFound
                return json_response(200, deliveries.detail(attempt))
            case ("POST", "app", "hook", "deliveries", text, "attempts"):
                return self._redeliver(number(text))
            case _:
                raise NotFound

    def as_installation(
        self, request: Request, path: Sequence[str], caller: Installation
    ) -> Response:
        """Endpoints of organisations and repositories."""
        match path:
            case ("orgs", org, "actions", "runners", *rest):
                scope = self._org_scope(org, caller)
                return self._runners(request, scope, rest)
            case ("repos", owner, name, "actions", "runners", *rest):
                repo = self._repo(owner, name, caller)
                if not repo.runners_allowed and rest == ["generate-jitconfig"]:
                    raise Denied(403, "Repository level self-hosted runners are disabled")
                return self._runners(request, f"repos/{repo.full_name.lower()}", rest)
            case ("repos", owner, name, "actions", *rest) if request.method == "GET":
                return self._jobs(request, self._repo(owner, name, caller), rest)
            case ("repos", owner, name, "actions", *rest) if request.method == "POST":
                return self._change(self._repo(owner, name, caller), rest)
            case ("repos", owner, name, "hooks", *rest):
                return self._hooks.serve(request, self._repo(owner, name, caller), rest)
            case ("orgs", org, "actions", "runner-groups") if request.method == "GET":
                self._org_scope(org, caller)
                return paged(request, (render.DEFAULT_GROUP,), 1, dict, key="runner_groups")
            case ("installation", "repositories") if request.method == "GET":
                repos = caller.repos.values()
                return paged(request, repos, len(repos), render.repository, key="repositories")
            case _:
                raise NotFound

    def as_user(self, request: Request, path: Sequence[str], only: Personal) -> Response:
        """Endpoints for a personal access token: those of one repository."""
        match path:
            case ("repos", owner, name, *rest) if f"{owner}/{name}".lower() == only.repository:
                if rest[:1] == ["hooks"] and not only.hooks:
                    raise Denied(403, _NOT_ACCESSIBLE)
                caller = self._state.account(owner)
                if caller is None:
                    raise NotFound
                return self.as_installation(request, path, caller)
            case ("orgs", *_):
                raise Denied(403, _NOT_ACCESSIBLE)
            case _:
                raise NotFound

    # Access

    def _org_scope(self, org: str, caller: Installation) -> str:
        owner = self._state.account(org)
        # A user's account is not an organisation.
        if owner is None or owner.kind != "Organization":
            raise NotFound
        if owner is not caller:
            raise Denied(403, "Resource not accessible by integration")
        return f"orgs/{owner.account.lower()}"

    def _repo(self, owner: str, name: str, caller: Installation) -> Repo:
        repo = self._state.repo(owner, name)
        if repo is None or caller.account != repo.owner:
            raise NotFound
        return repo

    # The App

    def _app(self) -> Json:
        return {
            "id": self._app_id,
            "slug": "runyard-practice",
            "name": "runyard practice GitHub",
            "html_url": f"{render.HOST}/apps/runyard-practice",
            "permissions": render.PERMISSIONS,
            "events": ["workflow_job"],
            "installations_count": len(self._state.installations),
        }

    def _installation(self, installation_id: int) -> Installation:
        found = self._state.installations.get(installation_id)
        if found is None:
            raise NotFound
        return found

    def _token(self, installation_id: int) -> Response:
        installation = self._installation(installation_id)
        if installation.suspended_at is not None:
            raise Denied(403, "This installation has been suspended")
        token, ends = self._authenticator.grant(installation)
        return json_response(201, {"token": token, "expires_at": to_rfc3339(ends)})

    def _redeliver(self, delivery_id: int) -> Response:
        attempt = self._log.get(delivery_id)
        if attempt is None:
            raise NotFound
        self._log.redeliver(attempt)
        return json_response(202, {})

    # Runners

    def _runners(self, request: Request, scope: str, rest: list[str]) -> Response:
        match (request.method, *rest):
            case ("POST", "generate-jitconfig"):
                return self._mint(request, scope)
            case ("GET",):
                return self._list_runners(request, scope)
            case ("GET", "downloads"):
                return json_response(200, render.DOWNLOADS)
            case ("GET", text):
                return json_response(200, render.runner(self._runner(scope, text)))
            case ("DELETE", text):
                return self._delete(self._runner(scope, text))
            case _:
                raise NotFound

    def _runner(self, scope: str, text: str) -> Runner:
        runner = self._state.runners.get(number(text))
        if runner is None or runner.scope != scope:
            raise NotFound
        return runner

    def _list_runners(self, request: Request, scope: str) -> Response:
        name = request.param("name")
        if name:
            named = self._state.runner_named(scope, name)
            found: Iterable[Runner] = () if named is None else (named,)
            total = 0 if named is None else 1
        else:
            held = self._state.runners_of(scope)
            found, total = held.values(), len(held)
        return paged(request, found, total, render.runner, key="runners")

    def _mint(self, request: Request, scope: str) -> Response:
        mint = read_mint(request.body)
        if self._state.runner_named(scope, mint.name) is not None:
            raise Denied(409, "Already exists - A runner with that name already exists.")
        if len(self._state.runners_of(scope)) >= self._settings().runners_per_scope:
            raise Denied(422, "The runner group has reached its maximum of runners")
        runner = self._state.register(
            scope,
            name=mint.name,
            labels=mint.labels,
            group_id=mint.runner_group_id,
            work_folder=mint.work_folder,
        )
        answer = {"runner": render.runner(runner), "encoded_jit_config": runner.jit}
        return self._faults.after_mint() or json_response(201, answer)

    def _delete(self, runner: Runner) -> Response:
        if runner.busy:
            raise Denied(422, f"Runner {runner.name} is currently running a job")
        self._state.remove(runner, why="deleted")
        return Response(status=204)

    # Jobs and runs

    def _jobs(self, request: Request, repo: Repo, rest: list[str]) -> Response:
        match rest:
            case ["jobs", text]:
                job = self._state.jobs.get(number(text))
                if job is None or job.repo is not repo:
                    raise NotFound
                return json_response(200, render.job(job))
            case ["runs"]:
                runs = self._runs(repo, request.param("status"))
                return paged(request, runs, len(runs), render.run, key="workflow_runs")
            case ["runs", text]:
                return json_response(200, render.run(self._run(repo, text)))
            case ["runs", text, "jobs"]:
                jobs = self._run(repo, text).jobs
                return paged(request, jobs.values(), len(jobs), render.job, key="jobs")
            case _:
                raise NotFound

    def _change(self, repo: Repo, rest: list[str]) -> Response:
        match rest:
            case ["runs", text, "cancel"]:
                run = self._run(repo, text)
                if run.status == "completed":
                    raise Denied(409, "Cannot cancel a workflow run that is completed")
                for job in tuple(run.jobs.values()):
                    self._state.cancel_job(job.id)
                return json_response(202, {})
            case ["jobs", text, "rerun"]:
                return self._rerun(repo, number(text))
            case _:
                raise NotFound

    def _rerun(self, repo: Repo, job_id: int) -> Response:
        job = self._state.jobs.get(job_id)
        if job is None or job.repo is not repo:
            raise NotFound
        if self._run(repo, str(job.run_id)).status != "completed":
            raise Denied(403, "The workflow run containing this job is already running")
        self._state.queue_job(
            repo,
            job.labels,
            duration=job.duration,
            run_id=job.run_id,
            waiting=False,
            name=job.name,
            script=job.script,
            env=job.env,
            attempt=job.attempt + 1,
        )
        return json_response(201, {})

    def _runs(self, repo: Repo, status: str) -> list[Run]:
        is_open = status in ("queued", "in_progress", "waiting", "requested", "pending")
        runs = self._state.runs_of(repo, open_only=is_open)
        newest_first = reversed(list(runs.values()))
        return [run for run in newest_first if status in ("", run.status)]

    def _run(self, repo: Repo, text: str) -> Run:
        run = self._state.runs_of(repo).get(number(text))
        if run is None:
            raise NotFound
        return run
