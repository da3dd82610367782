"""The reader's view of an object store: bytes by content id, wherever they lie.

The reader is pure: it is handed an `Objects` and never sees a path. `bundle/directory.py` implements it
on a bundle's files; a test may do so on a dictionary.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec


class ObjectProblem(
    Exception
):  # the reader turns it into a Warning, or into BundleInvalid for the root
    """One object is missing or damaged. Never more than that: the rest may be good."""

    def __init__(self, object_id: str, message: str) -> None:
        super().__init__(message)
        self.object_id = object_id


class Objects(Protocol):
    """A content-addressed store. Every method raises ObjectProblem for a bad or missing object."""

    def has(self, object_id: str) -> bool:
        """Whether the payload is there. False, too, for an id that is no id."""
        ...

    def read(self, object_id: str) -> bytes:
        """The payload, decompressed, up to a limit; beyond it TooLarge."""
        ...

    def stream(self, object_id: str) -> Iterator[bytes]:
        """The payload, decompressed, piece by piece, with no limit but the caller's."""
        ...

    def refs(self, object_id: str) -> tuple[str, ...]:
        """The ids of the objects that this one points at, in order; empty without a refs file."""
        ...

    def ids(self) -> Iterator[str]:
        """All ids that have a payload, in a stable order."""
        ...


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What Info.plist says."""

    major: int
    minor: int
    root_id: str
    backend: str = "fileBacked2"
    compression: str = "standard"
    created: float | None = None
