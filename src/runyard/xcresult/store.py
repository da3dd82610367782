"""Reads and writes the row of a run and shard: claim, renew, give back, end. The only writer of its processing state.

Every write after the claim carries the claim (`attempt`, `owner`): a row that another claim owns by now is not changed,
and the return value says so. `plans/attempts.py` decides and `processor/queue/` delivers; each function here executes
one or two statements in the caller's transaction.
"""

import datetime as dt

import msgspec

from runyard.db.contract import Row, Tx
from runyard.db.statements import load
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.plans.rescuing import Seen

SQL = load("runyard.xcresult")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one run; its fields fence every write of the attempt."""

    run_id: str
    shard: int
    attempt: int
    claims: int
    spent: int
    owner: str
    job: int
    account: str
    project: str
    storage_key: str
    archive_bytes: int | None
    scheme: str
    ran_at: dt.datetime
    queued_at: dt.datetime | None = None
    started_at: dt.datetime | None = None

    @property
    def key(self) -> dict[str, object]:
        """Parameters that select its row."""
        return {"run_id": self.run_id, "shard": self.shard}

    @property
    def fence(self) -> dict[str, object]:
        """Parameters that select its row only while this claim owns it."""
        return {**self.key, "attempt": self.attempt, "owner": self.owner}


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The number of runs in each state, and how many seconds the oldest has been due."""

    available: int = 0
    retryable: int = 0
    scheduled: int = 0
    executing: int = 0
    oldest: float = 0.0

    @property
    def waiting(self) -> int:
        """Number of runs that a processor could claim now."""
        return self.available + self.retryable


def to_claim(row: Row) -> Claim:
    """Build a claim from a row."""
    return Claim(
        run_id=row["run_id"],
        shard=row["shard"],
        attempt=row["attempt"],
        claims=row["claims"],
        spent=row["spent"],
        owner=row["lease_owner"],
        job=row["queue_job"] or 0,
        account=row["account"],
        project=row["project"],
        storage_key=row["storage_key"],
        archive_bytes=row["archive_bytes"],
        scheme=row["scheme"],
        ran_at=row["ran_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
    )


async def claim(
    tx: Tx, *, run_id: str, shard: int, owner: str, job: int, lease: float
) -> Claim | None:
    """Claim a queued run; None if it is not queued."""
    row = await tx.one(SQL.run_claim, run_id=run_id, shard=shard, owner=owner, job=job, lease=lease)
    if row is None:
        return None
    taken = to_claim(row)
    await tx.run(SQL.attempt_begin, **taken.fence)
    return taken


async def claimed(tx: Tx, *, owner: str) -> Claim | None:
    """The claim of that owner, if its commit succeeded."""
    row = await tx.one(SQL.run_claimed, owner=owner)
    return None if row is None else to_claim(row)


async def renew(tx: Tx, held: Claim, *, lease: float) -> bool:
    """Extend the lease; False: another claim owns the row."""
    return await tx.run(SQL.run_renew, **held.fence, lease=lease) == 1


async def hold(tx: Tx, held: Claim) -> bool:
    """Lock the row by its claim; False: another claim owns it."""
    return await tx.one(SQL.run_hold, **held.fence) is not None


async def back(tx: Tx, held: Claim | Seen, decision: Decision) -> tuple[dt.datetime, int] | None:
    """Queue the run again; returns when it is due and its job. None: another claim owns the row."""
    fence = _fence(held)
    row = await tx.one(
        SQL.run_back, **fence, **_cause(decision), delay=decision.delay, spent=decision.spent
    )
    if row is None:
        return None
    await _ended(tx, fence, decision)
    return row["due_at"], row["queue_job"] or 0


async def give_up(tx: Tx, held: Claim | Seen, decision: Decision) -> int | None:
    """Mark the run as failed for good; returns its job. None: another claim owns the row."""
    fence = _fence(held)
    row = await tx.one(SQL.run_fail, **fence, **_cause(decision), spent=decision.spent)
    if row is None:
        return None
    await tx.run(SQL.results_drop, run_id=fence["run_id"], shard=fence["shard"])
    await _ended(tx, fence, decision)
    return row["queue_job"] or 0


async def publish(
    tx: Tx, held: Claim, decision: Decision, *, summary: str, dropped: int
) -> int | None:
    """Mark the run as processed, in the transaction of its results; returns its job. None: another claim owns it."""
    row = await tx.one(
        SQL.run_publish, **held.fence, spent=decision.spent, summary=summary, dropped=dropped
    )
    if row is None:
        return None
    await _ended(tx, held.fence, decision)
    return row["queue_job"] or 0


async def outcome(tx: Tx, held: Claim) -> str:
    """The recorded outcome of the attempt: `running` until its end is committed; empty if the run does not exist."""
    row = await tx.one(SQL.attempt_outcome, **held.key, attempt=held.attempt)
    return "" if row is None else str(row["outcome"])


async def lapsed(tx: Tx, *, most: int) -> tuple[Seen, ...]:
    """Runs whose lease has expired; locked."""
    rows = await tx.all(SQL.runs_lapsed, most=most)
    return tuple(msgspec.convert(row, Seen) for row in rows)


async def backlog(tx: Tx) -> Backlog:
    """The number of runs in each state."""
    row = await tx.one(SQL.backlog)
    assert row is not None  # an aggregate returns one row
    return msgspec.convert(row, Backlog)


def _fence(held: Claim | Seen) -> dict[str, object]:
    if isinstance(held, Claim):
        return held.fence
    return {
        "run_id": held.run_id,
        "shard": held.shard,
        "attempt": held.attempt,
        "owner": held.owner,
    }


async def _ended(tx: Tx, fence: dict[str, object], decision: Decision) -> None:
    attempt_key = {key: fence[key] for key in ("run_id", "shard", "attempt")}
    await tx.run(SQL.attempt_end, **attempt_key, **_cause(decision), outcome=decision.verdict)


def _cause(decision: Decision) -> dict[str, object]:
    reason = decision.reason
    detail = {} if reason is None else reason.fields
    return {"code": decision.code, "detail": msgspec.json.encode(detail).decode()}
