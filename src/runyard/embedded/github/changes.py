"""Which records have changed since they were last kept.

Whoever changes a record says so. Nobody listens by default, and then saying so does nothing: a practice GitHub
without a keeper is as quick as one that cannot keep anything.
"""

from collections.abc import Callable
from typing import Literal

Kind = Literal["installation", "runner", "run", "job", "attempt", "grant", "meta"]
Touch = Callable[[Kind, int | str], None]


def ignored(kind: Kind, key: int | str) -> None:
    """Nobody keeps anything."""


def nothing() -> None:
    """Nobody waits for a step's end."""
