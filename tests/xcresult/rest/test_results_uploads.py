"""Tests uploads: announced, uploaded, completed, repeated and interrupted."""

import asyncio
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.blobs.blobstores import BUCKET, KEYS
from tests.xcresult.rest.results_harness import NEW, OTHER_RUN, RUN, Harness, play

from runyard.blobs.location import Bucket
from runyard.db.contract import Tx, Unavailable
from runyard.telemetry.catalogue import RUNYARD_TEST_UPLOADS_TOTAL
from runyard.wire.problem_codes import ProblemCode
from runyard.xcresult.rest.settings import Settings

BUNDLE = b"PK" + bytes(range(256)) * 500
COMPLETE = f"/api/v1/test-runs/{RUN}/complete"
ANNOUNCEMENT = {
    "is_ci": True, "git_branch": "main", "git_commit_sha": "abc", "git_ref": "refs/heads/main",
    "macos_version": "26.1", "xcode_version": "26.1", "model_identifier": "Mac16,10", "scheme": "App",
    "ci_run_id": "77", "ci_project_handle": "acme/app", "ci_host": "github.com", "ci_provider": "github",
    "build_run_id": "b1", "shard_plan_id": "plan", "ran_at": "2026-01-02T03:04:05+01:00",
    "vcs_comment_params": {"pull_request": 5},
}  # fmt: skip


def state(harness: Harness, run: str = RUN, shard: int = 0) -> Any:
    sql = "SELECT state, archive_bytes FROM test_runs WHERE run_id = %s AND shard = %s"
    return harness.rows(sql, run, shard)[0]


def jobs(harness: Harness) -> list[Any]:
    return harness.rows("SELECT args ->> 'run_id', args ->> 'shard' FROM procrastinate_jobs")


def test_a_bundle_is_announced_uploaded_and_queued(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.announced(**ANNOUNCEMENT)
        assert (made["id"], made["state"], made["upload"]["method"]) == (
            RUN,
            "awaiting_upload",
            "PUT",
        )
        put = await harness.follow(made["upload"]["url"], "PUT", BUNDLE)
        assert (put.status, put.json()) == (200, {"size": len(BUNDLE)})
        done = await harness.ask("POST", COMPLETE, {})
        assert (done.status, done.json()["state"]) == (202, "queued")
        assert state(harness) == ("queued", len(BUNDLE))
        assert jobs(harness) == [(RUN, "0")]
        (key,) = harness.rows("SELECT storage_key FROM test_runs")[0]
        assert b"".join([piece async for piece in await harness.blobs.get(key)]) == BUNDLE
        shown = (await harness.get(f"/api/v1/test-runs/{RUN}"))["run"]
        returned = {
            name: shown[name] for name in ANNOUNCEMENT if name in shown and name != "ran_at"
        }
        assert returned == {name: value for name, value in ANNOUNCEMENT.items() if name in returned}
        assert len(returned) == 14 and shown["ran_at"] == 1767319445.0
        assert harness.meter.get(RUNYARD_TEST_UPLOADS_TOTAL, outcome="completed") == 1

    play(scenario, database_url, tmp_path)


def test_a_repeated_request_is_executed_once(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        first = await harness.announced(scheme="One")
        again = await harness.announced(scheme="Two")
        assert again["state"] == "awaiting_upload"
        assert urlsplit(again["upload"]["url"]).path == urlsplit(first["upload"]["url"]).path
        for link in (first, again):
            assert (await harness.follow(link["upload"]["url"], "PUT", BUNDLE)).status == 200
        for _ in range(3):
            assert (await harness.ask("POST", COMPLETE, {})).json()["state"] == "queued"
        late = await harness.announced()
        assert late == {"id": RUN, "shard_index": 0, "state": "queued", "upload": None}
        assert jobs(harness) == [(RUN, "0")]
        assert harness.rows("SELECT scheme FROM test_runs") == [("One",)]
        harness.change("UPDATE test_runs SET state = 'processed', due_at = NULL")
        assert (await harness.ask("POST", COMPLETE, {})).json()["state"] == "processed"
        assert jobs(harness) == [(RUN, "0")]

    play(scenario, database_url, tmp_path)


def test_announcements_at_once_are_one(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        made = await asyncio.gather(*(harness.announced() for _ in range(8)))
        assert len({urlsplit(each["upload"]["url"]).path for each in made}) == 1
        shards = await asyncio.gather(*(harness.announced(shard_index=n) for n in range(4)))
        assert len({urlsplit(each["upload"]["url"]).path for each in shards}) == 4

    play(scenario, database_url, tmp_path)


def test_an_id_of_another_project_is_not_taken_over(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.announced()
        for more in ({"account": "evil"}, {"project": "other", "shard_index": 1}):
            answer = await harness.ask("POST", "/api/v1/test-runs", {**NEW, **more})
            assert (answer.status, answer.json()["code"]) == (409, ProblemCode.RUN_ID_IN_USE)
        assert harness.rows("SELECT account, project FROM test_runs") == [("acme", "app")]

    play(scenario, database_url, tmp_path)


def test_nothing_uploaded_is_not_processed(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.announced()
        answer = await harness.ask("POST", COMPLETE, {})
        assert (answer.status, answer.json()["code"]) == (409, ProblemCode.UPLOAD_MISSING)
        assert (await harness.follow(made["upload"]["url"], "PUT", b"")).status == 200
        assert (await harness.ask("POST", COMPLETE, {})).status == 413
        assert state(harness) == ("awaiting_upload", None)
        unknown = f"/api/v1/test-runs/{OTHER_RUN}/complete"
        assert (await harness.ask("POST", unknown, {})).status == 404
        assert (await harness.ask("POST", COMPLETE, {"shard_index": 1})).status == 404
        assert jobs(harness) == []

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_an_upload_ends_at_its_limit(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        url = (await harness.announced())["upload"]["url"]
        response = await harness.follow(url, "PUT", bytes(100_001))
        assert (response.status, response.json()["code"]) == (413, ProblemCode.BODY_TOO_LARGE)
        status = await asyncio.to_thread(chunked, url, [b"x" * 40_000] * 3)
        assert status == b"413"
        assert [blob async for blob in harness.blobs.list()] == []
        assert await asyncio.to_thread(chunked, url, [b"x" * 40_000] * 2) == b"200"

    play(scenario, database_url, tmp_path, settings=Settings(upload_limit=100_000))


def chunked(url: str, parts: list[bytes], *, whole: bool = True) -> bytes:
    """Send a chunked body; returns the status, empty if there was none."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10) as link:
        head = f"PUT {where.path}?{where.query} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        link.sendall(head.encode())
        for part in parts:
            link.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        if not whole:
            return b""
        link.sendall(b"0\r\n\r\n")
        return link.recv(100).split(b" ")[1]


def test_an_upload_that_breaks_off_leaves_nothing(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        url = (await harness.announced())["upload"]["url"]
        await asyncio.to_thread(chunked, url, [b"x" * 1_000_000] * 3, whole=False)
        await harness.follow(url, "GET")  # after a round trip
        answer = await harness.ask("POST", COMPLETE, {})
        assert answer.status == 409
        assert (await harness.follow(url, "PUT", BUNDLE)).status == 200
        assert (await harness.ask("POST", COMPLETE, {})).status == 202

    play(scenario, database_url, tmp_path)


def test_an_upload_needs_a_valid_link(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        url = (await harness.announced())["upload"]["url"]
        path = urlsplit(url).path
        for bad in (
            harness.url + path,
            url.replace("limit=", "limit=9"),
            url[:-1] + ("0" if url[-1] != "0" else "1"),
            url.replace("result_bundle", "other"),
            harness.url + "/api/v1/blobs/../../etc/passwd?" + urlsplit(url).query,
        ):
            answer = await harness.follow(bad, "PUT", BUNDLE)
            assert (answer.status, answer.json()["code"]) == (403, ProblemCode.LINK_INVALID)
        harness.clock.ahead = Settings().upload_lasts + 1
        assert (await harness.follow(url, "PUT", BUNDLE)).status == 403
        assert [blob async for blob in harness.blobs.list()] == []

    play(scenario, database_url, tmp_path)


def test_a_run_is_not_lost_when_it_cannot_be_queued(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: Tx, **__: object) -> bool:
        raise Unavailable("the connection broke")

    async def scenario(harness: Harness) -> None:
        url = (await harness.announced())["upload"]["url"]
        await harness.follow(url, "PUT", BUNDLE)
        uploads = harness.results._pieces.uploads
        with monkeypatch.context() as patch:
            patch.setattr(uploads, "_enqueue", away)
            answer = await harness.ask("POST", COMPLETE, {})
            assert (answer.status, answer.json()["code"]) == (503, ProblemCode.DATABASE_UNAVAILABLE)
        assert state(harness)[0] == "awaiting_upload" and jobs(harness) == []
        assert (await harness.ask("POST", COMPLETE, {})).json()["state"] == "queued"
        assert jobs(harness) == [(RUN, "0")]

    play(scenario, database_url, tmp_path)


def test_an_upload_can_be_read_once_more_until_it_is_gone(
    database_url: str, tmp_path: Path
) -> None:
    path = f"/api/v1/test-runs/{RUN}/reprocess"

    async def scenario(harness: Harness) -> None:
        await harness.announced()
        assert (await harness.ask("POST", path, {})).status == 409
        harness.change("UPDATE test_runs SET state = 'failed_processing'")
        assert (await harness.ask("POST", path, {})).json()["state"] == "queued"
        assert (await harness.ask("POST", path, {})).json()["state"] == "queued"
        assert jobs(harness) == [(RUN, "0")]
        harness.change(
            "UPDATE test_runs SET state = 'processed', due_at = NULL, upload_gone = true"
        )
        assert (await harness.ask("POST", path, {})).status == 410

    play(scenario, database_url, tmp_path)


BAD_BODIES: list[dict[str, object]] = [
    {**NEW, "id": "1"},
    {**NEW, "id": RUN + "\n"},
    {**NEW, "account": "../x"},
    {**NEW, "project": ""},
    {**NEW, "shard_index": -1},
    {**NEW, "shard_index": 10_000},
    {**NEW, "scheme": "a\u0000b"},
    {**NEW, "scheme": "x" * 501},
    {**NEW, "ran_at": "2026-01-01T00:00:00"},
    {**NEW, "ran_at": "1905-01-01T00:00:00Z"},
    {**NEW, "ran_at": "9905-01-01T00:00:00Z"},
    {**NEW, "vcs_comment_params": {"a": [1]}},
    {**NEW, "vcs_comment_params": {"a": "\u0000"}},
    {**NEW, "vcs_comment_params": {"\u0000": 1}},
    {**NEW, "unknown": 1},
    {"id": RUN},
]


def test_invalid_input_is_refused_before_anything_is_written(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        for body in BAD_BODIES:
            answer = await harness.ask("POST", "/api/v1/test-runs", body)
            assert answer.status == 422, body
        assert harness.rows("SELECT count(*) FROM test_runs") == [(0,)]

    play(scenario, database_url, tmp_path)


def put_to(url: str, body: bytes) -> int:
    request = urllib.request.Request(url, data=body, method="PUT")
    request.add_header("content-type", "application/zip")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(answer.status)


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False])
def test_on_s3_a_bundle_is_uploaded_directly_or_through_the_server(
    database_url: str, tmp_path: Path, endpoint: str, direct: bool
) -> None:
    place = Bucket(
        bucket=BUCKET, prefix="ci", endpoint=endpoint, region="us-east-1", credentials=KEYS
    )

    async def scenario(harness: Harness) -> None:
        url = (await harness.announced())["upload"]["url"]
        assert url.startswith(endpoint if direct else harness.url)
        assert await asyncio.to_thread(put_to, url, BUNDLE) == 200
        assert (await harness.ask("POST", COMPLETE, {})).json()["state"] == "queued"
        assert state(harness) == ("queued", len(BUNDLE))

    play(scenario, database_url, tmp_path, location=place, settings=Settings(direct_uploads=direct))
