"""What of test results is kept how long: which rules there are, in which order, and what becomes of an upload that
nobody completed.

Order matters: a run takes its attachments with it, and bytes go when no attachment has them any more. So runs come
first, then what goes before its run does, then payloads and tests that nothing refers to.
"""

from typing import Literal

import msgspec


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long, in seconds."""

    runs: float
    attachments: float
    uploads: float


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table that go when they are old, some at a time."""

    table: str
    statement: str
    older: float
    limit: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What goes, in this order. A run has hundreds of thousands of rows at worst: they go before it, in pieces."""

    results: Rule
    runs: Rule
    parts: tuple[Rule, ...]  # of runs that stay


def plan(times: Times, *, batch: int) -> Plan:
    """The rules; nothing is kept for longer than the run that it belongs to."""
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
    """What becomes of a run whose upload was not completed: `size` is the upload's, None if there is none.

    Whoever uploaded everything and could not say so any more has not lost the run. What could not be processed is
    given up with the rest, when its time is over.
    """
    if size is not None and 0 < size <= limit:
        return "adopt"
    return "abandon" if over else "wait"
