"""The REST for people and their tools: tenants and jobs, behind the dashboard's guard.

    GET   /api/v1/tenants                  who there is, and what they use
    GET   /api/v1/tenants/{tenant}         one of them, with repositories and the audit trail
    PATCH /api/v1/tenants/{tenant}         limits, shares, a pause
    GET   /api/v1/jobs                     jobs, newest first
    GET   /api/v1/jobs/{job}               one job, its runner, what happened
    POST  /api/v1/jobs/{job}/cancel        GitHub cancels its run
    POST  /api/v1/jobs/{job}/retry         GitHub runs it once more

Invariants:
- Whatever changes something takes a JSON body, also an empty one: a page of another site cannot send that from a
  visitor's browser without being asked first, and nobody here says yes.
- Nothing that arrives makes a handler raise: bad input is 400 or 404, GitHub's no is 409 or 502, a database that is
  away 503.
- Who asks is what they say (`x-runyard-actor`); that they may ask, the guard has proven.
"""

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from runyard.db.contract import DatabaseError
from runyard.dispatch.people.differences import BadWish
from runyard.dispatch.people.jobs import Filter, No, Refusal, Work
from runyard.dispatch.people.tenants import People
from runyard.github.errors import GitHubError
from runyard.http.messages import Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Answers, Route
from runyard.telemetry.log import Logger
from runyard.wire import people as wire

LIMIT, MOST = 50, 500
STATES = ("waiting", "queued", "bound", "running", "done")
_LOGIN = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ACTOR = re.compile(r"[\x20-\x7e]{1,100}", re.ASCII)
_SMALL = 64 << 10

_COMMON: Answers = {
    421: ("The server does not go by that name.", Problem),
    503: ("The database cannot be used.", Problem),
}
_UNKNOWN: Answers = {404: ("There is none.", Problem)}
_BAD: Answers = {400: ("A parameter makes no sense.", Problem)}
_ASKED: Answers = {
    202: ("GitHub took it.", wire.Asked),
    409: ("It cannot be done, or not without saying more.", Problem),
    502: ("GitHub refused, or did not answer.", Problem),
    **_UNKNOWN,
    **_COMMON,
}
_PAGE = ("limit", f"at most so many, 1 to {MOST}; {LIMIT} if nothing is said")

Handler = Callable[..., Awaitable[Response]]


class BadQuery(Exception):
    """A parameter that makes no sense; the message says which and what is possible."""


class Rest:
    """Answers people."""

    def __init__(self, *, people: People, work: Work, log: Logger) -> None:
        self._people = people
        self._work = work
        self._log = log

    def routes(self) -> tuple[Route, ...]:
        """Everything that can be asked here."""
        return (*self._about_tenants(), *self._about_jobs())

    def _about_tenants(self) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                wire.TENANTS,
                self._safely(self._tenants),
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
                self._safely(self._tenant),
                summary="One tenant, its repositories, and what was changed of it.",
                answers={200: ("The tenant.", wire.Tenant), **_UNKNOWN, **_COMMON},
                secured=True,
            ),
            Route(
                "PATCH",
                wire.TENANT,
                self._safely(self._change),
                summary="Change limits, shares or a pause; what is left out stays.",
                body=wire.TenantPatch,
                answers={200: ("The tenant as it is now.", wire.Tenant), **_UNKNOWN, **_COMMON},
                headers=((wire.ACTOR, "who asks, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
        )

    def _about_jobs(self) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                wire.JOBS,
                self._safely(self._jobs),
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
                self._safely(self._job),
                summary="One job, its runner, and every transition with its reason.",
                answers={200: ("The job.", wire.JobDetail), **_UNKNOWN, **_COMMON},
                secured=True,
            ),
            Route(
                "POST",
                wire.CANCEL,
                self._safely(self._cancel),
                summary="Cancel the run of a job at GitHub.",
                body=wire.Cancel,
                answers=_ASKED,
                headers=((wire.ACTOR, "who asks, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
            Route(
                "POST",
                wire.RETRY,
                self._safely(self._retry),
                summary="Run a job once more at GitHub.",
                body=wire.Retry,
                answers=_ASKED,
                headers=((wire.ACTOR, "who asks, for the audit trail"),),
                secured=True,
                limit=_SMALL,
            ),
        )

    def _safely(self, handler: Handler) -> Handler:
        """What the world refuses becomes an answer."""

        @wraps(handler)
        async def safe(request: Request, **named: Any) -> Response:
            try:
                return await handler(request, **named)
            except BadQuery as error:
                return problem(400, "a parameter makes no sense", reason=str(error))
            except DatabaseError as error:
                self._log.warning("people could not be answered", error=str(error))
                fix = "try again: asking twice does no harm"
                return problem(503, "the database cannot be used", fix=fix)
            except GitHubError as error:
                fix = "look at the reason; `runyard github check` tells what is wrong with the App"
                return problem(502, "GitHub did not do it", reason=str(error), fix=fix)

        return safe

    # ── tenants ─────────────────────────────────────────────────────────────────────────────────

    async def _tenants(self, request: Request) -> Response:
        after, paused = request.param("after"), request.param("paused")
        if after and not _LOGIN.fullmatch(after):
            raise BadQuery("after: give the `next` of the page before")
        if paused not in ("", "true", "false"):
            raise BadQuery("paused: true or false")
        found = await self._people.page(
            after=after, limit=_limit(request), only_paused=paused == "true"
        )
        return json_response(200, found)

    async def _tenant(self, _: Request, tenant: str) -> Response:
        found = await self._people.show(tenant) if _LOGIN.fullmatch(tenant) else None
        return _no_tenant() if found is None else json_response(200, found)

    async def _change(self, request: Request, tenant: str, body: wire.TenantPatch) -> Response:
        if not _LOGIN.fullmatch(tenant):
            return _no_tenant()
        actor = _actor(request)
        try:
            found = await self._people.change(tenant, body, actor=actor)
        except BadWish as error:
            return problem(422, "the body is not what is asked for", reason=str(error))
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
        found = await self._work.page(which, before=int(before), limit=_limit(request))
        return json_response(200, found)

    async def _job(self, _: Request, job: str) -> Response:
        found = await self._work.show(int(job)) if _NUMBER.fullmatch(job) else None
        return _no_job() if found is None else json_response(200, found)

    async def _cancel(self, request: Request, job: str, body: wire.Cancel) -> Response:
        if not _NUMBER.fullmatch(job):
            return _no_job()
        asked = await self._work.cancel(int(job), others=body.others, actor=_actor(request))
        return _told(asked)

    async def _retry(self, request: Request, job: str, body: wire.Retry) -> Response:
        if not _NUMBER.fullmatch(job):
            return _no_job()
        return _told(await self._work.retry(int(job), actor=_actor(request)))


_FIXES = {
    No.UNKNOWN_RUN: "cancel it at GitHub; this job was heard of before runs were kept",
    No.OVER: "run it once more instead, if that is what you want",
    No.NOT_OVER: "wait for the end of its run, or cancel it first",
    No.NOT_NOW: "wait until all jobs of its run are over; a run that is a month old cannot be repeated, and the App"
    " needs to write actions",
}


def _told(asked: wire.Asked | Refusal) -> Response:
    return _refused(asked) if isinstance(asked, Refusal) else json_response(202, asked)


def _refused(refusal: Refusal) -> Response:
    if refusal.no is No.UNKNOWN_JOB:
        return _no_job()
    if refusal.no is No.OTHERS:
        numbers = ", ".join(str(number) for number in refusal.others[:10])
        return problem(
            409,
            "the run has other jobs",
            reason=f"GitHub cancels whole runs, and {len(refusal.others)} more would end with this one: {numbers}",
            fix="say that they may end too: --with-others, or {'others': true}",
        )
    reason = refusal.told or refusal.no.value
    return problem(409, "it cannot be done", reason=reason, fix=_FIXES[refusal.no])


def _no_tenant() -> Response:
    fix = "`runyard tenant list` tells who is known; a tenant is known from its first job on"
    return problem(404, "there is no such tenant", fix=fix)


def _no_job() -> Response:
    fix = "`runyard job list` tells the numbers; jobs that ended long ago are forgotten"
    return problem(404, "there is no such job", fix=fix)


def _limit(request: Request) -> int:
    text = request.param("limit") or str(LIMIT)
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST:
        raise BadQuery(f"limit: 1 to {MOST}")
    return int(text)


def _actor(request: Request) -> str:
    told = request.header(wire.ACTOR).strip()
    return told if _ACTOR.fullmatch(told) else "somebody with the token"
