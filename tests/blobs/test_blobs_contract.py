"""Tests the contract of object storage, on a directory and on S3."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest
from tests.blobs.blobstores import all_of, pieces, play

from runyard.blobs.errors import BadKey, BlobTooLarge, NoSuchBlob
from runyard.blobs.store import PART, PIECE, StoredBlobs

LARGE = bytes(range(256)) * ((PART + PIECE) // 256 + 7)


async def keys(blobs: StoredBlobs, prefix: str = "") -> list[str]:
    return sorted([blob.key async for blob in blobs.list(prefix)])


def test_content_of_any_size_is_stored_and_read_back(blobs: StoredBlobs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(LARGE)

    async def scenario(blobs: StoredBlobs) -> None:
        cut = [LARGE[i : i + 300_000] for i in range(0, len(LARGE), 300_000)]
        for key, content, expected in (
            ("a/small", b"hello", b"hello"),
            ("a/empty", b"", b""),
            ("a/empty-pieces", pieces(b"", b""), b""),
            ("a/pieces", pieces(b"he", b"", b"llo"), b"hello"),
            ("a/large", pieces(*cut), LARGE),
            ("a/file", file, LARGE),
        ):
            assert await blobs.put(key, content) == len(expected)
            assert await all_of(blobs, key) == expected
            head = await blobs.head(key)
            assert head is not None and (head.key, head.size) == (key, len(expected))
            assert await blobs.exists(key)
        assert await blobs.put("a/small", b"other") == 5
        assert await all_of(blobs, "a/small") == b"other"

    play(scenario, blobs)


def test_a_download_never_overwrites_a_file(blobs: StoredBlobs, tmp_path: Path) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        await blobs.put("x", LARGE)
        assert await blobs.download("x", tmp_path / "new") == len(LARGE)
        assert (tmp_path / "new").read_bytes() == LARGE
        with pytest.raises(FileExistsError):
            await blobs.download("x", tmp_path / "new")
        with pytest.raises(NoSuchBlob):
            await blobs.download("y", tmp_path / "other")

    play(scenario, blobs)


def test_a_missing_object_raises_no_such_blob(blobs: StoredBlobs) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        assert await blobs.head("none/here") is None
        assert not await blobs.exists("none/here")
        with pytest.raises(NoSuchBlob):
            await blobs.get("none/here")

    play(scenario, blobs)


def test_deleting_missing_objects_succeeds(blobs: StoredBlobs) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        for key in ("d/1", "d/2", "e/1"):
            await blobs.put(key, b"x")
        await blobs.delete(["d/1", "d/none", "d/2", "d/1"])
        await blobs.delete(["d/1"])
        await blobs.delete([])
        assert await keys(blobs) == ["e/1"]

    play(scenario, blobs)


def test_a_prefix_matches_whole_segments_only(blobs: StoredBlobs) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        for key in ("run/1/a", "run/1/b/c", "run/10/a", "other"):
            await blobs.put(key, b"xyz")
        assert await keys(blobs, "run/1") == ["run/1/a", "run/1/b/c"]
        assert await keys(blobs, "run/1/") == ["run/1/a", "run/1/b/c"]
        assert await keys(blobs) == ["other", "run/1/a", "run/1/b/c", "run/10/a"]
        assert await keys(blobs, "none") == []

    play(scenario, blobs)


class Broken(Exception):
    pass


async def breaking(at: int) -> AsyncIterator[bytes]:
    for number in range(at):
        yield bytes([number % 256]) * 1_000_000
    raise Broken("the sender disconnected")


async def endless(begun: asyncio.Event) -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1_000_000
        begun.set()
        await asyncio.sleep(0)


@pytest.mark.parametrize("megabytes", [1, 20])
def test_an_unfinished_put_keeps_the_previous_object(blobs: StoredBlobs, megabytes: int) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        await blobs.put("k", b"before")
        with pytest.raises(Broken):
            await blobs.put("k", breaking(megabytes))
        with pytest.raises(BlobTooLarge):
            await blobs.put("k", breaking(megabytes + 1), limit=megabytes * 1_000_000 - 1)
        with pytest.raises(BlobTooLarge):
            await blobs.put("k", b"12345", limit=4)
        assert await blobs.put("new", b"1234", limit=4) == 4
        begun = asyncio.Event()
        task = asyncio.create_task(blobs.put("k", endless(begun)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await all_of(blobs, "k") == b"before"
        assert await keys(blobs) == ["k", "new"]

    play(scenario, blobs)


HOSTILE = (
    *("", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "a/./b", ".a", "a/.b"),
    *(
        "A",
        "ä",
        "a b",
        "a\n",
        "a\0",
        "a\\b",
        "a#1",
        "a%2e",
        "~",
        "a?b",
        "x" * 201,
        "a/" * 300 + "a",
    ),
)


def test_no_untrusted_key_leaves_the_store(blobs: StoredBlobs) -> None:
    async def scenario(blobs: StoredBlobs) -> None:
        for key in HOSTILE:
            with pytest.raises(BadKey):
                await blobs.put(key, b"x")
            with pytest.raises(BadKey):
                await blobs.get(key)
            with pytest.raises(BadKey):
                await blobs.head(key)
            with pytest.raises(BadKey):
                await blobs.delete([key])
            with pytest.raises(BadKey):
                await blobs.presign("PUT", key, lasts=60)
        assert await keys(blobs) == []

    play(scenario, blobs)


async def much(megabytes: int) -> AsyncIterator[bytes]:
    piece = b"\x5a" * (1 << 20)
    for _ in range(megabytes):
        yield piece


@pytest.mark.slow
def test_memory_does_not_grow_with_the_object(blobs: StoredBlobs) -> None:
    async def through(blobs: StoredBlobs, megabytes: int) -> float:
        await blobs.put("m", much(megabytes))
        async for piece in await blobs.get("m"):
            assert piece
        return getrusage(RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))

    async def scenario(blobs: StoredBlobs) -> None:
        before = await through(blobs, 60)
        assert await through(blobs, 300) - before < 40  # megabytes

    play(scenario, blobs)
