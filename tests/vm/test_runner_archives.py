"""Tests how a host gets the archive of the runner: a file, or a URL that is downloaded once and kept by its digest."""

import asyncio
import gzip
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from tests.standins.tart.helper import archive as tar_of
from tests.vm.oci.fake_registry import FakeServer

from runyard.clock import RealClock
from runyard.vm.archives import Archive, BadArchive, Bounds, check_file, provided

DATA = gzip.compress(os.urandom(200_000), mtime=0)
SHA = hashlib.sha256(DATA).hexdigest()
Respond = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class Case:
    """A server, and a folder that archives are kept in."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.reports: list[str] = []

    async def get(
        self, path: str = "/runner.tar.gz", *, sha256: str = SHA, **bounds: float
    ) -> Path:
        return await provided(
            Archive(source=f"{self.server.url}{path}", sha256=sha256),
            self.folder,
            clock=RealClock(),
            report=self.reports.append,
            bounds=Bounds(**bounds),
        )

    @property
    def kept(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir()) if self.folder.exists() else []


def run(tmp_path: Path, respond: Respond, scenario: Callable[[Case], Awaitable[None]]) -> None:
    async def main() -> None:
        async with FakeServer() as server:
            server.override = respond
            await scenario(Case(server, tmp_path / "archives"))

    asyncio.run(main())


async def whole(request: web.Request) -> web.Response:
    return web.Response(body=DATA)


def test_an_archive_is_downloaded_once_and_the_next_start_needs_no_network(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        first = await case.get("/runner.tar.gz?signature=hush")
        assert first.read_bytes() == DATA and case.kept == [f"{SHA}.tar.gz"]
        assert any("MB" in line for line in case.reports)
        assert "hush" not in "".join(case.reports)
        assert await case.get(sha256=SHA.upper()) == first
        assert len(case.server.seen) == 1

    run(tmp_path, whole, scenario)


def test_a_kept_archive_that_was_damaged_is_downloaded_again(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        (await case.get()).write_bytes(b"damaged")
        assert (await case.get()).read_bytes() == DATA
        assert len(case.server.seen) == 2

    run(tmp_path, whole, scenario)


def test_an_archive_with_another_digest_is_not_kept(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        with pytest.raises(BadArchive, match=f"has the SHA-256 {SHA}"):
            await case.get(sha256="0" * 64)
        assert case.kept == []

    run(tmp_path, whole, scenario)


def test_an_archive_that_is_not_compressed_gets_a_name_that_says_so(tmp_path: Path) -> None:
    plain = tar_of({"run.sh": "exit 0"})

    async def respond(request: web.Request) -> web.Response:
        return web.Response(body=plain)

    async def scenario(case: Case) -> None:
        path = await case.get(sha256=hashlib.sha256(plain).hexdigest())
        assert path.suffixes == [".tar"]

    run(tmp_path, respond, scenario)


def test_redirects_are_followed_to_where_releases_are_stored(tmp_path: Path) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path == "/runner.tar.gz":
            raise web.HTTPFound("/stored?key=1")
        assert request.query_string == "key=1"
        return web.Response(body=DATA)

    async def scenario(case: Case) -> None:
        assert (await case.get()).read_bytes() == DATA

    run(tmp_path, respond, scenario)


async def _missing(request: web.Request) -> web.Response:
    return web.Response(status=404)


async def _in_circles(request: web.Request) -> web.Response:
    raise web.HTTPFound(request.path)


async def _half(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-length": str(len(DATA))})
    await answer.prepare(request)
    await answer.write(DATA[: len(DATA) // 2])
    assert request.transport is not None
    request.transport.close()
    return answer


async def _stalls(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-length": str(len(DATA))})
    await answer.prepare(request)
    await answer.write(DATA[: len(DATA) // 2])
    await asyncio.get_running_loop().create_future()
    return answer


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(bytes(1 << 16))


@pytest.mark.parametrize(
    ("respond", "words"),
    [
        pytest.param(_missing, "answered 404. Check the URL", id="missing"),
        pytest.param(_in_circles, "redirects more than 5 times", id="redirects"),
        pytest.param(_half, "the answer was cut.*give the file's path", id="cut"),
        pytest.param(_stalls, "nothing arrived for 0.2 s", id="stalls"),
        pytest.param(_endless, "larger than 1 MiB", id="endless"),
    ],
)
def test_a_failed_download_names_cause_and_fix_and_leaves_nothing(
    tmp_path: Path, respond: Respond, words: str
) -> None:
    async def scenario(case: Case) -> None:
        with pytest.raises(BadArchive, match=words):
            await case.get("/runner.tar.gz?signature=hush", stall=0.2, largest=1 << 20)
        assert case.kept == []

    run(tmp_path, respond, scenario)


def test_a_download_that_was_cancelled_half_way_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        download = asyncio.create_task(case.get())
        async with asyncio.timeout(30):
            while not case.reports:  # some of it has arrived
                await asyncio.sleep(0)
        assert any(name.endswith(".partial") for name in case.kept)
        download.cancel()
        with pytest.raises(asyncio.CancelledError):
            await download
        assert case.kept == []

    run(tmp_path, _stalls, scenario)


def test_what_a_killed_download_left_is_never_used_and_is_removed(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        case.folder.mkdir()
        for name, age in (("old", 7200), ("fresh", 0)):
            path = case.folder / f"{SHA}.{name}.partial"
            path.write_bytes(DATA[:100])
            os.utime(path, (RealClock().now() - age,) * 2)
        assert (await case.get()).read_bytes() == DATA
        assert case.kept == [f"{SHA}.fresh.partial", f"{SHA}.tar.gz"]

    run(tmp_path, whole, scenario)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    async def scenario(case: Case) -> None:
        case.folder.write_text("a file")
        with pytest.raises(
            BadArchive, match=f"{case.folder}: the runner's archive cannot be stored"
        ):
            await case.get()

    run(tmp_path, whole, scenario)


async def given(source: str, folder: Path, sha256: str = "") -> Path:
    archive = Archive(source=source, sha256=sha256)
    return await provided(archive, folder, clock=RealClock(), report=print)


@pytest.mark.parametrize("sha256", ["", SHA], ids=["no digest", "digest"])
def test_a_file_that_is_replaced_or_removed_after_the_start_changes_nothing_for_later_vms(
    tmp_path: Path, sha256: str
) -> None:
    path, folder = tmp_path / "runner.tar.gz", tmp_path / "archives"
    path.write_bytes(DATA)
    found = asyncio.run(given(str(path), folder, sha256))
    assert found == folder / f"{SHA}.tar.gz"
    path.write_bytes(b"another one")
    assert found.read_bytes() == DATA
    path.unlink()
    assert found.read_bytes() == DATA
    assert [each.name for each in folder.iterdir()] == [found.name]


def test_a_start_with_the_digest_does_not_need_the_original_any_more(tmp_path: Path) -> None:
    path, folder = tmp_path / "runner.tar.gz", tmp_path / "archives"
    path.write_bytes(DATA)
    first = asyncio.run(given(str(path), folder, SHA))
    path.unlink()
    assert asyncio.run(given(str(path), folder, SHA)) == first
    first.write_bytes(b"damaged")
    with pytest.raises(BadArchive, match="No such file"):
        asyncio.run(given(str(path), folder, SHA))


def test_a_file_without_a_digest_means_what_it_holds_at_each_start(tmp_path: Path) -> None:
    path, folder = tmp_path / "runner.tar.gz", tmp_path / "archives"
    path.write_bytes(DATA)
    first = asyncio.run(given(str(path), folder))
    written = first.stat().st_mtime_ns
    assert asyncio.run(given(str(path), folder)) == first
    assert first.stat().st_mtime_ns == written  # the same file is not copied again
    newer = gzip.compress(b"a newer one", mtime=0)
    path.write_bytes(newer)
    assert asyncio.run(given(str(path), folder)).read_bytes() == newer


def test_a_file_with_another_digest_is_not_copied(tmp_path: Path) -> None:
    path, folder = tmp_path / "runner.tar.gz", tmp_path / "archives"
    path.write_bytes(DATA)
    with pytest.raises(BadArchive, match="has the SHA-256"):
        asyncio.run(given(str(path), folder, "0" * 64))
    assert not folder.exists()
    with pytest.raises(BadArchive, match="has the SHA-256"):
        check_file(Archive(source=str(path), sha256="0" * 64))
    check_file(Archive(source=str(path), sha256=SHA.upper()))


@pytest.mark.parametrize(
    ("source", "sha256", "words"),
    [
        pytest.param("https://h.test/r.tgz", "", "needs the archive's SHA-256", id="no digest"),
        pytest.param("https://h.test/r.tgz", "abc", "is not a SHA-256", id="short digest"),
        pytest.param("https:///r.tgz", SHA, "not a valid URL", id="no host"),
        pytest.param("http://h.test:0x/r.tgz", SHA, "not a valid URL", id="no port"),
        pytest.param("https://me:hush@h.test/r", SHA, "a user name or a password", id="password"),
        pytest.param("http://127.0.0.1:1/r?hush", SHA, "connection refused", id="unreachable"),
        pytest.param("/no/such/file", "", "No such file", id="no file"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_secrets(
    tmp_path: Path, source: str, sha256: str, words: str
) -> None:
    with pytest.raises(BadArchive, match=words) as refused:
        asyncio.run(given(source, tmp_path / "archives", sha256))
    assert "hush" not in str(refused.value)


NO_ARCHIVES = {
    "random bytes": ("runner.tar.gz", b"\x00\x9a" * 500, "not compressed by gzip, although"),
    "a page": ("runner.tgz", b"<html>Sign in to GitHub</html>", "not compressed by gzip, although"),
    "nothing": ("runner.tar.gz", b"", "not compressed by gzip, although"),
    "no tar": ("runner", b"PK\x03\x04" * 500, "neither a gzip nor a tar file"),
    "an empty tar": ("runner.tar", bytes(10_240), "neither a gzip nor a tar file"),
}


@pytest.mark.parametrize(("name", "data", "words"), NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_a_file_that_no_guest_can_unpack_is_refused_on_the_host(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadArchive, match=f"{path} is .*{words}"):
        check_file(Archive(source=str(path)))


def test_a_plain_tar_and_a_gzip_under_any_name_are_archives(tmp_path: Path) -> None:
    for name, data in (("runner.tar", tar_of({"run.sh": ""})), ("runner", DATA), ("r.tgz", DATA)):
        (tmp_path / name).write_bytes(data)
        check_file(Archive(source=str(tmp_path / name)))


def test_a_download_that_is_no_archive_is_not_kept(tmp_path: Path) -> None:
    page = b"<html>Sign in to GitHub</html>"

    async def respond(request: web.Request) -> web.Response:
        return web.Response(body=page)

    async def scenario(case: Case) -> None:
        with pytest.raises(BadArchive, match="neither a gzip nor a tar file"):
            await case.get(sha256=hashlib.sha256(page).hexdigest())
        assert case.kept == []

    run(tmp_path, respond, scenario)
