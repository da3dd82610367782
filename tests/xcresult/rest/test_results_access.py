"""Tests access: a token of one account shows only its own results, and untrusted text does no harm."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.blobs.blobstores import ShiftedClock
from tests.xcresult.rest.results_harness import JSON, KEY, NEW, OTHER_RUN, RUN, TOKEN, Harness, play

from runyard.http.messages import Request
from runyard.xcresult.rest.tokens import PREFIX, Scope, Tokens
from runyard.xcresult.routes import PATHS

NOBODY = "33333333-3333-4333-8333-333333333333"


def paths(run: str, case: str, attachment: str) -> tuple[str, ...]:
    """The paths of everything readable of one run."""
    at = f"/api/v1/test-runs/{run}"
    return (
        at,
        *(f"{at}/{part}" for part in ("modules", "suites", "cases", "attachments", "coverage")),
        f"{at}/coverage/files",
        f"{at}/cases/{case}",
        f"/api/v1/test-cases/{case}",
        f"/api/v1/test-cases/{case}/history",
        f"/api/v1/test-attachments/{attachment}",
    )


LISTS = ("/api/v1/test-runs", "/api/v1/flaky-tests")


async def filled(harness: Harness) -> dict[str, tuple[str, ...]]:
    """Insert two accounts with a run each; returns the readable paths of each."""
    found: dict[str, tuple[str, ...]] = {}
    for run, account in ((RUN, "acme"), (OTHER_RUN, "other")):
        harness.run(run, account=account)
        case = harness.case(run, is_flaky=True)
        harness.covered(run, "/a.swift", {1: 1})
        found[account] = paths(run, case, await harness.attachment(run))
    return found


@pytest.mark.slow
def test_one_account_does_not_see_the_other(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        seen = await filled(harness)
        token = await harness.token(account="Acme")
        for path in seen["acme"]:
            assert (await harness.ask("GET", path, token=token)).status == 200, path
            assert (await harness.ask("GET", path)).status == 200, path
        for path in seen["other"]:
            theirs = await harness.ask("GET", path, token=token)
            nobodys = await harness.ask(
                "GET", path.replace(OTHER_RUN, NOBODY) if OTHER_RUN in path else path[:-36] + NOBODY,
                token=token,
            )  # fmt: skip
            assert theirs.status == 404, path
            assert theirs.body == nobodys.body, "responses reveal which ids exist"
        for path in LISTS:
            text = (await harness.ask("GET", path, token=token)).body
            assert b"acme" in text and b"other" not in text
            assert (await harness.ask("GET", path, token=token, account="other")).status == 404
            assert b"other" in (await harness.ask("GET", path)).body
        tests = {"account": "other", "project": "app"}
        assert (await harness.ask("GET", "/api/v1/test-cases", token=token, **tests)).status == 404

    play(scenario, database_url, tmp_path)


def test_one_project_does_not_see_the_other_of_its_account(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run(RUN, project="app")
        harness.run(OTHER_RUN, project="secret")
        token = await harness.token(account="acme", project="app")
        assert (await harness.ask("GET", f"/api/v1/test-runs/{RUN}", token=token)).status == 200
        assert (
            await harness.ask("GET", f"/api/v1/test-runs/{OTHER_RUN}", token=token)
        ).status == 404
        found = await harness.get("/api/v1/test-runs", token=token)
        assert [run["project"] for run in found["items"]] == ["app"]

    play(scenario, database_url, tmp_path)


def test_a_token_uploads_to_its_own_account_if_at_all(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        async def announced(token: str, **more: object) -> int:
            body = {**NEW, **more}
            return (await harness.ask("POST", "/api/v1/test-runs", body, token=token)).status

        own = await harness.token(account="acme")
        reader = await harness.token(account="acme", may_upload=False)
        assert await announced(own) == 200
        assert await announced(own, account="other", id=OTHER_RUN) == 403
        assert await announced(reader, id=OTHER_RUN) == 403
        foreign = await harness.token(account="other")
        for part in ("complete", "reprocess"):
            path = f"/api/v1/test-runs/{RUN}/{part}"
            assert (await harness.ask("POST", path, {}, token=foreign)).status == 404
            assert (await harness.ask("POST", path, {}, token=reader)).status == 403
        made = await harness.ask("POST", "/api/v1/test-tokens", {"account": "acme"}, token=own)
        assert made.status == 403

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_invalid_tokens_are_refused(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        seen = await filled(harness)
        good = await harness.token(account="acme")
        bad = [
            "", "wrong", PREFIX, PREFIX + "x.y", good[:-1], good + "0", good.replace(".", ".A", 1),
            PREFIX + "." * 2000, Tokens((b"x" * 32,), clock=ShiftedClock()).make(Scope(account="acme"), lasts=60)[0],
        ]  # fmt: skip
        for token, path in itertools.product(bad, (*LISTS, seen["acme"][0])):
            if token in ("", "wrong") and path != LISTS[0]:
                continue  # responses to wrong tokens are delayed
            assert (await harness.ask("GET", path, token=token)).status == 401, (token, path)
        harness.clock.ahead = 91 * 86400
        assert (await harness.ask("GET", LISTS[0], token=good)).status == 401

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_token_for_results_opens_nothing_else(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        token = await harness.token(account="acme")
        assert (await harness.ask("GET", "/openapi.json", token=token)).status == 401
        routes, _ = harness.results.routes(_nobody, secure=False)
        for route in routes:
            assert route.path.startswith(PATHS) == route.secured, route.path

    play(scenario, database_url, tmp_path)


async def _nobody(_: Request) -> None:
    return None


HOSTILE = (
    "1",
    "..",
    "%2e%2e",
    "x" * 300,
    "'; DROP TABLE test_runs; --",
    RUN + "x",
    "\0",
    "０" * 36,
)
QUERIES: tuple[dict[str, Any], ...] = (
    {"limit": 0}, {"limit": 501}, {"limit": "x"}, {"limit": "-1"}, {"limit": "٣"},
    {"cursor": "x"}, {"cursor": "1_2_3_4_5"}, {"cursor": "9" * 30}, {"cursor": "x" * 5000}, {"cursor": "\0"},
)  # fmt: skip

WORDS: tuple[dict[str, Any], ...] = (
    *({"state": "x"}, {"status": "x"}, {"flaky": "1"}, {"account": "a/b"}),
    *({"branch": "x" * 501}, {"branch": "\0"}),
)


@pytest.mark.slow
def test_hostile_ids_and_parameters_are_refused(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run()
        case = harness.case()
        for text in HOSTILE:
            for path in (
                *paths(text, case, text)[:-3],
                f"/api/v1/test-runs/{RUN}/cases/{text}",
                f"/api/v1/test-cases/{text}",
                f"/api/v1/test-cases/{text}/history",
                f"/api/v1/test-attachments/{text}",
            ):
                assert (await harness.ask("GET", path)).status == 404, path
        at = f"/api/v1/test-runs/{RUN}"
        for query in QUERIES:
            for path in (
                *("/api/v1/test-runs", f"{at}/modules", f"{at}/suites", f"{at}/cases"),
                *(
                    f"{at}/attachments",
                    f"{at}/coverage/files",
                    f"/api/v1/test-cases/{case}/history",
                ),
            ):
                answer = await harness.ask("GET", path, **query)
                assert answer.status == 400, (path, query, answer.body)
        for query in WORDS:
            assert (await harness.ask("GET", "/api/v1/test-runs", **query)).status == 400, query
        for days in (0, 367, "x"):
            assert (await harness.ask("GET", "/api/v1/flaky-tests", days=days)).status == 400

    play(scenario, database_url, tmp_path)


STRANGE = (
    "%",
    "'",
    "\\",
    "\u202e",
    "\U0010ffff",
    "-1",
    "1e9",
    "9" * 16,
    "\r\n",
    "{run}",
    "é" * 250,
)


@pytest.mark.slow
def test_no_text_in_any_parameter_makes_the_server_fail(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run()
        case, names = harness.case(), {"run": RUN, "attachment": await harness.attachment()}
        routes, _ = harness.results.routes(_nobody, secure=False)
        for route in (route for route in routes if route.method == "GET" and route.secured):
            path = route.path.format(case=case, **names)
            for (name, _), text in itertools.product(route.query, STRANGE):
                answer = await harness.ask("GET", path, **{name: text})
                assert answer.status in (200, 400, 404), (path, name, text, answer.body)

    play(scenario, database_url, tmp_path)


def test_a_body_is_read_only_from_an_authorized_client(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        request = Request(method="POST", path="/api/v1/test-runs", headers=JSON, body=b"{")
        assert (await harness.send(request)).status == 401
        ours = Request(
            method="POST",
            path="/api/v1/test-runs",
            headers=(*JSON, ("authorization", f"Bearer {TOKEN}")),
            body=b'{"id": "\\ud800"}',
        )
        assert (await harness.send(ours)).status in (400, 422)

    play(scenario, database_url, tmp_path)


def test_an_attachment_is_a_download_that_no_browser_shows(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run()
        harness.case()
        page = b"<script>alert(1)</script>"
        attachment = await harness.attachment(RUN, page, name='../evil"; x=.html')
        found = await harness.get(f"/api/v1/test-attachments/{attachment}")
        assert TOKEN not in found["url"]
        answer = await harness.follow(found["url"])
        assert (answer.status, answer.body) == (200, page)
        assert answer.header("content-type") == "application/octet-stream"
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("content-security-policy") == "sandbox; default-src 'none'"
        disposition = answer.header("content-disposition")
        assert disposition.startswith('attachment; filename="_evil__ x=.html"')
        changed = await harness.follow(found["url"].replace("name=", "name=x"))
        assert changed.status == 403
        assert (await harness.follow(found["url"], "PUT", b"mine")).status == 403
        (listed,) = (await harness.get(f"/api/v1/test-runs/{RUN}/attachments"))["items"]
        assert listed["id"] == attachment and listed["size"] == len(page)
        harness.clock.ahead = 901
        assert (await harness.follow(found["url"])).status == 403
        harness.clock.ahead = 0
        await harness.blobs.delete([blob.key async for blob in harness.blobs.list()])
        assert (await harness.follow(found["url"])).status == 404

    play(scenario, database_url, tmp_path)


def test_a_token_needs_an_account_and_a_key() -> None:
    with pytest.raises(ValueError, match="needs an account"):
        Tokens((KEY,), clock=ShiftedClock()).make(Scope(), lasts=60)
    with pytest.raises(ValueError, match="key"):
        Tokens((), clock=ShiftedClock())


def test_tokens_outlive_a_change_of_keys_as_long_as_the_old_one_is_there() -> None:
    clock = ShiftedClock()
    old, _ = Tokens((b"o" * 32,), clock=clock).make(Scope(account="acme"), lasts=60)
    assert Tokens((b"n" * 32, b"o" * 32), clock=clock).verify(old) == Scope(account="acme")
    assert Tokens((b"n" * 32,), clock=clock).verify(old) is None
