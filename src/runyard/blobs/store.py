"""Implements object storage with obstore: one class for a directory and for S3.

obstore runs its operations in a thread pool of its own. Each operation has a deadline here, and `_blob_error` maps
what obstore raises to the errors of `errors`. Only the first line of obstore's message is kept; the rest is a dump.

On S3 there are two clients: short requests have a deadline of one minute; a read may last as long as its reader needs
(a client may be slow), with a deadline for each piece.

Invariants: those of `contract`. Objects on S3 are stored with `content-disposition: attachment` and a type that no
browser displays: some are untrusted files, and a signed link to S3 bypasses our own headers.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, S3Store

from runyard.blobs.contract import Blob, Content, Method
from runyard.blobs.errors import (
    BadKey,
    BlobError,
    BlobsRefused,
    BlobsUnavailable,
    BlobTooLarge,
    NoSuchBlob,
)
from runyard.blobs.keys import check_key, check_prefix, is_key
from runyard.blobs.leftovers import remove_leftovers
from runyard.clock import Clock

if TYPE_CHECKING:  # used for annotations only
    from obstore import GetResult, ObjectMeta

T = TypeVar("T")
PIECE = 1 << 20  # bytes of one read, or a little more
PART = 6 << 20  # bytes of one part of an upload; S3 accepts 10,000 of them
SMALL = 1 << 20  # objects up to this many bytes are put in one request, not in parts
PARTS = 2  # uploaded at the same time, for each upload
WITHIN = 120.0  # seconds, for each request to the store
_LONGEST = 200
_QUERY = re.compile(r"\?\S*")
_BATCH = 1000
_ATTRIBUTES = {
    "Content-Type": "application/octet-stream",
    "Content-Disposition": "attachment",
}


class StoredBlobs:
    """Object storage at one location; `contract.Blobs` documents each method."""

    def __init__(
        self,
        store: LocalStore | S3Store,
        *,
        clock: Clock,
        reads: LocalStore | S3Store | None = None,
    ) -> None:
        self._store = store
        self._reads = reads or store
        self._clock = clock
        self._s3 = isinstance(store, S3Store)

    async def put(self, key: str, content: Content, *, limit: int | None = None) -> int:
        """Store the content under this key; small content in one request."""
        check_key(key)
        counted = _Counted(content, limit)
        try:
            first, whole = await counted.beginning()
            await obstore.put_async(
                self._store,
                key,
                first if whole else counted.rest(first),
                attributes=_ATTRIBUTES if self._s3 else None,
                chunk_size=PART,
                max_concurrency=PARTS,
            )
        except Exception as error:  # noqa: BLE001 - `_blob_error` maps it, and raises what it does not know
            if counted.failed is not None:  # the content failed, not the store
                raise counted.failed from None
            raise _blob_error(error, "put", key) from None
        return counted.size

    async def get(self, key: str) -> "_Reading":
        """Start to read an object."""
        operation = obstore.get_async(self._reads, check_key(key))
        return _Reading(self, key, await self.timely(operation, "get", key))

    async def download(self, key: str, path: Path) -> int:
        """Write an object to a new file."""
        reading = await self.get(key)
        with await asyncio.to_thread(path.open, "xb") as file:
            async for piece in reading:
                await asyncio.to_thread(file.write, piece)
        return reading.blob.size

    async def head(self, key: str) -> Blob | None:
        """Metadata of an object."""
        try:
            found = await self.timely(obstore.head_async(self._store, check_key(key)), "head", key)
        except NoSuchBlob:
            return None
        return _blob(found, key)

    async def exists(self, key: str) -> bool:
        """Whether the object exists."""
        return await self.head(key) is not None

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects."""
        checked = [check_key(key) for key in keys]
        for start in range(0, len(checked), _BATCH):
            batch = checked[start : start + _BATCH]
            if self._s3:
                await self.timely(obstore.delete_async(self._store, batch), "delete", batch[0])
                continue
            for key in batch:
                with contextlib.suppress(NoSuchBlob):
                    await self.timely(obstore.delete_async(self._store, key), "delete", key)

    async def list(self, prefix: str = "") -> AsyncIterator[Blob]:
        """All objects below a prefix; files with names that are not valid keys are skipped."""
        under = check_prefix(prefix)
        pages = obstore.list(self._store, prefix=under or None, chunk_size=_BATCH)
        while True:
            try:
                page = await self.timely(anext(pages), "list", under)
            except StopAsyncIteration:
                return
            for found in page:
                if is_key(found["path"]):
                    yield _blob(found, found["path"])

    async def tidy(self, *, older: float) -> int:
        """Remove files of interrupted puts in a directory; on S3 a lifecycle rule of the bucket does that."""
        prefix = self._store.prefix if isinstance(self._store, LocalStore) else None
        if prefix is None:
            return 0
        before = self._clock.now() - older
        return await asyncio.to_thread(remove_leftovers, Path(prefix), before)

    async def presign(self, method: Method, key: str, *, lasts: float) -> str:
        """A link signed for S3; empty for a directory (`links` signs links to our own route)."""
        check_key(key)
        if not isinstance(self._store, S3Store):
            return ""
        operation = obstore.sign_async(self._store, method, key, timedelta(seconds=lasts))
        return await self.timely(operation, "sign", key)

    async def timely(self, operation: Awaitable[T], what: str, key: str) -> T:
        """Await an operation of obstore with a deadline; raises a `BlobError`."""
        try:
            async with self._clock.timeout(WITHIN):
                return await operation
        except StopAsyncIteration:
            raise
        except TimeoutError:
            raise BlobsUnavailable(f"{what} {key}: no response within {WITHIN:.0f} s") from None
        except Exception as error:  # noqa: BLE001 - mapped as above
            raise _blob_error(error, what, key) from None


class _Reading:
    """An object that is being read from the store."""

    def __init__(self, blobs: StoredBlobs, key: str, found: "GetResult") -> None:
        self._blobs = blobs
        self._found = found
        self.blob = _blob(found.meta, key)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self.blob.size
        pieces = self._found.stream(min_chunk_size=PIECE)
        while True:
            try:
                piece = await self._blobs.timely(anext(pieces), "get", self.blob.key)
            except StopAsyncIteration:
                break
            left -= len(piece)
            yield bytes(piece)
        if left:
            raise BlobsUnavailable(f"get {self.blob.key}: the object ended early")


class _Counted:
    """Content that is being put: counts bytes, enforces the limit, and records whether the content itself failed."""

    def __init__(self, content: Content, limit: int | None) -> None:
        self._pieces = aiter(_pieces(content))
        self._limit = limit
        self.size = 0
        self.failed: Exception | None = None

    async def beginning(self) -> tuple[bytes, bool]:
        """Read the first bytes; returns them and whether that is all of the content."""
        parts: list[bytes] = []
        while self.size < SMALL:
            piece = await self._next()
            if piece is None:
                return b"".join(parts), True
            parts.append(piece)
        return b"".join(parts), False

    async def rest(self, first: bytes) -> AsyncIterator[bytes]:
        """All of the content, beginning with `first`."""
        yield first
        while (piece := await self._next()) is not None:
            if piece:  # obstore treats an empty piece as the end
                yield piece

    async def _next(self) -> bytes | None:
        try:
            piece = await anext(self._pieces, None)
            self.size += 0 if piece is None else len(piece)
            if self._limit is not None and self.size > self._limit:
                raise BlobTooLarge(f"more than {self._limit} bytes")
        except Exception as error:
            self.failed = error
            raise
        return piece


async def _pieces(content: Content) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        yield content
    elif isinstance(content, Path):
        with await asyncio.to_thread(content.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece
    else:
        async for piece in content:
            yield piece


def _blob(meta: "ObjectMeta", key: str) -> Blob:
    return Blob(key=key, size=meta["size"], modified=meta["last_modified"].timestamp())


def _blob_error(error: Exception, what: str, key: str) -> BlobError:
    """Map an exception of obstore to a `BlobError`; re-raises what it does not know."""
    if isinstance(error, BlobError):
        return error
    first = _QUERY.sub("", str(error).partition("\n")[0])[:_LONGEST]
    text = f"{what} {key}: {first}"
    if isinstance(error, FileNotFoundError):
        return NoSuchBlob(f"object {key} does not exist")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return BlobsRefused(text)
    if isinstance(error, ValueError):
        return BadKey(text)
    if isinstance(error, BaseError | OSError):
        return BlobsUnavailable(text)
    raise error
