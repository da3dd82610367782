"""The REST for test results, as a table of routes: uploads, runs, cases, history, flaky tests, attachments, coverage.

    POST /api/v1/test-runs                            announce a run; where to upload its bundle
    POST /api/v1/test-runs/{run}/complete             the upload is whole: process it
    POST /api/v1/test-runs/{run}/reprocess            read it once more
    GET  /api/v1/test-runs[/{run}[/modules|suites|cases|attachments|coverage…]]
    GET  /api/v1/test-cases[/{case}[/history]]        tests of a project, across runs
    GET  /api/v1/flaky-tests                          those that do not say the same about the same code
    GET  /api/v1/test-attachments/{attachment}        a link to a file
    POST /api/v1/test-tokens                          a narrower credential, for a CI job

Who asks shows the dashboard's token, which is good for everything, or one of `people.tokens`, which is good for one
account's or one project's results alone. `guard` lets those through to these paths and to no other.

Invariants:
- Every handler asks within the caller's scope, and reads nothing outside of it: what is somebody else's is 404.
- Nothing that arrives makes a handler raise: bad input is 4xx; a database or a store that is away is 503, and asking
  again does no harm.
- Whatever changes something takes a JSON body: a page of another site cannot send that from a visitor's browser.
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
from runyard.xcresult.apitable import Described, described
from runyard.xcresult.people import asking
from runyard.xcresult.people.cases import Cases
from runyard.xcresult.people.coverage import Coverages
from runyard.xcresult.people.history import Past, TestFilter
from runyard.xcresult.people.refusing import Refused, bad
from runyard.xcresult.people.runs import CaseFilter, RunFilter, Runs
from runyard.xcresult.people.settings import Settings
from runyard.xcresult.people.tokens import EVERYTHING, PREFIX, Scope, Tokens
from runyard.xcresult.people.uploads import Uploads, base_of

PATHS = ("/api/v1/test-", "/api/v1/flaky-tests")
_DAY = 86400.0
Handler = Callable[..., Awaitable[Response]]


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers what."""

    uploads: Uploads
    runs: Runs
    cases: Cases
    past: Past
    coverage: Coverages
    tokens: Tokens


class Api:
    """Answers about test results."""

    def __init__(
        self, pieces: Pieces, *, settings: Settings, log: Logger, secure: bool = False
    ) -> None:
        self._pieces = pieces
        self._settings = settings
        self._log = log
        self._secure = secure

    def routes(self) -> tuple[Route, ...]:
        """Everything that can be asked here."""
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
        """Lets who has a token for test results through to them; everything else is for the other guard."""

        async def judge(request: Request) -> Response | None:
            token = _bearer(request)
            if not token.startswith(PREFIX) or not request.path.startswith(PATHS):
                return await otherwise(request)
            if self._pieces.tokens.judge(token) is not None:
                return None
            return problem(
                401,
                "the token is not good",
                reason="it has ended, or is not of this server",
                fix="ask whoever runs the server for a new one",
                headers=(("www-authenticate", "Bearer"),),
            )

        return judge

    def _scope(self, request: Request) -> Scope:
        """Whose results the caller may know of; that it may ask at all, the guard has proven."""
        token = _bearer(request)
        if not token.startswith(PREFIX):
            return EVERYTHING
        found = self._pieces.tokens.judge(token)
        if found is None:
            raise Refused(401, "the token has ended")
        return found

    def _base(self, request: Request) -> str:
        host, public = asking.host(request), self._settings.public_url
        if not host and not public:
            raise Refused(400, "there is no host header", fix="say how you reach this server")
        return base_of(host, secure=self._secure, public_url=public)

    def _safely(self, handler: Handler) -> Handler:
        """What the world refuses becomes an answer."""

        @wraps(handler)
        async def safe(request: Request, **named: Any) -> Response:
            try:
                return await handler(request, **named)
            except Refused as refused:
                return refused.answer
            except DatabaseError as error:
                self._log.warning("test results: database", error=str(error))
                return problem(503, "the database cannot be used", fix=_AGAIN)
            except BlobError as error:
                self._log.warning("test results: object storage", error=str(error))
                return problem(503, "object storage cannot be used", fix=_AGAIN)

        return safe

    # ── uploads ─────────────────────────────────────────────────────────────────────────────────

    async def _announce(self, request: Request, body: wire.NewRun) -> Response:
        made = await self._pieces.uploads.announce(
            body, scope=self._scope(request), base=self._base(request)
        )
        return json_response(200, made)

    async def _complete(self, request: Request, run: str, body: wire.Complete) -> Response:
        found = asking.uuid(run, "run")
        done = await self._pieces.uploads.complete(
            found, body.shard_index, scope=self._scope(request)
        )
        return json_response(202, done)

    async def _reprocess(self, request: Request, run: str, body: wire.Reprocess) -> Response:
        found = asking.uuid(run, "run")
        done = await self._pieces.uploads.reprocess(
            found, body.shard_index, scope=self._scope(request)
        )
        return json_response(202, done)

    async def _token(self, request: Request, body: wire.NewToken) -> Response:
        if not self._scope(request).everything:
            fix = "ask whoever holds the dashboard's token"
            raise Refused(403, "a token cannot make another one", fix=fix)
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
        account, project = asking.project_of(request, self._scope(request))
        which = RunFilter(
            account=account,
            project=project,
            branch=asking.text(request, "branch"),
            commit=asking.text(request, "commit"),
            scheme=asking.text(request, "scheme"),
            ci_run=asking.text(request, "ci_run"),
            state=asking.one_of(request, "state", asking.STATES),
            status=asking.one_of(request, "status", asking.STATUSES),
            flaky=asking.flag(request, "flaky"),
        )
        found = await self._pieces.runs.page(which, scope=self._scope(request), **_page(request))
        return json_response(200, found)

    async def _run(self, request: Request, run: str) -> Response:
        found = await self._pieces.runs.show(asking.uuid(run, "run"), scope=self._scope(request))
        return json_response(200, found)

    async def _modules(self, request: Request, run: str) -> Response:
        found = asking.uuid(run, "run")
        return json_response(
            200,
            await self._pieces.runs.modules(found, scope=self._scope(request), **_page(request)),
        )

    async def _suites(self, request: Request, run: str) -> Response:
        found, module = asking.uuid(run, "run"), asking.text(request, "module")
        page = await self._pieces.runs.suites(
            found, module=module, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _cases(self, request: Request, run: str) -> Response:
        which = CaseFilter(
            status=asking.one_of(request, "status", asking.STATUSES),
            module=asking.text(request, "module"),
            suite=asking.text(request, "suite"),
            name=asking.text(request, "name"),
            flaky=asking.flag(request, "flaky"),
        )
        found = asking.uuid(run, "run")
        page = await self._pieces.runs.cases(
            found, which, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _case(self, request: Request, run: str, case: str) -> Response:
        found = await self._pieces.cases.show(
            asking.uuid(run, "run"),
            asking.uuid(case, "case"),
            scope=self._scope(request),
            base=self._base(request),
        )
        return json_response(200, found)

    # ── attachments ─────────────────────────────────────────────────────────────────────────────

    async def _attachments(self, request: Request, run: str) -> Response:
        case = request.param("case")
        page = await self._pieces.cases.attachments(
            asking.uuid(run, "run"),
            case=asking.uuid(case, "case") if case else None,
            scope=self._scope(request),
            base=self._base(request),
            **_page(request),
        )
        return json_response(200, page)

    async def _attachment(self, request: Request, attachment: str) -> Response:
        found = asking.uuid(attachment, "attachment")
        base = self._base(request)
        return json_response(
            200, await self._pieces.cases.attachment(found, scope=self._scope(request), base=base)
        )

    # ── across runs ─────────────────────────────────────────────────────────────────────────────

    async def _tests(self, request: Request) -> Response:
        account, project = asking.project_of(request, self._scope(request), needed=True)
        which = TestFilter(
            module=asking.text(request, "module"),
            suite=asking.text(request, "suite"),
            name=asking.text(request, "name"),
        )
        page = await self._pieces.past.tests(
            which, account=account, project=project, **_page(request)
        )
        return json_response(200, page)

    async def _test(self, request: Request, case: str) -> Response:
        found, days = asking.uuid(case, "test"), asking.days(request)
        return json_response(
            200, await self._pieces.past.test(found, scope=self._scope(request), days=days)
        )

    async def _history(self, request: Request, case: str) -> Response:
        page = await self._pieces.past.history(
            asking.uuid(case, "test"),
            branch=asking.text(request, "branch"),
            status=asking.one_of(request, "status", asking.STATUSES),
            scope=self._scope(request),
            **_page(request),
        )
        return json_response(200, page)

    async def _flaky(self, request: Request) -> Response:
        account, project = asking.project_of(request, self._scope(request))
        found = await self._pieces.past.flaky(
            account=account,
            project=project,
            branch=asking.text(request, "branch"),
            days=asking.days(request),
            limit=asking.limit(request),
        )
        return json_response(200, found)

    # ── coverage ────────────────────────────────────────────────────────────────────────────────

    async def _coverage(self, request: Request, run: str) -> Response:
        found = asking.uuid(run, "run")
        return json_response(
            200, await self._pieces.coverage.totals(found, scope=self._scope(request))
        )

    async def _coverage_files(self, request: Request, run: str) -> Response:
        found, target = asking.uuid(run, "run"), asking.text(request, "target")
        page = await self._pieces.coverage.files(
            found, target=target, scope=self._scope(request), **_page(request)
        )
        return json_response(200, page)

    async def _coverage_lines(self, request: Request, run: str) -> Response:
        found = asking.uuid(run, "run")
        target, path = request.param("target"), request.param("path")
        if not target or not path or "\0" in target + path:
            raise bad("target, path", "both are needed here, as /coverage/files tells them")
        lines = await self._pieces.coverage.lines(
            found, target=target, path=path, scope=self._scope(request)
        )
        return json_response(200, lines)


_AGAIN = "try again: asking twice does no harm"


def _bearer(request: Request) -> str:
    scheme, _, given = request.header("authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _page(request: Request) -> dict[str, Any]:
    return {"cursor": asking.cursor(request), "limit": asking.limit(request)}
