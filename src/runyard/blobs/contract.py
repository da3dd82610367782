"""Defines what packages may use of object storage: the `Blobs` protocol.

`store` implements it on a directory and on S3; one test suite runs on both.

Invariants:
- A put stores the whole object or nothing, also after a crash: no reader ever gets a partial object.
- Memory use does not depend on the size of an object: content is streamed in pieces.
- Deleting an object that does not exist succeeds.
- A signed link is a credential: its holder may do one thing until it expires. Links are never logged.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

Content = bytes | Path | AsyncIterable[bytes]
Method = Literal["GET", "PUT"]


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of an object."""

    key: str
    size: int
    modified: float  # seconds since the epoch, by the store's clock


class Reading(Protocol):
    """An object that is being read. Iterate over it once; the store may raise an error at any piece."""

    @property
    def blob(self) -> Blob:
        """Metadata of the object that is being read."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Blobs(Protocol):
    """Object storage."""

    async def put(self, key: str, content: Content, *, limit: int | None = None) -> int:
        """Store the content under this key, replacing an existing object; returns the number of bytes.

        Raises `BlobTooLarge` if the content has more than `limit` bytes; then nothing is stored. Exceptions raised by
        the content while it is read pass through; then nothing is stored either.
        """
        ...

    async def get(self, key: str) -> Reading:
        """Start to read an object; raises `NoSuchBlob`."""
        ...

    async def download(self, key: str, path: Path) -> int:
        """Write an object to a new file; returns the number of bytes. Raises `NoSuchBlob`, `FileExistsError`.

        `OSError` of the file system (for example a full disk) passes through. The caller removes a partial file.
        """
        ...

    async def head(self, key: str) -> Blob | None:
        """Metadata of an object, or None if it does not exist."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether the object exists."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; keys without an object are ignored."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[Blob]:
        """All objects below a prefix of whole segments, in no particular order."""
        ...

    async def tidy(self, *, older: float) -> int:
        """Remove files of interrupted puts that are older than `older` seconds; returns how many."""
        ...

    async def presign(self, method: Method, key: str, *, lasts: float) -> str:
        """A signed link for one operation, valid for `lasts` seconds; empty if the store cannot sign (a directory)."""
        ...
