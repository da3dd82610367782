"""Serves the REST API for tenants and jobs, behind the dashboard's authentication.

    GET   /api/v1/tenants                  tenants and what they use
    GET   /api/v1/tenants/{tenant}         one tenant, with repositories and the audit trail
    PATCH /api/v1/tenants/{tenant}         change limits, weights or a pause
    GET   /api/v1/jobs                     jobs, newest first
    GET   /api/v1/jobs/{job}               one job, its runner, its transitions
    POST  /api/v1/jobs/{job}/cancel        cancel its run at GitHub
    POST  /api/v1/jobs/{job}/retry         re-run it at GitHub

Invariants:
- Every request that changes something needs a JSON body, also an empty one: a browser sends that to another site only
  after a CORS preflight, which is never granted here.
- No request makes a handler raise: bad input is 400 or 404, a refusal by GitHub 409 or 502, a database outage 503.
- The actor is what the client claims (`x-runyard-actor`); the authentication proved only that it may call.
"""

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from runyard.db.contract import DatabaseError
from runyard.dispatch.rest.jobs import Filter, JobService, Refusal
from runyard.dispatch.rest.tenant_update import InvalidPatch
from runyard.dispatch.rest.tenants import TenantService
from runyard.github.errors import GitHubError
from runyard.http.messages import Request, Response, json_response
from runyard.http.problems import Problem, problem, refusal
from runyard.http.routes import Answers, Route
from runyard.telemetry.log import Logger
from runyard.wire import rest as wire
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import Code
from runyard.wire.reasons_dispatch import Requested

LIMIT, MOST = 50, 500
STATES = ("waiting", "queued", "bound", "running", "done")
_LOGIN = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ACTOR = re.compile(r"[\x20-\x7e]{1,100}", re.ASCII)
_SMALL = 64 << 10

_COMMON: Answers = {
    421: ("The request's host is not a name of this server.", Problem),
    503: ("The database is unavailable.", Problem),
}
_UNKNOWN: Answers = {404: ("It does not exist.", Problem)}
_BAD: Answers = {400: ("A parameter is invalid.", Problem)}
_ASKED: Answers = {
    202: ("GitHub accepted the request.", wire.Asked),
    409: ("The job's state does not allow it, or the request must confirm more.", Problem),
    502: ("GitHub refused, or did not answer.", Problem),
    **_UNKNOWN,
    **_COMMON,
}
_PAGE = ("limit", f"at most so many, 1 to {MOST}; default {LIMIT}")

Handler = Callable[..., Awaitable[Response]]


class BadQuery(Exception):
    """A parameter is invalid; the message names it and the valid values."""


class Rest:
    """Answers REST requests."""

    def __init__(self, *, tenants: TenantService, jobs: JobService, log: Logger) -> None:
        self._tenants_service = tenants
        self._jobs_service = jobs
        self._log = log

    def routes(self) -> tuple[Route, ...]:
        """Return all routes with their documentation."""
        return (*self._tenant_routes(), *self._job_routes())

    def _tenant_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                wire.TENANTS,
                self._with_problems(self._tenants),
                summary="Tenants by name, with what each uses.",
                answers={200: ("A page of them.", wire.Tenants), **_BAD, **_COMMON},
                query=(
                    _PAGE,
                    ("after", "the `next` of the page before"),
                    ("paused", "`true`: only those that are paused"),
                ),
                secured=True,
            ),
            Route(
                "GET",
                wire.TENANT,
                self._with_problems(self._tenant),
                summary="One tenant, its repositories, and the audit trail.",
                answers={200: ("The tenant.", wire.Tenant), **_UNKNOWN, **_COMMON},
                secured=True,
            ),
            Route(
                "PATCH",
                wire.TENANT,
                self._with_problems(self._change),
                summary="Change limits, weights or a pause; omitted fields stay.",
                body=wire.TenantPatch,
                answers={200: ("The tenant as it is now.", wire.Tenant), **_UNKNOWN, **_COMMON},
                headers=((wire.ACTOR, "the actor, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
        )

    def _job_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                wire.JOBS,
                self._with_problems(self._jobs),
                summary="Jobs, newest first.",
                answers={200: ("A page of them.", wire.Jobs), **_BAD, **_COMMON},
                query=(
                    _PAGE,
                    ("before", "the `next` of the page before"),
                    ("state", f"one of {', '.join(STATES)}"),
                    ("tenant", "an account at GitHub"),
                    ("repository", "owner/name"),
                ),
                secured=True,
            ),
            Route(
                "GET",
                wire.JOB,
                self._with_problems(self._job),
                summary="One job, its runner, and every transition with its reason.",
                answers={200: ("The job.", wire.JobDetail), **_UNKNOWN, **_COMMON},
                secured=True,
            ),
            Route(
                "POST",
                wire.CANCEL,
                self._with_problems(self._cancel),
                summary="Cancel the run of a job at GitHub.",
                body=wire.Cancel,
                answers=_ASKED,
                headers=((wire.ACTOR, "the actor, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
            Route(
                "POST",
                wire.RETRY,
                self._with_problems(self._retry),
                summary="Re-run a job at GitHub.",
                body=wire.Retry,
                answers=_ASKED,
                headers=((wire.ACTOR, "the actor, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
        )

    def _with_problems(self, handler: Handler) -> Handler:
        """Wrap a handler so that its errors become problem responses."""

        @wraps(handler)
        async def safe(request: Request, **named: Any) -> Response:
            try:
                return await handler(request, **named)
            except BadQuery as error:
                return problem(400, ProblemCode.PARAMETER_INVALID, reason=str(error))
            except DatabaseError as error:
                self._log.warning(
                    "REST request not answered: the database cannot be used", error=str(error)
                )
                fix = "try again: asking twice does no harm"
                return problem(503, ProblemCode.DATABASE_UNAVAILABLE, fix=fix)
            except GitHubError as error:
                fix = "look at the reason; `runyard github check` tells what is wrong with the App"
                return problem(502, ProblemCode.GITHUB_CALL_FAILED, reason=str(error), fix=fix)

        return safe

    # ── tenants ─────────────────────────────────────────────────────────────────────────────────

    async def _tenants(self, request: Request) -> Response:
        after, paused = request.param("after"), request.param("paused")
        if after and not _LOGIN.fullmatch(after):
            raise BadQuery("after: give the `next` of the page before")
        if paused not in ("", "true", "false"):
            raise BadQuery("paused: true or false")
        found = await self._tenants_service.page(
            after=after, limit=_limit(request), only_paused=paused == "true"
        )
        return json_response(200, found)

    async def _tenant(self, _: Request, tenant: str) -> Response:
        found = await self._tenants_service.show(tenant) if _LOGIN.fullmatch(tenant) else None
        return _no_tenant() if found is None else json_response(200, found)

    async def _change(self, request: Request, tenant: str, body: wire.TenantPatch) -> Response:
        if not _LOGIN.fullmatch(tenant):
            return _no_tenant()
        actor = _actor(request)
        try:
            found = await self._tenants_service.change(tenant, body, actor=actor)
        except InvalidPatch as error:
            return problem(422, ProblemCode.BODY_UNEXPECTED, reason=str(error))
        if found is None:
            return _no_tenant()
        self._log.info("tenant changed", tenant=tenant, actor=actor, reason=body.why)
        return json_response(200, found)

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────

    async def _jobs(self, request: Request) -> Response:
        which = Filter(
            state=request.param("state"),
            tenant=request.param("tenant"),
            repository=request.param("repository"),
        )
        before = request.param("before") or "0"
        if which.state and which.state not in STATES:
            raise BadQuery(f"state: one of {', '.join(STATES)}")
        if which.tenant and not _LOGIN.fullmatch(which.tenant):
            raise BadQuery("tenant: the name of an account at GitHub")
        if which.repository and not _REPOSITORY.fullmatch(which.repository):
            raise BadQuery("repository: owner/name")
        if not _NUMBER.fullmatch(before):
            raise BadQuery("before: the `next` of the page before")
        found = await self._jobs_service.page(which, before=int(before), limit=_limit(request))
        return json_response(200, found)

    async def _job(self, _: Request, job: str) -> Response:
        found = await self._jobs_service.show(int(job)) if _NUMBER.fullmatch(job) else None
        return _no_job() if found is None else json_response(200, found)

    async def _cancel(self, request: Request, job: str, body: wire.Cancel) -> Response:
        if not _NUMBER.fullmatch(job):
            return _no_job()
        result = await self._jobs_service.cancel(
            int(job), others=body.others, actor=_actor(request)
        )
        return _answer(result)

    async def _retry(self, request: Request, job: str, body: wire.Retry) -> Response:
        if not _NUMBER.fullmatch(job):
            return _no_job()
        return _answer(await self._jobs_service.retry(int(job), actor=_actor(request)))


_FIXES: dict[Code, str] = {
    Requested.RUN_UNKNOWN: "cancel it at GitHub; this job was heard of before runs were kept",
    Requested.JOB_OVER: "run it once more instead, if that is what you want",
    Requested.JOB_NOT_OVER: "wait for the end of its run, or cancel it first",
    Requested.RERUN_REFUSED: "wait until all jobs of its run are over; a run that is a month old cannot be repeated,"
    " and the App needs to write actions",
}


def _answer(result: wire.Asked | Refusal) -> Response:
    return _refused(result) if isinstance(result, Refusal) else json_response(202, result)


def _refused(refused: Refusal) -> Response:
    code = refused.reason.code
    if code is Requested.JOB_UNKNOWN:
        return _no_job()
    if code is Requested.RUN_HAS_OTHERS:
        numbers = ", ".join(str(number) for number in refused.others[:10])
        body = Problem(
            error="the run has other jobs",
            reason=f"GitHub cancels whole runs, and {len(refused.others)} more would end with this one: {numbers}",
            fix="say that they may end too: --with-others, or {'others': true}",
            code=code.value,
            detail={"count": len(refused.others), "jobs": numbers},
        )
        return json_response(409, body)
    return refusal(409, "it cannot be done", refused.reason, fix=_FIXES[code])


def _no_tenant() -> Response:
    fix = "`runyard tenant list` tells who is known; a tenant is known from its first job on"
    return problem(404, ProblemCode.TENANT_UNKNOWN, fix=fix)


def _no_job() -> Response:
    fix = "`runyard job list` tells the numbers; jobs that ended long ago are forgotten"
    return problem(404, ProblemCode.JOB_NOT_FOUND, fix=fix)


def _limit(request: Request) -> int:
    text = request.param("limit") or str(LIMIT)
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST:
        raise BadQuery(f"limit: 1 to {MOST}")
    return int(text)


def _actor(request: Request) -> str:
    given = request.header(wire.ACTOR).strip()
    return given if _ACTOR.fullmatch(given) else "unnamed token holder"
