"""Decides how long test results are kept: the rules, their order, and what happens to uploads never completed.

Order matters: deleting a run deletes its attachments, and a payload may be deleted when no attachment refers to it. So
runs come first, then attachments and uploads of runs that are kept, then payloads and tests without references.
"""

from typing import Literal

import msgspec


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long each kind of data is kept, in seconds."""

    runs: float
    attachments: float
    uploads: float


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Deletes old rows of one table, some at a time."""

    table: str
    statement: str
    older: float
    limit: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The rules in the order of their execution. A run's many rows are deleted before it, in batches."""

    results: Rule
    runs: Rule
    parts: tuple[Rule, ...]  # of runs that are kept


def plan(times: Times, *, batch: int) -> Plan:
    """The rules; nothing is kept longer than the run that it belongs to."""
    few = max(1, batch // 40)
    uploads = min(times.uploads, times.runs)
    attachments = min(times.attachments, times.runs)
    return Plan(
        results=Rule(
            table="test_results", statement="prune_results", older=times.runs, limit=batch * 20
        ),
        runs=Rule(table="test_runs", statement="prune_runs", older=times.runs, limit=few),
        parts=(
            Rule(table="test_uploads", statement="prune_uploads", older=uploads, limit=batch),
            Rule(
                table="test_attachments",
                statement="prune_attachments",
                older=attachments,
                limit=batch * 10,
            ),
        ),
    )


Fate = Literal["adopt", "abandon", "wait"]


def fate(size: int | None, *, limit: int, over: bool) -> Fate:
    """Decide about a run whose upload was not completed; `size` is the size of the uploaded object, None if missing.

    A complete upload is processed even if the client never completed it. An upload that cannot be processed is given up
    with the others when its time is over.
    """
    if size is not None and 0 < size <= limit:
        return "adopt"
    return "abandon" if over else "wait"
