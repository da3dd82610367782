"""The REST API of test results: uploads, runs, cases, history, flaky tests, attachments, coverage.

    POST /api/v1/test-runs                            announce a run; returns where to upload its bundle
    POST /api/v1/test-runs/{run}/complete             the upload is complete: process it
    POST /api/v1/test-runs/{run}/reprocess            process it again
    GET  /api/v1/test-runs[/{run}[/modules|suites|cases|attachments|coverage…]]
    GET  /api/v1/test-cases[/{case}[/history]]        tests of a project, across runs
    GET  /api/v1/flaky-tests                          tests with different results for the same code
    GET  /api/v1/test-attachments/{attachment}        a link to a file
    POST /api/v1/test-tokens                          a token with a narrower scope, for a CI job

The caller authenticates with the dashboard's token, which allows everything, or with a token of `rest.tokens`, which
is limited to the results of one account or project. `guard` accepts the latter on these paths only.

Invariants:
- Every handler reads within the caller's scope; everything outside of it is 404.
- No input makes a handler raise: bad input is 4xx; an unavailable database or store is 503, and a retry is safe.
- Every change takes a JSON body: another site's page cannot send that from a visitor's browser.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec

from runyard.blobs.errors import BlobError
from runyard.db.contract import DatabaseError
from runyard.http.messages import Request, Response, json_response
from runyard.http.problems import problem
from runyard.http.routes import Guard, Route
from runyard.telemetry.log import Logger
from runyard.wire import testruns as wire
from runyard.wire.problem_codes import ProblemCode
from runyard.xcresult.rest import parameters
from runyard.xcresult.rest.cases import Cases
from runyard.xcresult.rest.coverage import Coverages
from runyard.xcresult.rest.history import History, TestFilter
from runyard.xcresult.rest.problems import Refused, bad
from runyard.xcresult.rest.runs import CaseFilter, RunFilter, Runs
from runyard.xcresult.rest.settings import Settings
from runyard.xcresult.rest.tokens import EVERYTHING, PREFIX, Scope, Tokens
from runyard.xcresult.rest.uploads import Uploads, base_of
from runyard.xcresult.route_table import Described, described

PATHS = ("/api/v1/test-", "/api/v1/flaky-tests")
_DAY = 86400.0
Handler = Callable[..., Awaitable[Response]]


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the handlers call."""

    uploads: Uploads
    runs: Runs
    cases: Cases
    history: History
    coverage: Coverages
    tokens: Tokens


class Api:
    """Handles requests about test results."""

    def __init__(
        self, pieces: Pieces, *, settings: Settings, log: Logger, secure: bool = False
    ) -> None:
        self._pieces = pieces
        self._settings = settings
        self._log = log
        self._secure = secure

    def routes(self) -> tuple[Route, ...]:
        """The routes of this class."""
        handlers: dict[tuple[str, str], Handler] = {
            ("POST", wire.RUNS): self._announce,
            ("POST", wire.COMPLETE): self._complete,
            ("POST", wire.REPROCESS): self._reprocess,
            ("POST", wire.TOKENS): self._token,
            ("GET", wire.RUNS): self._runs,
            ("GET", wire.RUN): self._run,
            ("GET", wire.MODULES): self._modules,
            ("GET", wire.SUITES): self._suites,
            ("GET", wire.CASES): self._cases,
            ("GET", wire.CASE_OF_RUN): self._case,
            ("GET", wire.ATTACHMENTS): self._attachments,
            ("GET", wire.COVERAGE): self._coverage,
            ("GET", wire.COVERAGE_FILES): self._coverage_files,
            ("GET", wire.COVERAGE_LINES): self._coverage_lines,
            ("GET", wire.TESTS): self._tests,
            ("GET", wire.TEST): self._test,
            ("GET", wire.HISTORY): self._history,
            ("GET", wire.FLAKY): self._flaky,
            ("GET", wire.ATTACHMENT): self._attachment,
        }

        def safely(route: Described) -> Handler:
            return self._safely(handlers[route.method, route.path])

        return described(safely)

    def guard(self, otherwise: Guard) -> Guard:
        """A guard that accepts tokens for test results on these paths, and asks the other guard about all else."""

        async def check(request: Request) -> Response | None:
            token = _bearer(request)
            if not token.startswith(PREFIX) or not request.path.startswith(PATHS):
                return await otherwise(request)
            if self._pieces.tokens.verify(token) is not None:
                return None
            return problem(
                401,
                ProblemCode.RESULT_TOKEN_INVALID,
                reason="it has expired, or another server made it",
                fix="get a new token from the operator of this server",
                headers=(("www-authenticate", "Bearer"),),
            )

        return check

    def _scope(self, request: Request) -> Scope:
        """The results that the caller may see; the guard has authenticated the request before."""
        token = _bearer(request)
        if not token.startswith(PREFIX):
            return EVERYTHING
        found = self._pieces.tokens.verify(token)
        if found is None:
            raise Refused(401, ProblemCode.RESULT_TOKEN_EXPIRED)
        return found

    def _base(self, request: Request) -> str:
        host, public = parameters.host(request), self._settings.public_url
        if not host and not public:
            raise Refused(
                400,
                ProblemCode.HOST_MISSING,
                fix="send the name of this server in Host",
            )
        return base_of(host, secure=self._secure, public_url=public)

    def _safely(self, handler: Handler) -> Handler:
        """Maps dependency errors and refusals to HTTP problems."""

        @wraps(handler)
        async def safe(request: Request, **named: Any) -> Response:
            try:
                return await handler(request, **named)
            except Refused as refused:
                return refused.answer
            except DatabaseError as error:
                self._log.warning("test results: database unavailable", error=str(error))
                return problem(503, ProblemCode.DATABASE_UNAVAILABLE, fix=_AGAIN)
            except BlobError as error:
                self._log.warning("test results: object storage unavailable", error=str(error))
                return problem(503, ProblemCode.STORAGE_UNAVAILABLE, fix=_AGAIN)

        return safe

    # ── uploads ─────────────────────────────────────────────────────────────────────────────────

    async def _announce(self, request: Request, body: wire.NewRun) -> Response:
        made = await self._pieces.uploads.announce(
            body, scope=self._scope(request), base=self._base(request)
        )
        return json_response(200, made)

    async def _complete(self, request: Request, run: str, body: wire.Complete) -> Response:
        found = parameters.uuid(run, "run")
        done = await self._pieces.uploads.complete(
            found, body.shard_index, scope=self._scope(request)
        )
        return json_response(202, done)

    async def _reprocess(self, request: Request, run: str, body: wire.Reprocess) -> Response:
        found = parameters.uuid(run, "run")
        done = await self._pieces.uploads.reprocess(
            found, body.shard_index, scope=self._scope(request)
        )
        return json_response(202, done)

    async def _token(self, request: Request, body: wire.NewToken) -> Response:
        if not self._scope(request).everything:
            fix = "use the dashboard's token"
            raise Refused(403, ProblemCode.RESULT_TOKEN_MAKES_NONE, fix=fix)
        narrow = Scope(
            account=body.account.lower(),
            project=(body.project or "").lower(),
            may_upload=body.may_upload,
        )
        token, until = self._pieces.tokens.make(narrow, lasts=body.days * _DAY)
        self._log.info("token made", account=narrow.account, project=narrow.project)
        return json_response(201, wire.Token(token=token, expires_at=until))

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    async def _runs(self, request: Request) -> Response:
        account, project = parameters.project_of(request, self._scope(request))
        which = RunFilter(
            account=account,
            project=project,
            branch=parameters.text(request, "branch"),
            commit=parameters.text(request, "commit"),
            scheme=parameters.text(request, "scheme"),
            ci_run=parameters.text(request, "ci_run"),
            state=parameters.one_of(request, "state", parameters.STATES),
            status=parameters.one_of(request, "status", parameters.STATUSES),
            flaky=parameters.flag(request, "flaky"),
        )
        found = await self._pieces.runs.page(which, scope=self._scope(request), **_page(request))
        return json_response(200, found)

    async def _run(self, request: Request, run: str) -> Response:
        found = await self._pieces.runs.show(
            parameters.uuid(run, "run"), scope=self._scope(request)
        )
        return json_response(200, found)

    async def _modules(self, request: Request, run: str) -> Response:
        found = parameters.uuid(run, "run")
        return json_response(
            200,
            await self._pieces.runs.modules(found, scope=self._scope(request), **_page(request)),
        )

    async def _suites(self, request: Request, run: str) -> Response:
        found, module = parameters.uuid(run, "run"), parameters.text(request, "module")
        page = await self._pieces.runs.suites(
            found, module=module, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _cases(self, request: Request, run: str) -> Response:
        which = CaseFilter(
            status=parameters.one_of(request, "status", parameters.STATUSES),
            module=parameters.text(request, "module"),
            suite=parameters.text(request, "suite"),
            name=parameters.text(request, "name"),
            flaky=parameters.flag(request, "flaky"),
        )
        found = parameters.uuid(run, "run")
        page = await self._pieces.runs.cases(
            found, which, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _case(self, request: Request, run: str, case: str) -> Response:
        found = await self._pieces.cases.show(
            parameters.uuid(run, "run"),
            parameters.uuid(case, "case"),
            scope=self._scope(request),
            base=self._base(request),
        )
        return json_response(200, found)

    # ── attachments ─────────────────────────────────────────────────────────────────────────────

    async def _attachments(self, request: Request, run: str) -> Response:
        case = request.param("case")
        page = await self._pieces.cases.attachments(
            parameters.uuid(run, "run"),
            case=parameters.uuid(case, "case") if case else None,
            scope=self._scope(request),
            base=self._base(request),
            **_page(request),
        )
        return json_response(200, page)

    async def _attachment(self, request: Request, attachment: str) -> Response:
        found = parameters.uuid(attachment, "attachment")
        base = self._base(request)
        return json_response(
            200, await self._pieces.cases.attachment(found, scope=self._scope(request), base=base)
        )

    # ── across runs ─────────────────────────────────────────────────────────────────────────────

    async def _tests(self, request: Request) -> Response:
        account, project = parameters.project_of(request, self._scope(request), needed=True)
        which = TestFilter(
            module=parameters.text(request, "module"),
            suite=parameters.text(request, "suite"),
            name=parameters.text(request, "name"),
        )
        page = await self._pieces.history.tests(
            which, account=account, project=project, **_page(request)
        )
        return json_response(200, page)

    async def _test(self, request: Request, case: str) -> Response:
        found, days = parameters.uuid(case, "test"), parameters.days(request)
        return json_response(
            200, await self._pieces.history.test(found, scope=self._scope(request), days=days)
        )

    async def _history(self, request: Request, case: str) -> Response:
        page = await self._pieces.history.history(
            parameters.uuid(case, "test"),
            branch=parameters.text(request, "branch"),
            status=parameters.one_of(request, "status", parameters.STATUSES),
            scope=self._scope(request),
            **_page(request),
        )
        return json_response(200, page)

    async def _flaky(self, request: Request) -> Response:
        account, project = parameters.project_of(request, self._scope(request))
        found = await self._pieces.history.flaky(
            account=account,
            project=project,
            branch=parameters.text(request, "branch"),
            days=parameters.days(request),
            limit=parameters.limit(request),
        )
        return json_response(200, found)

    # ── coverage ────────────────────────────────────────────────────────────────────────────────

    async def _coverage(self, request: Request, run: str) -> Response:
        found = parameters.uuid(run, "run")
        return json_response(
            200, await self._pieces.coverage.totals(found, scope=self._scope(request))
        )

    async def _coverage_files(self, request: Request, run: str) -> Response:
        found, target = parameters.uuid(run, "run"), parameters.text(request, "target")
        page = await self._pieces.coverage.files(
            found, target=target, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _coverage_lines(self, request: Request, run: str) -> Response:
        found = parameters.uuid(run, "run")
        target, path = request.param("target"), request.param("path")
        if not target or not path or "\0" in target + path:
            raise bad("target, path", "both are required, as in /coverage/files")
        lines = await self._pieces.coverage.lines(
            found, target=target, path=path, scope=self._scope(request)
        )
        return json_response(200, lines)


_AGAIN = "try again later; the request can be repeated safely"


def _bearer(request: Request) -> str:
    scheme, _, given = request.header("authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _page(request: Request) -> dict[str, Any]:
    return {"cursor": parameters.cursor(request), "limit": parameters.limit(request)}
