"""Tests test results in the server: access, tokens, and the condition of the object store."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.dispatch.dispatchharness import Harness
from tests.dispatch.dispatchharness import play as play_dispatch

from runyard.blobs.location import Bucket, Credentials, Directory
from runyard.blobs.opening import open_blobs
from runyard.clock import RealClock
from runyard.components.front import front
from runyard.components.results import ObjectsWatch, Results, ResultsSetup, keys_of, streamed
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Handler, Request, Response
from runyard.telemetry.conditions import ALL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.web.dashboard import Dashboard, DashboardDeps
from runyard.web.settings import Settings
from runyard.wire.testruns import RUNS, TOKENS

TOKEN = "correct-horse-battery-staple"
LOCAL = Settings(token=TOKEN)
PUBLIC = Settings(listen="192.0.2.7", token=TOKEN, secure=True)
HERE, EVIL = "127.0.0.1:8000", "evil.example"


def served(harness: Harness, settings: Settings, folder: Path) -> Handler:
    health, freshness = Health(harness.clock, ALL), Freshness(harness.clock)
    dashboard = Dashboard(
        DashboardDeps(
            database=harness.database,
            kube=None,
            health=health,
            freshness=freshness,
            clock=harness.clock,
            rng=random.Random(5),
            meter=harness.meter,
            log=harness.log,
            settings=settings,
        )
    )
    results = Results(
        ResultsSetup(
            blobs=open_blobs(Directory(path=folder), clock=harness.clock), keys=(b"k" * 32,)
        ),
        database=harness.database,
        clock=harness.clock,
        rng=random.Random(4),
        meter=harness.meter,
        log=harness.log,
    )
    return front(
        harness.server.intake.api,
        dashboard,
        health=health,
        freshness=freshness,
        meter=harness.meter,
        more=harness.server.rest.routes(),
        results=results,
        secure=True,
    )


class ServerClient:
    """Sends requests to the server's handler."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle

    async def request(self, path: str, body: object = None, **headers: str) -> Response:
        named = tuple(headers.items())
        request = Request(method="GET", path=path, headers=named)
        if body is not None:
            named = (*named, ("content-type", "application/json"))
            text = msgspec.json.encode(body)
            request = Request(method="POST", path=path, headers=named, body=text)
        got = await self._handle(request)
        assert isinstance(got, Response)
        return got


def play(
    scenario: Callable[[ServerClient], Awaitable[None]],
    database_url: str,
    keys: KeyPair,
    settings: Settings,
    folder: Path,
) -> None:
    async def main(harness: Harness) -> None:
        await scenario(ServerClient(served(harness, settings, folder)))

    play_dispatch(main, database_url, keys)


def test_a_test_result_token_allows_test_results_only(
    database_url: str, app_keys: KeyPair, tmp_path: Path
) -> None:
    async def scenario(client: ServerClient) -> None:
        everything = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.request(RUNS)).status == 401
        assert (await client.request(RUNS, **everything)).status == 200
        made = await client.request(TOKENS, {"account": "acme"}, **everything)
        narrow = {"authorization": f"Bearer {made.json()['token']}"}
        assert (await client.request(RUNS, **narrow)).status == 200
        assert (await client.request("/api/v1/flaky-tests", **narrow)).status == 200
        assert (await client.request("/metrics", **narrow)).status == 401
        for path in ("/api/v1/overview", "/api/v1/tenants", "/api/v1/jobs", "/openapi.json"):
            assert (await client.request(path, **narrow)).status == 401, path
            assert (await client.request(path, **everything)).status == 200, path
        new = {"id": "11111111-2222-4333-8444-555555555555", "account": "acme", "project": "app"}
        created = await client.request(RUNS, new, host="runners.example", **narrow)
        assert created.json()["upload"]["url"].startswith(
            "https://runners.example/api/v1/blobs/acme/"
        )
        paths = (await client.request("/openapi.json", **everything)).json()["paths"]
        assert {RUNS, "/api/v1/blobs/{key}", "/api/v1/test-cases/{case}/history"} <= set(paths)

    play(scenario, database_url, app_keys, PUBLIC, tmp_path)


def test_loopback_requests_need_a_loopback_host_header(
    database_url: str, app_keys: KeyPair, tmp_path: Path
) -> None:
    async def scenario(client: ServerClient) -> None:
        own = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.request(RUNS, host=HERE)).status == 401
        assert (await client.request(RUNS, host=HERE, **own)).status == 200
        assert (await client.request(RUNS, host=EVIL, **own)).status == 421
        got = await client.request(TOKENS, {"account": "acme"}, host=EVIL, **own)
        assert got.status == 421

    play(scenario, database_url, app_keys, LOCAL, tmp_path)


def test_an_unreachable_store_and_its_recovery_are_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports: list[str] = []
        away = Bucket(
            bucket="results",
            endpoint="http://127.0.0.1:1",
            region="x",
            credentials=Credentials(access_key_id="a" * 8, secret_access_key="hush"),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("runyard.blobs.opening._RETRIES", 0)
            await ObjectsWatch(open_blobs(away, clock=RealClock()), report=reports.append).step()
        here = open_blobs(Directory(path=tmp_path), clock=RealClock())
        await ObjectsWatch(here, report=reports.append).step()
        assert reports[0] and "hush" not in reports[0] and reports[1] == ""

    asyncio.run(scenario())


def test_only_uploads_by_links_are_streamed() -> None:
    assert streamed(Request(method="PUT", path="/api/v1/blobs/a/b"))
    for method, path in (("GET", "/api/v1/blobs/a"), ("PUT", "/api/v1/blobsx"), ("POST", RUNS)):
        assert not streamed(Request(method=method, path=path))


def test_the_seal_key_signs_links_unless_other_keys_are_given() -> None:
    assert keys_of(b"seal") == (b"seal",)
    assert keys_of(b"seal", (b"new", b"old")) == (b"new", b"old")
