"""The routes under `/practice/`: push jobs, cancel them, and read what happened. GitHub offers this on its site.

All of them need one bearer token. Lists are newest first and paged by `limit=` and `before=` (an id).

Invariant: input is validated here; a refused request has no effect and is answered with the reason.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from runyard.embedded.github import views
from runyard.embedded.github.bodies import number
from runyard.embedded.github.deliveries import DeliveryLog
from runyard.embedded.github.identity import Denied
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.model import AccountKind, Job, PracticeError
from runyard.embedded.github.state import PracticeState
from runyard.http.messages import Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Answers, Route
from runyard.wire.problem_codes import ProblemCode

T = TypeVar("T")
_MAX_PAGE = 1000
_LOG_PAGE = 1 << 20
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAGED = (
    ("limit", f"The size of the page, at most {_MAX_PAGE}; 100 by default."),
    ("before", "Only records with a lower id."),
)

_GONE: Answers = {404: ("It does not exist.", Problem)}
_LATE: Answers = {409: ("The state does not allow it.", Problem)}
_INSTALLED: Answers = {
    201: ("Installed.", views.AccountView),
    200: ("It was already installed.", views.AccountView),
    **_LATE,
}
_ADDED: Answers = {
    201: ("Added.", views.RepoView),
    200: ("It already existed.", views.RepoView),
    **_LATE,
}
_QUEUED: Answers = {201: ("Queued.", views.JobView), **_LATE}
_ONE_JOB: Answers = {200: ("The job as it is now.", views.JobView), **_GONE}
_SOME_LOG: Answers = {200: ("At most one MiB; headers carry the size.", None), **_GONE}
_SENT: Answers = {200: ("A page.", views.Deliveries)}
_AGAIN: Answers = {202: ("It will be delivered again.", None), **_GONE}

# `$` alone would let a line break pass at the end.
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")]
FullName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9._-]{1,100}$(?!\n)")
]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class InstallBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that installs the App at an account."""

    account: Name
    kind: AccountKind = "Organization"


class RepoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that gives the App access to a repository."""

    repo: FullName
    runners_allowed: bool = True


class JobBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body that queues a job."""

    repo: FullName
    labels: Annotated[tuple[Label, ...], msgspec.Meta(min_length=1, max_length=100)]
    script: Annotated[str, msgspec.Meta(max_length=64 << 10)] = ""
    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    duration: Annotated[float, msgspec.Meta(ge=0, le=7 * 86400)] | None = None
    env: Annotated[dict[str, str], msgspec.Meta(max_length=100)] = {}
    run_id: int | None = None
    waiting: bool = False


class PracticeRoutes:
    """Serves what GitHub's site offers to its users, to callers with the token."""

    def __init__(self, *, state: PracticeState, log: DeliveryLog, logs: Logs, token: str) -> None:
        self._state = state
        self._deliveries = log
        self._logs = logs
        self._token = token.encode()

    def routes(self) -> tuple[Route, ...]:
        """The table of routes, all of them behind the guard."""
        at = "/practice"
        job, delivery = f"{at}/jobs/{{job}}", f"{at}/deliveries/{{delivery}}"
        offset = (("offset", "Where to start, in bytes."),)
        some = (
            *_PAGED,
            ("status", "Only jobs with this status."),
            ("repo", "Only jobs of this repository."),
        )
        return (
            _route("POST", f"{at}/accounts", self._install, _INSTALLED, body=InstallBody),
            _route("GET", f"{at}/accounts", self._accounts, {200: ("All.", views.Accounts)}),
            _route("POST", f"{at}/repos", self._add_repo, _ADDED, body=RepoBody),
            _route("POST", f"{at}/jobs", self._queue, _QUEUED, body=JobBody),
            _route("GET", f"{at}/jobs", self._list, {200: ("A page.", views.Jobs)}, query=some),
            _route("GET", job, self._show, _ONE_JOB),
            _route("POST", f"{job}/cancel", self._cancel, {**_ONE_JOB, **_LATE}),
            _route("POST", f"{job}/approve", self._approve, {**_ONE_JOB, **_LATE}),
            _route("GET", f"{job}/log", self._log, _SOME_LOG, query=offset, media="text/plain"),
            _route("GET", f"{at}/runners", self._runners, {200: ("All.", views.Runners)}),
            _route("GET", f"{at}/deliveries", self._attempts, _SENT, query=_PAGED),
            _route("POST", f"{delivery}/redeliver", self._redeliver, _AGAIN),
        )

    async def guard(self, request: Request) -> Response | None:
        """Refuses callers without the token."""
        if not self._token:
            fix = "start the practice GitHub with a practice token"
            return problem(403, ProblemCode.PRACTICE_DISABLED, fix=fix)
        if not self._has_token(request):
            return problem(
                401, ProblemCode.PRACTICE_CREDENTIALS, fix="send the practice token as bearer token"
            )
        return None

    def check_registration(self, request: Request) -> None:
        """Refuses to register an App without the token, if there is one; raises `Denied`.

        At GitHub only a user who is logged in can do this. The new key belongs to the one App of this GitHub, so
        it gives control of the runners and the jobs.
        """
        if self._token and not self._has_token(request):
            raise Denied(401, "Send the practice token as bearer token to register an App")

    def _has_token(self, request: Request) -> bool:
        kind, _, token = request.header("authorization").partition(" ")
        given = token.encode("utf-8", "surrogatepass")
        return kind.lower() == "bearer" and hmac.compare_digest(given, self._token)

    # Accounts and repositories

    async def _install(self, _: Request, *, body: InstallBody) -> Response:
        """Install the App at an account."""
        held = self._state.account(body.account)
        if held is None:
            made = self._state.install(body.account, kind=body.kind)
            return json_response(201, views.account(made))
        if held.kind != body.kind:
            reason = f"the App is installed at the {held.kind} {held.account}"
            return problem(409, ProblemCode.PRACTICE_INSTALLED_OTHERWISE, reason=reason)
        return json_response(200, views.account(held))

    async def _accounts(self, _: Request) -> Response:
        """Accounts with the App installed."""
        found = tuple(views.account(each) for each in self._state.installations.values())
        return json_response(200, views.Accounts(found))

    async def _add_repo(self, request: Request, *, body: RepoBody) -> Response:
        """Give the App access to a repository."""
        owner, _, name = body.repo.partition("/")
        installation = self._state.account(owner)
        if installation is None:
            reason = f"the App is not installed at {owner}"
            fix = "install it: POST /practice/accounts"
            return problem(409, ProblemCode.PRACTICE_ACCOUNT_UNKNOWN, reason=reason, fix=fix)
        held = self._state.repo(owner, name)
        repo = held or self._state.add_repo(body.repo)
        repo.runners_allowed = body.runners_allowed
        self._state.touch("installation", installation.id)
        return json_response(200 if held else 201, views.repo(repo))

    # Jobs

    async def _queue(self, request: Request, *, body: JobBody) -> Response:
        """Queue a job."""
        unfit = [name for name in body.env if not _ENV_NAME.fullmatch(name)]
        if unfit or any("\0" in text for text in (body.script, body.name, *body.env.values())):
            reason = "an invalid variable name in env, or a NUL byte"
            return problem(422, ProblemCode.PRACTICE_JOB_INVALID, reason=reason)
        owner, _, name = body.repo.partition("/")
        repo = self._state.repo(owner, name)
        if repo is None:
            fix = "add it: POST /practice/repos"
            return problem(409, ProblemCode.PRACTICE_REPOSITORY_UNKNOWN, reason=body.repo, fix=fix)
        try:
            job = self._state.queue_job(
                repo,
                body.labels,
                duration=body.duration,
                run_id=body.run_id,
                waiting=body.waiting,
                name=body.name,
                script=body.script,
                env=tuple(body.env.items()),
            )
        except PracticeError as error:
            return problem(409, ProblemCode.PRACTICE_JOB_REFUSED, reason=str(error))
        return json_response(201, self._shown(job))

    async def _list(self, request: Request) -> Response:
        """Jobs, newest first."""
        status, repo = request.param("status"), request.param("repo").lower()
        fitting = (
            job
            for job in reversed(list(self._state.jobs.values()))
            if status in ("", job.status) and repo in ("", job.repo.full_name.lower())
        )
        found, before = _page(request, fitting, lambda job: job.id)
        return json_response(200, views.Jobs(tuple(map(self._shown, found)), before))

    async def _show(self, _: Request, *, job: str) -> Response:
        """One job."""
        found = self._state.jobs.get(number(job))
        return _no_job() if found is None else json_response(200, self._shown(found))

    async def _cancel(self, _: Request, *, job: str) -> Response:
        """Cancel a job: at once if it is queued, else when its runner ends it."""
        return self._moved(job, self._state.cancel_job)

    async def _approve(self, _: Request, *, job: str) -> Response:
        """Move a waiting job into the queue."""
        return self._moved(job, self._state.approve)

    async def _log(self, request: Request, *, job: str) -> Response:
        """A job's log."""
        found = self._state.jobs.get(number(job))
        if found is None:
            return _no_job()
        start = number(request.param("offset"))
        headers = (
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("x-runyard-log-size", str(self._logs.size(found.id))),
            ("x-runyard-job-status", found.status),
        )
        chunk = self._logs.read(found.id, start, start + _LOG_PAGE)
        return Response(status=200, headers=headers, body=chunk)

    def _moved(self, text: str, move: Callable[[int], bool]) -> Response:
        job = self._state.jobs.get(number(text))
        if job is None:
            return _no_job()
        if not move(job.id):
            reason = f"the job is {job.status}" + (f": {job.conclusion}" if job.conclusion else "")
            return problem(409, ProblemCode.PRACTICE_JOB_STATE, reason=reason)
        return json_response(200, self._shown(job))

    def _shown(self, job: Job) -> views.JobView:
        return views.job(job, log_size=self._logs.size(job.id))

    # Runners and webhooks

    async def _runners(self, _: Request) -> Response:
        """Registrations, oldest first."""
        found = tuple(views.runner(each) for each in self._state.runners.values())
        return json_response(200, views.Runners(found))

    async def _attempts(self, request: Request) -> Response:
        """Attempts to deliver webhooks, newest first."""
        newest_first = reversed(self._deliveries.attempts)
        found, before = _page(request, newest_first, lambda each: each.delivery.id)
        return json_response(200, views.Deliveries(tuple(map(views.delivery, found)), before))

    async def _redeliver(self, _: Request, *, delivery: str) -> Response:
        """Deliver a webhook once more."""
        attempt = self._deliveries.get(number(delivery))
        if attempt is None:
            return problem(
                404,
                ProblemCode.PRACTICE_DELIVERY_UNKNOWN,
                reason="unknown, expired, or not finished yet",
            )
        self._deliveries.redeliver(attempt)
        return json_response(202, {})


def _route(
    method: str,
    path: str,
    handler: Callable[..., Awaitable[Response]],
    answers: Answers,
    *,
    body: Any = None,
    query: tuple[tuple[str, str], ...] = (),
    media: str = "application/json",
) -> Route:
    """Builds a route; the handler's docstring is its summary."""
    summary = (handler.__doc__ or "").strip()
    return Route(
        method,
        path,
        handler,
        summary,
        body=body,
        answers=answers,
        secured=True,
        query=query,
        media=media,
    )


def _page(
    request: Request, newest_first: Iterable[T], key: Callable[[T], int]
) -> tuple[list[T], int | None]:
    """The requested page, and the `before` of the next page."""
    limit = min(number(request.param("limit")) or 100, _MAX_PAGE)
    before = number(request.param("before"))
    found: list[T] = []
    for each in newest_first:
        if before and key(each) >= before:
            continue
        if len(found) == limit:
            return found, key(found[-1])
        found.append(each)
    return found, None


def _no_job() -> Response:
    return problem(404, ProblemCode.PRACTICE_JOB_UNKNOWN)
