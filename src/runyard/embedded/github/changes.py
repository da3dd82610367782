"""Tracks which records have changed since they were last stored.

Code that changes a record calls `touch`. By default that does nothing, because there is no store.
"""

from collections.abc import Callable
from typing import Literal

Kind = Literal["installation", "runner", "run", "job", "attempt", "grant", "meta"]
Touch = Callable[[Kind, int | str], None]


def ignored(kind: Kind, key: int | str) -> None:
    """Does nothing: there is no store."""


def nothing() -> None:
    """Does nothing at the end of a step."""
