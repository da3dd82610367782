"""No request makes the server raise, and every failure has a status."""

import hashlib
import hmac

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dispatch.dispatchharness import SECRET, SPACE, Harness, Onward, play

from runyard.embedded.github.identity import KeyPair
from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.sim.loop import run_virtual
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK, POD_STOPPED
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons_dispatch import Denied

ANY_TEXT = st.text(st.characters(codec=None), max_size=30)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "authorization",
                "prefer",
                "x-github-delivery",
                "x-github-event",
                "x-hub-signature-256",
            ]
        ),
        ANY_TEXT
        | ANY_TEXT.map(lambda text: f"Bearer {text}")
        | ANY_TEXT.map(lambda t: f"wait={t}"),
    ),
    max_size=5,
)


REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "DELETE", "", "\0"]),
    st.sampled_from([DISPATCH, GITHUB_WEBHOOK, POD_STOPPED]) | ANY_TEXT,
    st.binary(max_size=60),
    HEADERS,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(st.lists(REQUESTS, min_size=5, max_size=30))
def test_no_request_makes_the_server_raise(
    database_url: str,
    app_keys: KeyPair,
    requests: list[tuple[str, str, bytes, list[tuple[str, str]]]],
) -> None:
    async def main() -> None:
        harness = Harness(database_url, app_keys)
        try:
            for method, path, body, headers in requests:
                answer = await harness.ask(method, path, body, tuple(headers))
                assert 400 <= answer.status < 500
        finally:
            harness.close()

    run_virtual(main())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", DISPATCH, 405),
        ("PUT", GITHUB_WEBHOOK, 405),
        ("POST", DISPATCH + "/", 404),
        ("POST", DISPATCH, 401),
        ("POST", GITHUB_WEBHOOK, 401),
        ("POST", POD_STOPPED, 401),
    ],
)
def test_an_unknown_path_or_method_is_answered(
    database_url: str, app_keys: KeyPair, method: str, path: str, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        answer = await harness.ask(method, path)
        assert answer.status == status and answer.json()["error"]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"pod_name": "p"}',
        b'{"pod_name": 3, "ended_at": "2026-01-01T00:00:00Z"}',
        b'{"pod_name": "p", "ended_at": "yesterday"}',
        b'{"pod_name": "p", "ended_at": "2026-01-01T00:00:00"}',
        b'{"pod_name": "a\\u0000b", "ended_at": "2026-01-01T00:00:00Z"}',
        b'{"pod_name": "\xff", "ended_at": "2026-01-01T00:00:00Z"}',
    ],
)
def test_an_invalid_stop_report_is_400(database_url: str, app_keys: KeyPair, body: bytes) -> None:
    async def scenario(harness: Harness) -> None:
        token = await harness.controller_token()
        answer = await harness.ask(
            "POST", POD_STOPPED, body, (("authorization", f"Bearer {token}"),)
        )
        assert answer.status == 400

    play(scenario, database_url, app_keys)


def test_a_stop_report_names_its_missing_field(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        token = await harness.controller_token()
        harness.database.down = True
        assert (await harness.report_stopped("p", token)).status == 500
        harness.database.down = False

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            raise NotSent("no API")

        harness.kube_wire.tamper = tamper
        assert (await harness.report_stopped("p", token)).status == 503

    play(scenario, database_url, app_keys)


def test_an_unexpected_error_is_answered_and_counted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            raise ZeroDivisionError("a defect of ours")

        harness.kube_wire.tamper = tamper
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()["code"]) == (500, ProblemCode.DISPATCH_FAILED)
        counted = {"component": "server", "action": "request", "outcome": "internal-error"}
        assert harness.meter.get(RUNYARD_ACTIONS_TOTAL, **counted) == 1

    play(scenario, database_url, app_keys)


def test_an_invalid_token_review_does_not_authenticate(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answers = [
            ({}, (401, 503)),
            ({"status": {"authenticated": True}}, (401,)),
            ({"status": {"authenticated": True, "user": {"username": "system:admin"}}}, (401,)),
            ({"status": []}, (503,)),
        ]
        for body, allowed in answers:

            async def tamper(
                request: Request, onward: Onward, body: object = body
            ) -> Response | Stream:
                return json_response(201, body)

            harness.kube_wire.tamper = tamper
            assert (await harness.poll(guest)).status in allowed

    play(scenario, database_url, app_keys)


SIGNED = (
    (
        "x-hub-signature-256",
        "sha256=" + hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest(),
    ),
)
REFUSALS: list[tuple[str, tuple[tuple[str, str], ...], int, str, str]] = [
    (GITHUB_WEBHOOK, (), 401, "bad signature", "secret"),
    (GITHUB_WEBHOOK, (("x-hub-signature-256", "sha256=planted-1"),), 401, "bad signature", "secret"),
    (GITHUB_WEBHOOK, SIGNED, 400, "no x-github-delivery header", "name each delivery"),
    (
        GITHUB_WEBHOOK,
        (*SIGNED, ("x-github-delivery", "planted-1" * 20)),
        400,
        "no x-github-delivery header",
        "name each delivery",
    ),
    (DISPATCH, (), 401, "missing bearer token", "Authorization: Bearer"),
    (DISPATCH, (("authorization", "Bearer planted-1"),), 401, "invalid token", "audience"),
    (POD_STOPPED, (), 401, "missing bearer token", "Authorization: Bearer"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "headers", "status", "error", "fix"), REFUSALS)
def test_a_401_has_a_fix_and_no_credential(
    database_url: str,
    app_keys: KeyPair,
    path: str,
    headers: tuple[tuple[str, str], ...],
    status: int,
    error: str,
    fix: str,
) -> None:
    async def scenario(harness: Harness) -> None:
        answer = await harness.ask("POST", path, b"{}", headers)
        body = answer.json()
        assert (answer.status, body["error"]) == (status, error)
        assert fix in body["fix"]
        assert b"planted-1" not in answer.body and SECRET.encode() not in answer.body

    play(scenario, database_url, app_keys)


def test_a_wrong_account_is_answered_with_the_operators_account(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer = await harness.report_stopped("p", guest.token)
        assert answer.status == 401
        assert guest.token.encode() not in answer.body
        token = await harness.admin.create_token(
            guest.name, namespace=SPACE, audience="", seconds=3600
        )
        body = (await harness.report_stopped("p", token)).json()
        assert body["code"] == Denied.OTHER_PRINCIPAL.value
        assert "ServiceAccount" in body["fix"] and token not in str(body)

    play(scenario, database_url, app_keys)


def test_a_deeply_nested_report_is_400(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        token = await harness.controller_token()
        headers = (("authorization", f"Bearer {token}"),)
        body = b'{"pod_name": "p", "ended_at": "", "more": ' + b"[" * 100_000
        answer = await harness.ask("POST", POD_STOPPED, body, headers)
        assert (answer.status, answer.json()["code"]) == (400, ProblemCode.REPORT_INVALID)
        assert answer.json()["reason"]

    play(scenario, database_url, app_keys)
