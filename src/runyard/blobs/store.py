"""Object storage over obstore: one class, on a directory or on S3.

obstore's operations are futures of a thread pool of its own; each is given a time, and what it raises is sorted into
our own errors by `_told`. What obstore says of an error is cut to its first line: the rest is a dump.

A store has two connections to S3: short requests have a minute, a read as long as its reader needs, since that may be
somebody's slow line; each piece of it is given a time here.

Invariants: those of `contract`. Objects on S3 are stored as downloads (`content-disposition: attachment`, a type that
no browser shows): some are strangers' files, and a signed link to S3 bypasses our own headers.
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

if TYPE_CHECKING:  # they are only types
    from obstore import GetResult, ObjectMeta

T = TypeVar("T")
PIECE = 1 << 20  # bytes that are read at once, or a little more
PART = 6 << 20  # bytes of one part of an upload; S3 takes 10,000 of them
SMALL = 1 << 20  # bytes that are put in one request, not in parts
PARTS = 2  # under way at once, for each upload
WITHIN = 120.0  # seconds, for each request to the store
_LONGEST = 200
_QUERY = re.compile(r"\?\S*")
_BATCH = 1000
_ATTRIBUTES = {
    "Content-Type": "application/octet-stream",
    "Content-Disposition": "attachment",
}


class StoredBlobs:
    """Objects in one place; see `contract.Blobs` for what each method promises."""

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
        """Store the content under that key; what is small in one request."""
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
        except Exception as error:  # noqa: BLE001 - sorted by `_told`, which passes on what it does not know
            if counted.failed is not None:  # the content's own failure, not the store's
                raise counted.failed from None
            raise _told(error, "put", key) from None
        return counted.size

    async def get(self, key: str) -> "_Reading":
        """Begin to read an object."""
        asked = obstore.get_async(self._reads, check_key(key))
        return _Reading(self, key, await self.timely(asked, "get", key))

    async def download(self, key: str, path: Path) -> int:
        """Write an object to a new file."""
        reading = await self.get(key)
        with await asyncio.to_thread(path.open, "xb") as file:
            async for piece in reading:
                await asyncio.to_thread(file.write, piece)
        return reading.blob.size

    async def head(self, key: str) -> Blob | None:
        """What is known of an object."""
        try:
            found = await self.timely(obstore.head_async(self._store, check_key(key)), "head", key)
        except NoSuchBlob:
            return None
        return _blob(found, key)

    async def exists(self, key: str) -> bool:
        """Whether the object is there."""
        return await self.head(key) is not None

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove these objects."""
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
        """All objects below a prefix; files that are none of ours are passed over."""
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
        """Remove what interrupted puts left in a directory; on S3 that is for a rule of the bucket's."""
        prefix = self._store.prefix if isinstance(self._store, LocalStore) else None
        if prefix is None:
            return 0
        before = self._clock.now() - older
        return await asyncio.to_thread(remove_leftovers, Path(prefix), before)

    async def presign(self, method: Method, key: str, *, lasts: float) -> str:
        """A link of S3's; a directory makes none (`links` does, for our own route)."""
        check_key(key)
        if not isinstance(self._store, S3Store):
            return ""
        asked = obstore.sign_async(self._store, method, key, timedelta(seconds=lasts))
        return await self.timely(asked, "sign", key)

    async def timely(self, asked: Awaitable[T], what: str, key: str) -> T:
        """What was asked of the store, in time or not at all."""
        try:
            async with self._clock.timeout(WITHIN):
                return await asked
        except StopAsyncIteration:
            raise
        except TimeoutError:
            raise BlobsUnavailable(f"{what} {key}: no answer within {WITHIN:.0f} s") from None
        except Exception as error:  # noqa: BLE001 - likewise
            raise _told(error, what, key) from None


class _Reading:
    """An object on its way from the store."""

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
            raise BlobsUnavailable(f"get {self.blob.key}: it broke off")


class _Counted:
    """Content on its way to the store: counted, bounded, and its own failure kept apart from the store's."""

    def __init__(self, content: Content, limit: int | None) -> None:
        self._pieces = aiter(_pieces(content))
        self._limit = limit
        self.size = 0
        self.failed: Exception | None = None

    async def beginning(self) -> tuple[bytes, bool]:
        """The first bytes, and whether they are all of it."""
        parts: list[bytes] = []
        while self.size < SMALL:
            piece = await self._next()
            if piece is None:
                return b"".join(parts), True
            parts.append(piece)
        return b"".join(parts), False

    async def rest(self, first: bytes) -> AsyncIterator[bytes]:
        """Everything, from the beginning on."""
        yield first
        while (piece := await self._next()) is not None:
            if piece:  # the store takes an empty piece for the end
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


def _told(error: Exception, what: str, key: str) -> BlobError:
    """An error of obstore's as one of ours."""
    if isinstance(error, BlobError):
        return error
    first = _QUERY.sub("", str(error).partition("\n")[0])[:_LONGEST]
    text = f"{what} {key}: {first}"
    if isinstance(error, FileNotFoundError):
        return NoSuchBlob(f"there is no object {key}")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return BlobsRefused(text)
    if isinstance(error, ValueError):
        return BadKey(text)
    if isinstance(error, BaseError | OSError):
        return BlobsUnavailable(text)
    raise error
