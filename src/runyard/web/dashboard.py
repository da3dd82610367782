"""The dashboard as routes: the page, the same facts as JSON, and a stream that says when they change.

    dashboard = Dashboard(database, kube=kube, health=health, freshness=freshness, clock=clock, meter=meter, log=log,
                          settings=Settings(listen="127.0.0.1"))
    group.create_task(dashboard.run())
    Routes(title, version, (*dashboard.routes(), …), guard=dashboard.guard)

`run` reads, and only while somebody looks; a request never reads anything itself, so a hundred viewers cost what one
costs. A request waits a moment for a fresh reading and then answers with what there is: with Postgres or Kubernetes
down the page still comes, and says so.

Invariants:
- Every answer carries the strictest policy that the page can live with: no script and no style but its own files,
  no framing, nothing from elsewhere.
- Every route but the page's own files and the login is behind `access`: the page asks for the token with a form, the
  others with the `guard` of their table.
- All viewers together get at most one event in `settings.every` seconds, and only when something changed; a short
  sign of life goes out in between, by which the page tells a quiet fleet from a dead line.
"""

import asyncio

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError
from runyard.http import sse
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs, Request, Response, Stream
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.web.access import Access, misdirected, same_origin, token_of_form
from runyard.web.alarms import Alarms
from runyard.web.cluster import Cluster, read_cluster
from runyard.web.explain.api import ExplainApi
from runyard.web.explain.explainer import Dispatch, Explainer
from runyard.web.feeds import Feed, Interest
from runyard.web.history import HistoryApi
from runyard.web.page import application, document, login
from runyard.web.picture import Picture
from runyard.web.records import Records, read_records
from runyard.web.settings import Settings
from runyard.web.snapshot import overview
from runyard.web.statics import Statics
from runyard.web.values import Overview, Source, same

PAGE = "/"
OVERVIEW = "/api/v1/overview"
EVENTS = "/api/v1/events"
STATIC = "/static/{name}"
LOGIN = "/login"
LOGOUT = "/logout"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HARDENED: Pairs = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
_HTML = ("content-type", "text/html; charset=utf-8")
_LINGER = 5.0  # how long a single look keeps the reading going
_BEAT = 10.0  # a sign of life at least so often


class Dashboard:
    """Shows the fleet."""

    def __init__(
        self,
        database: Database,
        *,
        kube: Kube | None,
        health: Health,
        freshness: Freshness,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
        dispatch: Dispatch | None = None,
    ) -> None:
        self._clock = clock
        self._dispatch = dispatch
        self._settings = settings
        self._access = Access(settings, clock=clock)
        self._alarms = Alarms(health, freshness, clock=clock)
        self._statics = Statics()
        self._interest = Interest(clock, lasts=_LINGER)
        self._pages = sse.Broadcast(clock)
        self._overviews = sse.Broadcast(clock)
        self._interest.watched_by(lambda: len(self._pages) + len(self._overviews))
        self._shown: Overview | None = None
        self._published_at = float("-inf")
        self._records: Feed[Records] = Feed(
            "Postgres",
            lambda: read_records(database, settings, None if dispatch is None else dispatch.look),
            clock=clock,
            meter=meter,
            log=log,
            every=settings.every,
            within=settings.rows_within,
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
                every=settings.cluster_every,
                within=settings.cluster_within,
                expected=(KubeError, TransportError),
            )
        self._history = HistoryApi(database, headers=_HARDENED).routes()
        self._explain: tuple[Route, ...] = ()
        if dispatch is not None:
            explainer = Explainer(
                database, picture=self.picture, dispatch=dispatch, settings=settings
            )
            self._explain = ExplainApi(explainer, headers=_HARDENED).routes()

    async def run(self) -> None:
        """Read while somebody looks, until cancelled; open streams end with it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._records.run(self._interest, self._changed))
                if self._cluster is not None:
                    group.create_task(self._cluster.run(self._interest, lambda: None))
        finally:
            self._pages.close()
            self._overviews.close()

    def routes(self) -> tuple[Route, ...]:
        """Everything that the dashboard answers."""
        refused = {421: ("The server does not go by that name.", Problem)}
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
                    401: ("The form that asks for the token.", None),
                },
                media="text/html",
            ),
            Route(
                "GET",
                OVERVIEW,
                self._json,
                summary="Pools, hosts, runners, jobs, what healed and what is wrong, at one moment.",
                answers={200: ("The overview.", Overview), **refused},
                secured=True,
            ),
            Route(
                "GET",
                EVENTS,
                self._events,
                summary="The overview now, and again whenever it changes; server-sent events.",
                answers={200: ("Events named `overview`.", None), **refused},
                query=(view,),
                media="text/event-stream",
                secured=True,
            ),
            Route(
                "POST",
                LOGIN,
                self._login,
                summary="Trade the token for a session cookie.",
                answers={303: ("To the page.", None), 401: ("The form again.", None)},
                media="text/html",
                limit=4096,
            ),
            Route(
                "POST",
                LOGOUT,
                self._logout,
                summary="End the session in this browser.",
                answers={303: ("To the page.", None)},
                media="text/html",
                limit=4096,
            ),
            Route(
                "GET",
                STATIC,
                self._statics.answer,
                summary="The page's own files.",
                answers={200: ("The file.", None), 404: ("There is no such file.", Problem)},
                media="application/octet-stream",
            ),
        )

    async def guard(self, request: Request) -> Response | None:
        """What stands before every secured route of the table that the dashboard is in."""
        refusal = await self._access.refusal(request)
        return None if refusal is None else _hardened(refusal)

    async def overview(self) -> Overview:
        """The fleet now, as far as it is known; waits a moment for fresh readings."""
        return self._show(await self.picture())

    async def picture(self) -> Picture:
        """What is known now; waits a moment for fresh readings."""
        self._interest.show()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._records.fresh(patience=self._settings.patience))
            if self._cluster is not None:
                group.create_task(self._cluster.fresh(patience=self._settings.patience))
        return self._known()

    def _known(self) -> Picture:
        kubernetes = Source(name="Kubernetes", state="off")
        cluster = None
        if self._cluster is not None:
            kubernetes, cluster = self._cluster.source, self._cluster.value
        return Picture(
            at=self._clock.now(),
            postgres=self._records.source,
            kubernetes=kubernetes,
            records=self._records.value,
            cluster=cluster,
            alarms=self._alarms.now(),
        )

    def _show(self, picture: Picture) -> Overview:
        terms = None if self._dispatch is None else self._dispatch.terms
        return overview(picture, self._settings, terms)

    def _changed(self) -> None:
        """After each reading of the rows: tell those who watch, if there is news."""
        if len(self._pages) + len(self._overviews) == 0:
            return
        view = self._show(self._known())
        self._announce(view)
        now = self._clock.monotonic()
        if now - self._published_at >= _BEAT:
            self._published_at = now
            beat = sse.event(f"{view.at:.3f}", event="beat")
            self._pages.publish(beat)
            self._overviews.publish(beat)

    def _announce(self, view: Overview) -> None:
        """Everybody who watches has seen `_shown`: if this is another picture, they get it."""
        if self._shown is not None and same(view, self._shown):
            return
        self._shown, self._published_at = view, self._clock.monotonic()
        if len(self._pages):
            self._pages.publish(self._page_event(view))
        if len(self._overviews):
            self._overviews.publish(_overview_event(view))

    # ── answers ─────────────────────────────────────────────────────────────────────────────────

    async def _page(self, request: Request) -> Response:
        if not self._access.names_us(request):
            return _hardened(misdirected())
        if not await self._access.admits(request):
            return _html(401, login(self._statics.assets, wrong=False))
        leave = self._access.needs_token(request)
        return _html(200, document(await self.overview(), self._statics.assets, leave=leave))

    async def _json(self, _: Request) -> Response:
        body = msgspec.json.encode(await self.overview())
        headers = (("content-type", "application/json"), *_HARDENED)
        return Response(status=200, headers=headers, body=body)

    async def _events(self, request: Request) -> Stream:
        view = await self.overview()
        self._announce(view)  # so that the newcomer and all others have seen the same
        if request.param("view") == "page":
            return self._pages.subscribe(self._page_event(view))
        return self._overviews.subscribe(_overview_event(view))

    async def _login(self, request: Request) -> Response:
        if not self._access.names_us(request):
            return _hardened(misdirected())
        if not same_origin(request):
            return problem(403, "this form was sent by another site", headers=_HARDENED)
        if not self._access.needs_token(request):
            return _to_page()
        if not await self._access.accepts(token_of_form(request)):
            return _html(401, login(self._statics.assets, wrong=True))
        return _to_page(("set-cookie", self._access.session()))

    async def _logout(self, request: Request) -> Response:
        if not self._access.names_us(request):
            return _hardened(misdirected())
        if not same_origin(request):
            return problem(403, "this form was sent by another site", headers=_HARDENED)
        return _to_page(("set-cookie", self._access.farewell()))

    def _page_event(self, view: Overview) -> bytes:
        return sse.event(application(view, self._statics.assets), event="page")


def _overview_event(view: Overview) -> bytes:
    return sse.event(msgspec.json.encode(view), event="overview")


def _html(status: int, text: str) -> Response:
    return Response(status=status, headers=(_HTML, *_HARDENED), body=text.encode())


def _to_page(*headers: tuple[str, str]) -> Response:
    return Response(status=303, headers=(("location", PAGE), *headers, *_HARDENED))


def _hardened(answer: Response) -> Response:
    return msgspec.structs.replace(answer, headers=(*answer.headers, *_HARDENED))
