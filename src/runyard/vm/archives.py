"""Provides the archive of the Actions runner that hosts copy into VMs: a file, or a download that is kept.

    FOLDER/<sha256>.tar.gz       downloaded or copied, verified
    FOLDER/<sha256>.*.partial    being downloaded or copied

A URL is downloaded once, to a file that is named by its digest, and is not asked again: the next start needs no
network. A path is copied to such a file, because VMs read it long after the start: a link to the original would change
with its content.

Invariants:
- Nothing is used that does not have the digest it was given, however it came to be there, or that is no archive.
- A path that was given without a digest means what it holds at the start; that is what all VMs get until the next one.
- A partial file is never used: it gets its name when it is complete, verified and on the disk.
- A download ends when nothing arrives for `Bounds.stall` seconds, or when it is larger than `Bounds.largest`.
- No message has the query of a URL: it may hold a signature.
"""

import asyncio
import errno
import hashlib
import os
import re
import ssl
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import msgspec

from runyard.clock import Clock
from runyard.files import sync_directory
from runyard.http.addresses import decode_target
from runyard.http.errors import TransportError
from runyard.http.exchange import Peer, exchange
from runyard.http.messages import Request, Response, Stream

FOLDER = "runner-archives"  # in a data directory
_PORTS = {"https": 443, "http": 80}
_MOVED = frozenset((301, 302, 303, 307, 308))
_REDIRECTS = 5
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GZIP = b"\x1f\x8b"
_SUFFIXES = (".tar.gz", ".tar")  # a guest chooses by it how to unpack
_COMPRESSED = (".gz", ".tgz")  # as the guest's script has them
_PART = 1 << 20
_ABANDONED = 3600.0  # seconds after which a partial file is no longer being written
_REPORT_EVERY = 5.0


class BadArchive(Exception):
    """The archive cannot be used; the message names it, the cause and the fix."""


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """Where an archive is, and what it must be."""

    source: str  # an absolute path, or a URL
    sha256: str = ""  # 64 hexadecimal digits; needed for a URL

    @property
    def is_url(self) -> bool:
        """Whether it is downloaded."""
        return is_url(self.source)

    def check(self) -> None:
        """Raise `BadArchive` if it cannot be what is meant; no file is read and no URL is asked."""
        if self.sha256 and not _SHA256.fullmatch(self.sha256.lower()):
            raise BadArchive(
                f"{self.sha256!r} is not a SHA-256: write its 64 hexadecimal digits, as 'sha256sum FILE' prints them"
            )
        if not self.is_url:
            return
        if not self.sha256:
            raise BadArchive(
                f"{_shown(self.source)} is a URL, which needs the archive's SHA-256: a release lists it beside the"
                " download, and 'sha256sum FILE' prints it"
            )
        _origin(self.source)

    def check_public(self) -> None:
        """Raise `BadArchive` if its URL may hold a signature: it becomes an argument, or a part of a service's file."""
        if self.is_url and "?" in self.source:
            raise BadArchive(
                f"{_shown(self.source)} has a query, which may hold a signature, and other users can read the arguments"
                " and the file of a service. Download the archive, and give the file's path"
            )


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a download, in seconds and bytes."""

    connect: float = 10.0
    answer: float = 30.0  # until it begins
    stall: float = 60.0  # without a byte
    largest: int = 4 << 30


def is_url(source: str) -> bool:
    """Whether this is a URL and not a path."""
    return source.lower().startswith(("http://", "https://"))


async def provided(
    archive: Archive,
    folder: Path,
    *,
    clock: Clock,
    report: Callable[[str], None],
    bounds: Bounds = Bounds(),  # noqa: B008 it is frozen
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> Path:
    """The file to copy from; `BadArchive` if there is none that may be used."""
    archive.check()
    wanted = archive.sha256.lower()
    kept = await asyncio.to_thread(_kept, folder, wanted)
    if kept is not None:
        return kept
    if not archive.is_url:
        return await asyncio.to_thread(_copied, Path(archive.source), wanted, folder, clock.now())
    download = _Download(archive.source, wanted, clock=clock, report=report, bounds=bounds)
    try:
        return await download.into(folder, tls)
    except OSError as error:
        raise BadArchive(_not_written(folder, error)) from None


def check_file(archive: Archive) -> None:
    """Raise `BadArchive` if the file of a path is no archive or has another digest; it is not copied."""
    archive.check()
    if archive.is_url:
        return
    path = Path(archive.source)
    _check_beginning(archive.source, path.name, _beginning(path))
    if archive.sha256:
        _check_digest(archive.source, _digest(path), archive.sha256.lower())


def _check_digest(what: str, found: str, wanted: str) -> None:
    if wanted and found != wanted:
        raise BadArchive(_other_digest(what, found, wanted))


def _kept(folder: Path, wanted: str) -> Path | None:
    """The file with this digest that an earlier start has stored."""
    for suffix in _SUFFIXES if wanted else ():
        path = folder / f"{wanted}{suffix}"
        if path.exists() and _digest(path) == wanted:
            return path
    return None


def _digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(tarfile.BLOCKSIZE)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> BadArchive:
    return BadArchive(
        f"{path} cannot be read ({error.strerror}). Check the path and its permissions"
    )


def _copied(path: Path, wanted: str, folder: Path, now: float) -> Path:
    """Copy a file under the name of its digest, unless it is there already."""
    _check_beginning(str(path), path.name, _beginning(path))
    found = _digest(path)
    _check_digest(str(path), found, wanted)
    kept = _kept(folder, found)
    if kept is not None:
        return kept
    try:
        with _partial(folder, found, now) as (file, keep):
            digest, beginning = hashlib.sha256(), b""
            for part in _parts(path):
                beginning = beginning or part[: tarfile.BLOCKSIZE]
                digest.update(part)
                file.write(part)
            _check_digest(str(path), digest.hexdigest(), found)  # it may change meanwhile
            return keep(beginning)
    except OSError as error:
        raise BadArchive(_not_written(folder, error)) from None


def _parts(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while part := file.read(_PART):
                yield part
    except OSError as error:
        raise _unreadable(path, error) from None


@contextmanager
def _partial(
    folder: Path, wanted: str, now: float
) -> Iterator[tuple[BinaryIO, Callable[[bytes], Path]]]:
    """A partial file, and what gives it its name by its first bytes; it is removed unless that was called."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_abandoned(folder, now)
    handle, name = tempfile.mkstemp(prefix=f"{wanted}.", suffix=".partial", dir=folder)
    partial = Path(name)

    def keep(beginning: bytes) -> Path:
        file.flush()
        os.fsync(file.fileno())
        path = folder / f"{wanted}{_suffix(beginning)}"
        partial.replace(path)
        sync_directory(folder)
        return path

    try:
        with os.fdopen(handle, "wb") as file:
            yield file, keep
    finally:
        partial.unlink(missing_ok=True)


def _suffix(beginning: bytes) -> str:
    """What a guest knows by how to unpack it."""
    return _SUFFIXES[0] if beginning.startswith(_GZIP) else _SUFFIXES[1]


def _remove_abandoned(folder: Path, now: float) -> None:
    """Remove what was left by downloads and copies that were killed."""
    for each in folder.glob("*.partial"):
        with suppress(FileNotFoundError):  # another process has finished or removed it
            if now - each.stat().st_mtime > _ABANDONED:
                each.unlink()


def _check_beginning(what: str, name: str, data: bytes) -> None:
    """Refuse what a guest cannot unpack: it goes by the name, and so does this."""
    if data.startswith(_GZIP):
        return
    if name.endswith(_COMPRESSED):
        raise BadArchive(
            f"{what} is not compressed by gzip, although it is named so. Give the Actions runner's archive as GitHub"
            " publishes it (.tar.gz), or a plain .tar"
        )
    try:
        tarfile.TarInfo.frombuf(data, tarfile.ENCODING, "surrogateescape")
    except tarfile.TarError:
        raise BadArchive(
            f"{what} is neither a gzip nor a tar file. Give the Actions runner's archive as GitHub publishes it"
            " (.tar.gz)"
        ) from None


class _Download:
    """One download."""

    def __init__(
        self,
        url: str,
        wanted: str,
        *,
        clock: Clock,
        report: Callable[[str], None],
        bounds: Bounds,
    ) -> None:
        self._url = url
        self._wanted = wanted
        self._clock = clock
        self._report = report
        self._bounds = bounds
        self._next_report = float("-inf")

    async def into(self, folder: Path, tls: Callable[[], ssl.SSLContext]) -> Path:
        """Download, verify, and give it its name."""
        with _partial(folder, self._wanted, self._clock.now()) as (file, keep):
            async with aclosing(await self._open(tls)) as stream:
                found, beginning = await self._copy(stream, file.write)
            _check_digest(_shown(self._url), found, self._wanted)
            _check_beginning(_shown(self._url), _suffix(beginning), beginning)
            path = keep(beginning)
        self._report(f"{_shown(self._url)} is downloaded and verified: {path}")
        return path

    async def _open(self, tls: Callable[[], ssl.SSLContext]) -> Stream:
        """The body of the answer, after redirects."""
        url = self._url
        for _ in range(_REDIRECTS + 1):
            answer = await self._ask(url, tls)
            if isinstance(answer, Stream):
                return answer
            if answer.status not in _MOVED:
                raise self._failed(f"the server answered {answer.status}", "Check the URL")
            target = urljoin(url, answer.header("location"))
            if url.startswith("https") and not target.startswith("https"):
                raise self._failed("it redirects to an address without TLS", "Use another URL")
            url = target
        raise self._failed(f"it redirects more than {_REDIRECTS} times", "Check the URL")

    async def _ask(self, url: str, tls: Callable[[], ssl.SSLContext]) -> Response | Stream:
        scheme, host, port = _origin(url)
        parts = urlsplit(url)
        try:
            path, query = decode_target(f"{parts.path or '/'}?{parts.query}")
        except ValueError:
            raise self._failed("its path is no text", "Check the URL") from None
        headers = (("user-agent", "runyard"), ("accept", "*/*"))
        request = Request(method="GET", path=path, query=query, headers=headers)
        peer = Peer(
            host=host,
            port=port,
            tls=tls() if scheme == "https" else None,
            connect=self._bounds.connect,
            answer=self._bounds.answer,
        )
        try:
            return await exchange(request, peer)
        except TransportError as error:
            raise self._unreachable(f"{peer.address}: {error}") from None

    async def _copy(self, stream: Stream, write: Callable[[bytes], object]) -> tuple[str, bytes]:
        """The digest of all that arrived, and its first bytes."""
        total = int(next((value for key, value in stream.headers if key == "content-length"), 0))
        digest, done, beginning, body = hashlib.sha256(), 0, b"", aiter(stream)
        while True:
            if max(done, total) > self._bounds.largest:
                raise self._failed(
                    f"it is larger than {self._bounds.largest >> 20} MiB", "Check the URL"
                )
            try:
                async with self._clock.timeout(self._bounds.stall):
                    part = await anext(body, b"")
            except TimeoutError:
                raise self._unreachable(f"nothing arrived for {self._bounds.stall:g} s") from None
            except TransportError as error:
                raise self._unreachable(str(error)) from None
            if not part:
                return digest.hexdigest(), beginning
            beginning += part[: tarfile.BLOCKSIZE - len(beginning)]
            digest.update(part)
            write(part)
            done += len(part)
            self._progress(done, total)

    def _progress(self, done: int, total: int) -> None:
        if self._clock.monotonic() < self._next_report:
            return
        self._next_report = self._clock.monotonic() + _REPORT_EVERY
        size = f" of {total / 1e6:.0f}" if total else ""
        self._report(f"downloading {_shown(self._url)}: {done / 1e6:.0f}{size} MB")

    def _failed(self, cause: str, fix: str) -> BadArchive:
        return BadArchive(f"{_shown(self._url)} cannot be downloaded: {cause}. {fix}")

    def _unreachable(self, cause: str) -> BadArchive:
        return self._failed(
            cause, "Try again, or download it by other means and give the file's path"
        )


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port."""
    bad = BadArchive(f"{_shown(url)} is not a valid URL. Write it as https://HOST/PATH")
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
        port = parts.port or _PORTS.get(scheme, 0)
    except ValueError:
        raise bad from None
    if scheme not in _PORTS or not host:
        raise bad
    if "@" in parts.netloc:
        raise BadArchive(
            f"the URL of {host} contains a user name or a password, which other users can read."
            " Download the archive, and give the file's path"
        )
    return scheme, host, port


def _shown(url: str) -> str:
    """A URL without its query, and without credentials."""
    scheme, _, rest = url.partition("?")[0].partition("#")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _other_digest(what: str, found: str, wanted: str) -> str:
    return (
        f"{what} has the SHA-256 {found}, not {wanted}. Give the digest that its publisher lists; if this is it, the"
        " file is damaged or is another one: do not use it"
    )


def _not_written(folder: Path, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "Free some space" if full else "Check its permissions"
    return f"{folder}: the runner's archive cannot be stored ({error.strerror}). {fix}"
