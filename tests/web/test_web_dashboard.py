"""The dashboard over real HTTP: it is served while sources are down, sends updates, and reads once for all viewers."""

import asyncio

import msgspec
import pytest
from tests.web.web_harness import EVIL, QUICK, REFUSED, TOKEN, Site, visit

from runyard.http.messages import Request, Response
from runyard.web.settings import Settings
from runyard.web.values import Overview
from runyard.wire.reasons_dispatch import Holding

GUARDED = msgspec.structs.replace(QUICK, listen="192.0.2.7")


def read(answer: Response) -> Overview:
    assert answer.status == 200, answer
    return msgspec.json.decode(answer.body, type=Overview)


def test_the_page_and_the_json_tell_the_same(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        await web.pool()
        web.slot(await web.pod("mac-1"), "mac-1")
        web.job(7)
        page = await web.get("/")
        assert page.header("content-type") == "text/html; charset=utf-8"
        text = page.body.decode()
        for word in ("mac-1", "acme/app", "waiting for work", 'http-equiv="refresh"'):
            assert word in text
        view = read(await web.get("/api/v1/overview"))
        assert [runner.name for runner in view.runners] == ["mac-1"]
        assert view.waiting[0].reason == Holding.LABEL_MISSING
        assert [source.state for source in view.sources] == ["ok", "ok"]

    visit(scenario, database_url)


def test_hostile_names_stay_text(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        web.job(7, repository=f"acme/{EVIL}")
        web.slot("uid-1", f"pod-{EVIL}", pool=EVIL)
        for body in (
            (await web.get("/")).body.decode(),
            (await (await web.events(page=True)).next())[1],
        ):
            assert "alert(1)" in body
            assert "<script>" not in body
            assert "<img" not in body
        view = read(await web.get("/api/v1/overview"))
        assert view.waiting[0].repository == f"acme/{EVIL}"

    visit(scenario, database_url)


def test_the_policy_allows_nothing_but_its_own_files(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        for path in ("/", "/api/v1/overview"):
            answer = await web.get(path)
            policy = answer.header("content-security-policy")
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.header("x-content-type-options") == "nosniff"
            assert answer.header("cache-control") == "no-store"
        page = (await web.get("/")).body.decode()
        assert "style=" not in page
        assert "http://" not in page.replace(web.url, "")
        assert "https://" not in page

    visit(scenario, database_url)


@pytest.mark.parametrize(
    ("name", "type_"),
    [("app.js", "text/javascript"), ("app.css", "text/css"), ("favicon.svg", "image/svg+xml")],
)
def test_own_files_are_kept_by_browsers_and_never_stale(
    database_url: str, name: str, type_: str
) -> None:
    async def scenario(web: Site) -> None:
        page = (await web.get("/")).body.decode()
        start = page.index(f"/static/{name}?v=")
        version = page[start:].partition("=")[2].partition('"')[0]
        kept = await web.get(f"/static/{name}", query=(("v", version),))
        assert kept.status == 200
        assert kept.header("content-type").startswith(type_)
        assert "immutable" in kept.header("cache-control")
        assert (await web.get(f"/static/{name}")).header("cache-control") == "no-cache"
        again = await web.get(f"/static/{name}", if_none_match=kept.header("etag"))
        assert again.status == 304
        assert again.body == b""

    visit(scenario, database_url)


@pytest.mark.parametrize("name", ["..%2fpage.py", "page.py", "none.css", "app.js/", "%00"])
def test_no_other_file_can_be_had(database_url: str, name: str) -> None:
    async def scenario(web: Site) -> None:
        assert (await web.get(f"/static/{name}")).status == 404

    visit(scenario, database_url)


def test_news_reach_everybody_who_watches(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        first, second = await web.events(), await web.events(page=True)
        name, data = await first.next()
        assert name == "overview"
        assert msgspec.json.decode(data, type=Overview).waiting == ()
        assert (await second.next())[0] == "page"
        web.job(4711)
        data = await first.until("overview", lambda text: "4711" in text)
        assert msgspec.json.decode(data, type=Overview).waiting[0].job_id == 4711
        html = await second.until("page", lambda text: "4711" in text)
        assert html.startswith('<div id="app"')
        await web.pool("fresh-pool")
        await first.until("overview", lambda text: "fresh-pool" in text)

    visit(scenario, database_url)


@pytest.mark.slow
def test_what_does_not_change_is_not_sent(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        events = await web.events()
        await events.next()
        before = web.line.asked
        while web.line.asked < before + 20:  # five readings of Kubernetes
            await web.get("/")
        web.job(1)
        _, data = await events.next()  # the very next event is the change
        assert len(msgspec.json.decode(data, type=Overview).waiting) == 1

    visit(scenario, database_url)


@pytest.mark.slow
def test_a_newcomer_does_not_make_others_miss_a_change(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        watcher = await web.events()
        await watcher.next()
        web.job(1)
        newcomer = await web.events()
        await watcher.until("overview", lambda text: '"job_id":1,' in text)
        web.execute("DELETE FROM jobs")
        for events in (watcher, newcomer):
            await events.until("overview", lambda text: '"waiting":[]' in text)

    visit(scenario, database_url)


def test_many_viewers_cost_what_one_costs_and_none_costs_nothing(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(30):
                group.create_task(web.get("/"))
        assert web.line.asked <= 4 * 3  # four lists a reading; a slow machine may need a second one

    visit(scenario, database_url, msgspec.structs.replace(QUICK, cluster_every=60.0))


def test_a_stream_that_was_closed_ends_the_watching(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        events = await web.events()
        await events.next()
        dashboard = web.dashboard
        assert len(dashboard._overviews) == 1
        await events.close()
        async with asyncio.timeout(10):
            while len(dashboard._overviews):
                await web.get("/")

    visit(scenario, database_url)


def test_without_postgres_the_page_comes_and_says_so(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        await web.pool()
        await web.pod("mac-1")
        text = (await web.get("/")).body.decode()
        assert "Postgres does not answer" in text
        assert "mac-1" in text
        view = read(await web.get("/api/v1/overview"))
        postgres, kubernetes = view.sources
        assert (postgres.state, kubernetes.state) == ("down", "ok")
        assert postgres.since is not None
        assert view.alarms[0].code == "database-unreachable"
        again = read(await web.get("/api/v1/overview")).sources[0]
        assert again.since == postgres.since

    visit(scenario, database_url, reachable=False)


def test_when_kubernetes_goes_the_last_answer_stays_and_is_dated(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        await web.pool()
        web.slot(await web.pod("mac-1"), "mac-1")
        web.job(1)
        assert read(await web.get("/api/v1/overview")).sources[1].state == "ok"
        events = await web.events()
        web.line.cut = True
        data = await events.until("overview", lambda text: '"down"' in text)
        view = msgspec.json.decode(data, type=Overview)
        source = view.sources[1]
        assert (source.name, source.message) == ("Kubernetes", REFUSED)
        assert source.since is not None
        assert source.as_of is not None
        assert [pool.name for pool in view.pools] == ["mac"]  # as of then
        assert view.verdict.title == "The Kubernetes API does not answer"
        web.line.cut = False
        await events.until("overview", lambda text: '"down"' not in text)

    visit(scenario, database_url)


def test_a_hanging_kubernetes_delays_no_request(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        web.job(1)
        web.line.hang = True
        async with asyncio.timeout(10):
            view = read(await web.get("/api/v1/overview"))
        assert view.sources[1].state == "down"
        assert view.sources[1].message == "has not answered yet"
        web.line.hang = False

    visit(scenario, database_url, msgspec.structs.replace(QUICK, patience=0.2))


def test_without_kubernetes_set_up_nothing_is_claimed_of_it(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        web.dashboard._cluster = None
        view = read(await web.get("/api/v1/overview"))
        assert view.sources[1].state == "off"
        assert view.alarms == ()

    visit(scenario, database_url)


def test_off_loopback_the_token_is_required(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        web.job(7)
        for path in ("/api/v1/overview", "/api/v1/events"):
            refused = await web.get(path)
            assert refused.status == 401
            assert refused.header("www-authenticate") == "Bearer"
        form = await web.get("/")
        assert form.status == 401
        assert b'action="/login"' in form.body
        assert b"acme/app" not in form.body
        assert (await web.get("/static/app.css")).status == 200
        assert (await web.get("/", authorization=f"Bearer {TOKEN}")).status == 200
        assert (await web.get("/", authorization="Bearer wrong-wrong-wrong")).status == 401

    visit(scenario, database_url, GUARDED)


def test_the_login_form_sets_a_cookie_that_is_not_the_token(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        form = (("content-type", "application/x-www-form-urlencoded"),)
        wrong = Request(method="POST", path="/login", headers=form, body=b"token=nope")
        answer = await web.send(wrong)
        assert isinstance(answer, Response)
        assert answer.status == 401
        assert b"Wrong token." in answer.body
        right = Request(method="POST", path="/login", headers=form, body=f"token={TOKEN}".encode())
        answer = await web.send(right)
        assert isinstance(answer, Response)
        assert (answer.status, answer.header("location")) == (303, "/")
        cookie = answer.header("set-cookie")
        assert TOKEN not in cookie
        for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
            assert word in cookie
        pair = cookie.partition(";")[0]
        page = await web.get("/", cookie=pair)
        assert page.status == 200
        assert b"Log out" in page.body
        assert (await web.get("/", cookie=pair[:-1] + "0")).status == 401 or pair.endswith("0")
        elsewhere = await web.send(right, origin="http://evil.example")
        assert elsewhere.status == 403
        left = await web.send(Request(method="POST", path="/logout"), cookie=pair)
        assert isinstance(left, Response)
        assert "Max-Age=0" in left.header("set-cookie")

    visit(scenario, database_url, GUARDED)


def test_a_name_that_somebody_made_point_here_is_not_answered(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        for path in ("/", "/api/v1/overview", "/api/v1/events"):
            assert (await web.get(path, host="evil.example")).status == 421
        assert (await web.get("/", host="localhost:1234")).status == 200
        assert (await web.get("/", host="fleet.example")).status == 200

    visit(scenario, database_url, msgspec.structs.replace(QUICK, names=("fleet.example",)))


def test_the_routes_describe_themselves(database_url: str) -> None:
    async def scenario(web: Site) -> None:
        document = (await web.get("/openapi.json")).json()
        assert "/api/v1/overview" in document["paths"]
        assert "Overview" in document["components"]["schemas"]

    visit(scenario, database_url, Settings(token=TOKEN))
