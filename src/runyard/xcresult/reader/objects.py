"""Defines the reader's view of an object store: bytes by content id.

The reader is pure: it gets an `Objects` and never a path. `bundle/directory.py` implements it with a bundle's files;
tests may use a dictionary.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec


class ObjectProblem(
    Exception
):  # the reader turns it into a Warning, or into BundleInvalid for the root
    """One object is missing or damaged; the others may be good."""

    def __init__(self, object_id: str, message: str) -> None:
        super().__init__(message)
        self.object_id = object_id


class Objects(Protocol):
    """A content-addressed store. Every method raises ObjectProblem for a bad or missing object."""

    def has(self, object_id: str) -> bool:
        """Whether the store has the payload; False for a text that is not a valid id."""
        ...

    def read(self, object_id: str) -> bytes:
        """Return the decompressed payload; raises TooLarge beyond the limit."""
        ...

    def stream(self, object_id: str) -> Iterator[bytes]:
        """Yield the decompressed payload in pieces; the caller limits the size."""
        ...

    def refs(self, object_id: str) -> tuple[str, ...]:
        """Return the ids of the objects that this object references, in order; empty without a refs file."""
        ...

    def ids(self) -> Iterator[str]:
        """All ids that have a payload, in a stable order."""
        ...


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The content of Info.plist."""

    major: int
    minor: int
    root_id: str
    backend: str = "fileBacked2"
    compression: str = "standard"
    created: float | None = None
