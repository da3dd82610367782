"""Serves the dashboard: the page, the same data as JSON, and a stream of updates.

    dashboard = Dashboard(DashboardDeps(database=database, kube=kube, …, settings=Settings(listen="127.0.0.1")))
    group.create_task(dashboard.run())
    Routes(title, version, (*dashboard.routes(), …), guard=dashboard.guard)

`run` reads Postgres and Kubernetes, and only while there are viewers. A request reads nothing itself, so the load does
not grow with the number of viewers. A request waits briefly for a fresh snapshot and then renders the latest one: when
Postgres or Kubernetes is down, the page is still served and shows which source is down.

Invariants:
- Every response has a strict content security policy: scripts and styles only from the page's own files, no framing,
  no resources of other origins.
- Every route except the static files and the login requires the token, on loopback too: the page shows the login form,
  the other routes use the `guard` of the route table.
- At most one update is sent in `settings.every` seconds, and only when something changed. A heartbeat is sent in
  between, so that the page can detect a lost connection.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError
from runyard.http import sse
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs, Request, Response, Stream, json_response
from runyard.http.metrics_access import misdirected
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.web.access import Access, same_origin, token_of_form
from runyard.web.alarms import Alarms
from runyard.web.cluster import Cluster, read_cluster
from runyard.web.explain.explainer import Dispatch, Explainer
from runyard.web.explain.routes import ExplainApi
from runyard.web.feeds import Feed, Pace, Viewers
from runyard.web.history import HistoryApi
from runyard.web.html import Html, join, tag
from runyard.web.login_links import SECONDS, LoginLinks
from runyard.web.overview import build_overview
from runyard.web.page import TITLE, document, live_part, login
from runyard.web.records import Records, read_records
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.statics import Statics
from runyard.web.values import Overview, Source, same
from runyard.wire.login import LOGIN, LOGIN_LINKS, LoginLink
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.restarts import Restart

ReadRestarts = Callable[[], tuple[Restart, ...]]
PAGE = "/"
OVERVIEW = "/api/v1/overview"
EVENTS = "/api/v1/events"
STATIC = "/static/{name}"
LOGOUT = "/logout"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS: Pairs = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
_REFUSED = {421: ("The Host header is not one of this server's names.", Problem)}
_HTML = ("content-type", "text/html; charset=utf-8")
_LINGER = 5.0  # reading goes on for this long after the last request
_HEARTBEAT = 10.0  # longest time without an event


class DashboardDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a dashboard. `kube` and `dispatch` may be None: then it shows no cluster or no explanations.

    `read_restarts` returns the restarts of components that a supervisor recorded; it must not block.
    """

    database: Database
    kube: Kube | None
    health: Health
    freshness: Freshness
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    dispatch: Dispatch | None = None
    read_restarts: ReadRestarts = tuple


class Dashboard:
    """Reads the fleet's state while there are viewers, and serves it."""

    def __init__(self, deps: DashboardDeps) -> None:
        database, kube, dispatch = deps.database, deps.kube, deps.dispatch
        health, freshness, settings = deps.health, deps.freshness, deps.settings
        clock, meter, log = deps.clock, deps.meter, deps.log
        self._clock = clock
        self._dispatch = dispatch
        self._read_restarts = deps.read_restarts
        self._settings = settings
        self._access = Access(settings, clock=clock)
        self._links = LoginLinks(clock, deps.rng)
        self._alarms = Alarms(health, freshness, clock=clock)
        self._statics = Statics()
        self._viewers = Viewers(clock, linger=_LINGER)
        self._pages = sse.Broadcast(clock)
        self._overviews = sse.Broadcast(clock)
        self._viewers.set_counter(lambda: len(self._pages) + len(self._overviews))
        self._shown: Overview | None = None
        self._published_at = float("-inf")
        self._records: Feed[Records] = Feed(
            "Postgres",
            lambda: (
                read_records(database, settings)
                if dispatch is None
                else read_records(
                    database,
                    settings,
                    dispatch.read_matching,
                    asking_within=dispatch.limits.asking_within,
                )
            ),
            clock=clock,
            meter=meter,
            log=log,
            pace=Pace(every=settings.every, within=settings.rows_within),
            expected=(DatabaseError,),
        )
        self._cluster: Feed[Cluster] | None = None
        if kube is not None:
            self._cluster = Feed(
                "Kubernetes",
                lambda: read_cluster(kube, namespace=settings.namespace),
                clock=clock,
                meter=meter,
                log=log,
                pace=Pace(every=settings.cluster_every, within=settings.cluster_within),
                expected=(KubeError, TransportError),
            )
        self._history = HistoryApi(database, headers=_SECURITY_HEADERS).routes()
        self._explain: tuple[Route, ...] = ()
        if dispatch is not None:
            explainer = Explainer(
                database, snapshot=self.snapshot, dispatch=dispatch, settings=settings
            )
            self._explain = ExplainApi(explainer, headers=_SECURITY_HEADERS).routes()

    async def run(self) -> None:
        """Read while there are viewers, until cancelled; then close the open streams."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._records.run(self._viewers, self._changed))
                if self._cluster is not None:
                    group.create_task(self._cluster.run(self._viewers, lambda: None))
        finally:
            self._pages.close()
            self._overviews.close()

    def routes(self) -> tuple[Route, ...]:
        """Return the dashboard's routes."""
        view = ("view", "`page`: events carry HTML for the dashboard's own page")
        return (
            *self._explain,
            *self._history,
            Route(
                "GET",
                PAGE,
                self._page,
                summary="The dashboard.",
                answers={
                    200: ("The page.", None),
                    401: ("The login form.", None),
                },
                media="text/html",
            ),
            Route(
                "GET",
                OVERVIEW,
                self._json,
                summary="Pools, hosts, runners, jobs, automatic recoveries and alarms, at one moment.",
                answers={200: ("The overview.", Overview), **_REFUSED},
                secured=True,
            ),
            Route(
                "GET",
                EVENTS,
                self._events,
                summary="The overview now, and again whenever it changes; server-sent events.",
                answers={200: ("Events named `overview`.", None), **_REFUSED},
                query=(view,),
                media="text/event-stream",
                secured=True,
            ),
            Route(
                "GET",
                STATIC,
                self._statics.answer,
                summary="The page's own files.",
                answers={200: ("The file.", None), 404: ("There is no such file.", Problem)},
                media="application/octet-stream",
            ),
            *self._login_routes(),
        )

    def _login_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                "POST",
                LOGIN_LINKS,
                self._new_link,
                summary="A link that logs one browser in, once.",
                answers={201: ("The link.", LoginLink), **_REFUSED},
                secured=True,
                limit=4096,
            ),
            Route(
                "GET",
                LOGIN,
                self._follow_link,
                summary="Exchange the code of a login link for a session cookie.",
                answers={
                    200: ("The session begins; continues to the page.", None),
                    401: ("The code was used or has expired: the login form.", None),
                },
                query=(("code", "of the link"),),
                media="text/html",
            ),
            Route(
                "POST",
                LOGIN,
                self._login,
                summary="Exchange the token for a session cookie.",
                answers={303: ("Redirect to the page.", None), 401: ("The login form.", None)},
                media="text/html",
                limit=4096,
            ),
            Route(
                "POST",
                LOGOUT,
                self._logout,
                summary="End the session in this browser.",
                answers={303: ("Redirect to the page.", None)},
                media="text/html",
                limit=4096,
            ),
        )

    async def guard(self, request: Request) -> Response | None:
        """Return the error response for a request that is not allowed; used for every secured route of the table."""
        refusal = await self._access.refusal(request)
        return None if refusal is None else _with_security_headers(refusal)

    async def metrics_guard(self, request: Request) -> Response | None:
        """Return the error response for a request that may not read the metrics."""
        refusal = await self._access.metrics_refusal(request)
        return None if refusal is None else _with_security_headers(refusal)

    async def overview(self) -> Overview:
        """Return the current overview; waits briefly for a fresh snapshot."""
        return self._overview_of(await self.snapshot())

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot; waits briefly for a fresh one."""
        self._viewers.touch()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._records.fresh(patience=self._settings.patience))
            if self._cluster is not None:
                group.create_task(self._cluster.fresh(patience=self._settings.patience))
        return self._latest()

    def _latest(self) -> Snapshot:
        kubernetes = Source(name="Kubernetes", state="off")
        cluster = None
        if self._cluster is not None:
            kubernetes, cluster = self._cluster.source, self._cluster.value
        return Snapshot(
            at=self._clock.now(),
            postgres=self._records.source,
            kubernetes=kubernetes,
            records=self._records.value,
            cluster=cluster,
            alarms=self._alarms.now(),
            restarts=self._read_restarts(),
        )

    def _overview_of(self, snapshot: Snapshot) -> Overview:
        limits = None if self._dispatch is None else self._dispatch.limits
        return build_overview(snapshot, self._settings, limits)

    def _changed(self) -> None:
        """Publish the overview if it changed; called after each read of Postgres."""
        if len(self._pages) + len(self._overviews) == 0:
            return
        view = self._overview_of(self._latest())
        self._publish(view)
        now = self._clock.monotonic()
        if now - self._published_at >= _HEARTBEAT:
            self._published_at = now
            beat = sse.event(f"{view.at:.3f}", event="beat")
            self._pages.publish(beat)
            self._overviews.publish(beat)

    def _publish(self, view: Overview) -> None:
        """Send the overview to all viewers unless it equals `_shown`, which all of them have."""
        if self._shown is not None and same(view, self._shown):
            return
        self._shown, self._published_at = view, self._clock.monotonic()
        if len(self._pages):
            self._pages.publish(self._page_event(view))
        if len(self._overviews):
            self._overviews.publish(_overview_event(view))

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────

    async def _page(self, request: Request) -> Response:
        if not self._access.accepts_host(request):
            return _with_security_headers(misdirected())
        if not await self._access.allows(request):
            return _html(401, login(self._statics.assets, wrong=False))
        return _html(200, document(await self.overview(), self._statics.assets, logout=True))

    async def _json(self, _: Request) -> Response:
        body = msgspec.json.encode(await self.overview())
        headers = (("content-type", "application/json"), *_SECURITY_HEADERS)
        return Response(status=200, headers=headers, body=body)

    async def _events(self, request: Request) -> Stream:
        view = await self.overview()
        self._publish(view)  # the new viewer and all others then have the same overview
        if request.param("view") == "page":
            return self._pages.subscribe(self._page_event(view))
        return self._overviews.subscribe(_overview_event(view))

    async def _new_link(self, _: Request) -> Response:
        link = LoginLink(path=f"{LOGIN}?code={self._links.issue()}", seconds=SECONDS)
        return json_response(201, link, _SECURITY_HEADERS)

    async def _follow_link(self, request: Request) -> Response:
        """Log a browser in. Answers a page that continues by itself, because a redirect would not carry the cookie.

        A browser that comes from another site's page sends a `SameSite=Strict` cookie only with requests that begin
        at our own page.
        """
        if not self._access.accepts_host(request):
            return _with_security_headers(misdirected())
        if not self._links.redeem(request.param("code")):
            return _html(401, login(self._statics.assets, wrong=False))
        answer = _html(200, _logged_in(self._statics.assets.icon))
        more = (("set-cookie", self._access.session_cookie()), ("refresh", f"0; url={PAGE}"))
        return msgspec.structs.replace(answer, headers=(*answer.headers, *more))

    async def _login(self, request: Request) -> Response:
        if not self._access.accepts_host(request):
            return _with_security_headers(misdirected())
        if not same_origin(request):
            return problem(403, ProblemCode.FORM_OF_ANOTHER_SITE, headers=_SECURITY_HEADERS)
        if not await self._access.check_token(token_of_form(request)):
            return _html(401, login(self._statics.assets, wrong=True))
        return _redirect_to_page(("set-cookie", self._access.session_cookie()))

    async def _logout(self, request: Request) -> Response:
        if not self._access.accepts_host(request):
            return _with_security_headers(misdirected())
        if not same_origin(request):
            return problem(403, ProblemCode.FORM_OF_ANOTHER_SITE, headers=_SECURITY_HEADERS)
        return _redirect_to_page(("set-cookie", self._access.expired_cookie()))

    def _page_event(self, view: Overview) -> bytes:
        return sse.event(live_part(view, self._statics.assets), event="page")


def _overview_event(view: Overview) -> bytes:
    return sse.event(msgspec.json.encode(view), event="overview")


def _logged_in(icon: str) -> Html:
    link = tag("link", {"rel": "icon", "type": "image/svg+xml", "href": icon})
    body = tag("body", {}, tag("a", {"href": PAGE}, "Logged in"))
    head = tag("head", {}, tag("title", {}, TITLE), link)
    return join(Html("<!doctype html>\n"), tag("html", {"lang": "en"}, head, body))


def _html(status: int, text: str) -> Response:
    return Response(status=status, headers=(_HTML, *_SECURITY_HEADERS), body=text.encode())


def _redirect_to_page(*headers: tuple[str, str]) -> Response:
    return Response(status=303, headers=(("location", PAGE), *headers, *_SECURITY_HEADERS))


def _with_security_headers(answer: Response) -> Response:
    return msgspec.structs.replace(answer, headers=(*answer.headers, *_SECURITY_HEADERS))
