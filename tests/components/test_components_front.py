"""Tests access to the server's routes, and what an unauthenticated caller gets."""

import hashlib
import hmac
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.dispatch.dispatchharness import SECRET, Harness, Onward
from tests.dispatch.dispatchharness import play as play_dispatch

from runyard.components.front import front
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.conditions import ALL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.web.dashboard import Dashboard, DashboardDeps
from runyard.web.settings import Settings
from runyard.wire.login import LOGIN, LOGIN_LINKS
from runyard.wire.paths import (
    DESIRED_REPLICAS,
    DISPATCH,
    GITHUB_WEBHOOK,
    POD_METRICS,
    POD_STOPPED,
)
from runyard.wire.problem_codes import ProblemCode

TOKEN = "correct-horse-battery-staple"
LOCAL = Settings(token=TOKEN)
SCRAPE = "prometheus-reads-only-this"
PUBLIC = Settings(listen="192.0.2.7", token=TOKEN, metrics_token=SCRAPE, secure=True)
BARE = Settings(listen="192.0.2.7", token=TOKEN, secure=True)
NAMED = Settings(token=TOKEN, metrics_token=SCRAPE, names=("fleet.example",))
JSON = (("content-type", "application/json"),)


def served(harness: Harness, settings: Settings, health: Health) -> Handler:
    """The handler of a server socket with these settings."""
    freshness = Freshness(harness.clock)
    freshness.expect("a loop that never succeeds", 1)
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
    return front(
        harness.server.intake.api,
        dashboard,
        health=health,
        freshness=freshness,
        meter=harness.meter,
    )


class ServerClient:
    """Sends requests to the server's handler."""

    def __init__(self, harness: Harness, settings: Settings) -> None:
        self.harness = harness
        self.health = Health(harness.clock, ALL)
        self._handle = served(harness, settings, self.health)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        got = await self._handle(Request(method=method, path=path, headers=named, body=body))
        if isinstance(got, Stream):
            await got.aclose()
            return Response(status=got.status, headers=got.headers)
        return got


def play(
    scenario: Callable[[ServerClient], Awaitable[None]],
    database_url: str,
    keys: KeyPair,
    settings: Settings = LOCAL,
) -> None:
    async def main(harness: Harness) -> None:
        await scenario(ServerClient(harness, settings))

    play_dispatch(main, database_url, keys)


def signed(body: bytes) -> str:
    return "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


LOOKS = ("/", "/api/v1/overview", "/api/v1/events", "/metrics", "/openapi.json")
CLOSED = tuple(path for path in LOOKS if path != "/metrics")
OPEN = ("/healthz", "/readyz", "/static/app.css")
CALLS = (DISPATCH, POD_STOPPED, GITHUB_WEBHOOK)
RECORDS = (
    "/api/v1/jobs/{job}/transitions",
    "/api/v1/jobs/{job}/metrics",
    "/api/v1/slots/{uid}/transitions",
)
HERE, EVIL = "127.0.0.1:8000", "evil.example"
BEARER, WRONG = f"Bearer {TOKEN}", "Bearer wrong-wrong-wrong-wrong"
NARROW = f"Bearer {SCRAPE}"
BY_OWNER = {"host": "fleet.example", "authorization": BEARER}
BY_PROXY = {"host": "fleet.example", "authorization": NARROW}

ACCESS: list[tuple[str, Settings, str, tuple[str, ...], dict[str, str], int]] = [
    ("here, without a token", LOCAL, "GET", CLOSED, {"host": HERE}, 401),
    ("here, a wrong token", LOCAL, "GET", CLOSED, {"host": HERE, "authorization": WRONG}, 401),
    ("here, with the token", LOCAL, "GET", LOOKS, {"host": HERE, "authorization": BEARER}, 200),
    ("here, the metrics", LOCAL, "GET", ("/metrics",), {"host": HERE}, 200),
    ("here, by another name", LOCAL, "GET", LOOKS, {"host": EVIL, "authorization": BEARER}, 421),
    ("here, without a name", LOCAL, "GET", LOOKS, {"authorization": BEARER}, 421),
    ("outside, without a token", PUBLIC, "GET", LOOKS, {"host": "fleet.example"}, 401),
    ("outside, a wrong token", PUBLIC, "GET", LOOKS, {"authorization": WRONG}, 401),
    ("outside, pretending to be here", PUBLIC, "GET", LOOKS, {"host": HERE}, 401),
    ("outside, with the token", PUBLIC, "GET", CLOSED, {"authorization": BEARER}, 200),
    ("outside, the dashboard's token reads no metrics", PUBLIC, "GET", ("/metrics",), {"authorization": BEARER}, 401),
    ("outside, no scrape token is set", BARE, "GET", ("/metrics",), {"authorization": BEARER}, 401),
    ("outside, an empty scrape token", BARE, "GET", ("/metrics",), {"authorization": "Bearer "}, 401),
    ("by a proxy, the dashboard's token reads no metrics", NAMED, "GET", ("/metrics",), BY_OWNER, 401),
    ("outside, the scrape token reads metrics", PUBLIC, "GET", ("/metrics",), {"authorization": NARROW}, 200),
    ("outside, the scrape token reads no more", PUBLIC, "GET", CLOSED, {"authorization": NARROW}, 401),
    ("outside, the scrape token makes no links", PUBLIC, "POST", (LOGIN_LINKS,), {"authorization": NARROW}, 401),
    ("here, the scrape token reads no more", NAMED, "GET", CLOSED, {"host": HERE, "authorization": NARROW}, 401),
    ("by a proxy, metrics without a token", NAMED, "GET", ("/metrics",), {"host": "fleet.example"}, 401),
    ("by a proxy, metrics with the scrape token", NAMED, "GET", ("/metrics",), BY_PROXY, 200),
    ("here, alive", LOCAL, "GET", OPEN, {"host": HERE}, 200),
    ("by any name, alive", LOCAL, "GET", OPEN, {"host": EVIL}, 200),
    ("outside, alive", PUBLIC, "GET", OPEN, {}, 200),
    # Its callers authenticate themselves, and use names that the dashboard does not know.
    ("the API, here", LOCAL, "POST", CALLS, {"host": EVIL}, 401),
    ("the API, outside", PUBLIC, "POST", CALLS, {"host": "fleet.example"}, 401),
    ("the API does not take the dashboard's token", PUBLIC, "POST", CALLS, {"authorization": BEARER}, 401),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", ACCESS, ids=[row[0] for row in ACCESS])
def test_each_caller_gets_these_statuses(
    database_url: str, app_keys: KeyPair, row: tuple[Any, ...]
) -> None:
    _, settings, method, paths, headers, status = row

    async def scenario(client: ServerClient) -> None:
        await client.harness.pool()
        for path in paths:
            got = await client.request(method, path, **headers)
            assert got.status == status, path
            if status >= 400 and path != "/":
                assert got.json()["error"] and TOKEN.encode() not in got.body

    play(scenario, database_url, app_keys, settings)


def test_only_a_missing_database_makes_a_started_replica_unready(
    database_url: str, app_keys: KeyPair
) -> None:
    """An outage of GitHub or Kubernetes concerns all replicas at once: none would be left."""

    async def scenario(client: ServerClient) -> None:
        away = []
        for condition in ALL:
            client.health.fail(condition.code, "as it is in an outage")
            await client.harness.clock.sleep(condition.visible_after)
            got = await client.request("GET", "/readyz", host="10.0.0.7:8080")  # a kubelet
            assert got.json() == {"ready": got.status == 200}
            body = (await client.request("GET", "/readyz", authorization=BEARER)).json()
            assert [each["code"] for each in body["conditions"]] == [condition.code]
            assert not body["works"] and body["stale"]
            numbers = (await client.request("GET", "/metrics", authorization=NARROW)).body
            assert f'runyard_condition{{condition="{condition.code}"}} 1.0'.encode() in numbers
            if got.status == 503:
                away.append(condition.code)
            client.health.ok(condition.code)
        assert away == ["starting", "database-unreachable"]

    play(scenario, database_url, app_keys, PUBLIC)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [LOCAL, PUBLIC], ids=["here", "outside"])
def test_runners_and_github_may_use_any_host_header(
    database_url: str, app_keys: KeyPair, settings: Settings
) -> None:
    async def scenario(client: ServerClient) -> None:
        await client.harness.pool()
        guest = await client.harness.pod()
        token = f"Bearer {guest.token}"
        got = await client.request(
            "POST", DISPATCH, authorization=token, host=EVIL, prefer="wait=0"
        )
        assert got.status == 204
        got = await client.request(
            "POST",
            GITHUB_WEBHOOK,
            b"{}",
            host=EVIL,
            x_hub_signature_256=signed(b"{}"),
            x_github_delivery="a",
            x_github_event="ping",
        )
        assert (got.status, got.json()) == (200, {"outcome": "ignored"})
        operator = f"Bearer {await client.harness.controller_token()}"
        body = b'{"pod_name": "p", "ended_at": "2026-01-01T00:00:00Z"}'
        got = await client.request("POST", POD_STOPPED, body, host=EVIL, authorization=operator)
        assert got.status == 204

    play(scenario, database_url, app_keys, settings)


@pytest.mark.slow
def test_the_openapi_document_lists_every_route(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: ServerClient) -> None:
        document = (
            await client.request("GET", "/openapi.json", host=HERE, authorization=BEARER)
        ).json()
        operations = {
            (method.upper(), path): operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        looks = {("GET", path) for path in (*LOOKS, *OPEN[:2], "/static/{name}", *RECORDS)}
        forms = {("GET", LOGIN), ("POST", LOGIN), ("POST", LOGIN_LINKS), ("POST", "/logout")}
        calls = {("GET", DESIRED_REPLICAS), *(("POST", path) for path in (*CALLS, POD_METRICS))}
        assert set(operations) == looks | forms | calls
        schemas, schemes = (document["components"][k] for k in ("schemas", "securitySchemes"))
        assert {"Problem", "Dispatched", "Drain", "PodStopped", "JobEvent"} <= set(schemas)
        asked = {path: operations["POST", path]["security"] for path in CALLS}
        assert all(name in schemes for needs in asked.values() for need in needs for name in need)
        assert schemes["signature"]["name"] == "x-hub-signature-256"
        for path in CALLS:
            assert {"401", "500", "503"} <= set(operations["POST", path]["responses"])

    play(scenario, database_url, app_keys)


REFUSED = [
    ("GET", DISPATCH, b"", 405),
    ("PUT", GITHUB_WEBHOOK, b"", 405),
    ("POST", "/metrics", b"", 405),
    ("POST", "/api/internal/nothing", b"", 404),
    ("GET", "/nothing", b"", 404),
    ("POST", GITHUB_WEBHOOK, b"x" * 1001, 413),
    ("POST", DISPATCH, b"x" * 1001, 413),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"), REFUSED, ids=[f"{m} {p} {s}" for m, p, _, s in REFUSED]
)
def test_refused_requests_have_the_same_body_everywhere(
    database_url: str, app_keys: KeyPair, method: str, path: str, body: bytes, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        got = await ServerClient(harness, LOCAL).request(method, path, body, host=HERE)
        assert got.status == status
        assert got.header("content-type") == "application/json"
        assert set(got.json()) <= {"error", "reason", "fix", "code"}
        assert bool(got.header("allow")) == (status == 405)
        # And the same without the dashboard, from the API alone.
        alone = await harness.ask(method, path, body)
        if path in CALLS:
            assert (alone.status, alone.body) == (got.status, got.body)

    play_dispatch(scenario, database_url, app_keys, body_limit=1000)


BODIES = [b"", b"{}", b"{nonsense", b"\xff", b"[" * 100_000, b'{"action": "queued"}']


@pytest.mark.parametrize("path", CALLS)
def test_an_unauthenticated_response_does_not_depend_on_the_body(
    database_url: str, app_keys: KeyPair, path: str
) -> None:
    async def scenario(client: ServerClient) -> None:
        responses = {
            (got := await client.request("POST", path, body, content_type=kind)).body: got.status
            for body in BODIES
            for kind in ("application/json", "text/plain", "")
        }
        assert list(responses.values()) == [401]
        wrong = {
            (
                await client.request("POST", path, body, x_hub_signature_256="sha256=" + "0" * 64)
            ).body
            for body in BODIES
        }
        assert len(wrong) == 1

    play(scenario, database_url, app_keys)


def test_a_programming_error_is_a_500_and_is_counted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: ServerClient) -> None:
        harness = client.harness
        await harness.pool()
        guest = await harness.pod()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            raise ZeroDivisionError(f"a programming error, with {guest.token}")

        harness.kube_wire.tamper = tamper
        got = await client.request("POST", DISPATCH, authorization=f"Bearer {guest.token}")
        assert (got.status, got.json()["code"]) == (500, ProblemCode.DISPATCH_FAILED)
        assert guest.token.encode() not in got.body
        counted = {"component": "server", "action": "request", "outcome": "internal-error"}
        assert harness.meter.get(RUNYARD_ACTIONS_TOTAL, **counted) == 1

    play(scenario, database_url, app_keys)
