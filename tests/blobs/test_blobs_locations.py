"""Tests locations of object storage: errors name the cause and no secret, and S3 links are signed."""

import asyncio
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.blobs.blobstores import KEYS, SECRET, all_of, bucket, directory

from runyard.blobs.errors import BlobsRefused, BlobsUnavailable
from runyard.blobs.location import (
    BadLocation,
    Bucket,
    Credentials,
    Directory,
    check,
    parse_credentials,
    parse_location,
)
from runyard.blobs.opening import open_blobs
from runyard.clock import RealClock

WRONG = Credentials(access_key_id=KEYS.access_key_id, secret_access_key="some-other-secret")


def test_a_location_is_a_directory_or_a_bucket() -> None:
    assert parse_location("/srv/blobs") == Directory(path=Path("/srv/blobs"))
    assert parse_location("s3://results") == Bucket(bucket="results")
    assert parse_location("s3://results/ci/x/") == Bucket(bucket="results", prefix="ci/x")


BAD = [
    *("", "gs://x", "s3://", "s3://a", "s3://UP", "s3://user:pw@results"),
    *("s3://results/../x", "s3://results?x=1"),
]


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_location_is_refused(text: str) -> None:
    with pytest.raises(BadLocation):
        parse_location(text)


def test_credentials_are_parsed_and_never_shown() -> None:
    lines = f"# keys\nexport AWS_ACCESS_KEY_ID=abc\nAWS_SECRET_ACCESS_KEY='{SECRET}'\n"
    found = parse_credentials(lines)
    assert (found.access_key_id, found.secret_access_key) == ("abc", SECRET)
    location = Bucket(bucket="results", credentials=found)
    assert SECRET not in f"{found!r} {found} {location!r} {location}"
    with pytest.raises(BadLocation) as caught:
        parse_credentials(f"AWS_SECRET_ACCESS_KEY={SECRET}")
    assert SECRET not in str(caught.value)


def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadLocation, match="directory"):
        open_blobs(Directory(path=tmp_path / "file" / "x"), clock=RealClock())


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://x", "http://u:secret@127.0.0.1"])
def test_an_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(BadLocation) as caught:
        bucket(endpoint)
    assert "secret" not in str(caught.value)


def test_wrong_credentials_raise_blobs_refused(endpoint: str) -> None:
    async def scenario() -> None:
        wrong = bucket(endpoint, keys=WRONG)
        with pytest.raises(BlobsRefused) as caught:
            await wrong.put("k", b"x")
        assert WRONG.secret_access_key not in str(caught.value)
        assert "\n" not in str(caught.value)
        assert await check(wrong)
        assert await check(bucket(endpoint)) == ""
        nowhere = Bucket(bucket="nowhere", endpoint=endpoint, region="us-east-1", credentials=KEYS)
        assert "nowhere" in await check(open_blobs(nowhere, clock=RealClock()))

    asyncio.run(scenario())


def test_an_error_of_the_file_system_raises_blobs_unavailable(tmp_path: Path) -> None:
    """A file in place of a directory stands for any error of the file system."""

    async def scenario() -> None:
        blobs = directory(tmp_path)
        await blobs.put("a", b"x")
        with pytest.raises(BlobsUnavailable):
            await blobs.put("a/b", b"x")
        assert await all_of(blobs, "a") == b"x"

    asyncio.run(scenario())


def fetch(url: str, data: bytes | None = None) -> tuple[int, bytes, str]:
    request = urllib.request.Request(url, data=data, method="PUT" if data is not None else "GET")
    request.add_header("content-type", "application/zip")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers.get("content-disposition") or ""
    except urllib.error.HTTPError as error:
        return error.code, b"", ""


def test_a_signed_s3_link_allows_one_operation_on_one_object(endpoint: str) -> None:
    async def scenario() -> None:
        blobs = bucket(endpoint, prefix="signed")
        put = await blobs.presign("PUT", "up", lasts=60)
        assert SECRET not in put
        assert (await asyncio.to_thread(fetch, put, b"content"))[0] == 200
        assert await all_of(blobs, "up") == b"content"
        get = await blobs.presign("GET", "up", lasts=60)
        assert (await asyncio.to_thread(fetch, get))[:2] == (200, b"content")
        assert (await asyncio.to_thread(fetch, get.replace("/up?", "/other?")))[0] in (400, 403)
        assert (await asyncio.to_thread(fetch, get, b"overwritten"))[0] in (400, 403)
        assert await all_of(blobs, "up") == b"content"

    asyncio.run(scenario())


def test_old_files_of_killed_puts_are_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        blobs = directory(tmp_path)
        await blobs.put("runs/a", b"x")
        old, young = tmp_path / "runs" / "b#1", tmp_path / "runs" / "c#12"
        for path in (old, young):
            path.write_bytes(b"half")
        os.utime(old, (1, 1))
        os.utime(tmp_path / "runs" / "a", (1, 1))
        assert [blob.key async for blob in blobs.list()] == ["runs/a"]
        assert await blobs.tidy(older=3600) == 1
        assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a", "c#12"]

    asyncio.run(scenario())
