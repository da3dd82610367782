"""What a room may ask of object storage. One implementation (`store`) on a directory or on S3, one suite for both.

Invariants:
- A put is whole or nothing: nobody ever sees a part of an object, also after a crash.
- Memory is flat: content goes in and out in pieces, whatever its size.
- Deleting what is not there is success.
- A link is the credential itself: whoever has it may do that one thing until it ends. It is never logged.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

Content = bytes | Path | AsyncIterable[bytes]
Method = Literal["GET", "PUT"]


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an object without reading it."""

    key: str
    size: int
    modified: float  # seconds since the epoch, by the store's clock


class Reading(Protocol):
    """An object that is being read: iterate it once; an error of the store may come at any piece."""

    @property
    def blob(self) -> Blob:
        """What is being read."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Blobs(Protocol):
    """Object storage."""

    async def put(self, key: str, content: Content, *, limit: int | None = None) -> int:
        """Store the content under that key, in place of what is there; the number of its bytes.

        Raises `BlobTooLarge` if there are more than `limit`, and then nothing changed. What the content itself raises
        while it is read passes through, with the same effect.
        """
        ...

    async def get(self, key: str) -> Reading:
        """Begin to read an object; raises `NoSuchBlob`."""
        ...

    async def download(self, key: str, path: Path) -> int:
        """Write an object to a new file; the number of its bytes. Raises `NoSuchBlob`, `FileExistsError`.

        What the file system says (`OSError`: a full disk) passes through. What was begun is left to the caller.
        """
        ...

    async def head(self, key: str) -> Blob | None:
        """What is known of an object, or None if it is not there."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether the object is there."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove these objects; those that are not there too."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[Blob]:
        """All objects below a prefix of whole segments, in no order."""
        ...

    async def tidy(self, *, older: float) -> int:
        """Remove what interrupted puts left, if it is older than so many seconds; how many there were."""
        ...

    async def presign(self, method: Method, key: str, *, lasts: float) -> str:
        """A link for that one thing, good for so many seconds; empty if the store makes none (a directory)."""
        ...
