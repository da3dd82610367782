"""The row of a run and shard: claimed, renewed, given back, ended. The only writer of its processing state.

Every write after the claim carries the claim (`attempt`, `owner`): a row that is not that claim's any more is not
touched, and the answer says so. Nothing is decided here (`plans/attempts.py` does) and nothing is delivered
(`processor/queue/`); each function is a statement or two on the caller's transaction.
"""

import datetime as dt

import msgspec

from runyard.db.contract import Row, Tx
from runyard.db.statements import load
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.plans.rescuing import Seen

SQL = load("runyard.xcresult")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one run, and the fence of everything that it writes."""

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
        """Its row."""
        return {"run_id": self.run_id, "shard": self.shard}

    @property
    def fence(self) -> dict[str, object]:
        """Its row, while it is this claim's."""
        return {**self.key, "attempt": self.attempt, "owner": self.owner}


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """How much work there is, by state, and how many seconds its oldest has been due."""

    available: int = 0
    retryable: int = 0
    scheduled: int = 0
    executing: int = 0
    oldest: float = 0.0

    @property
    def waiting(self) -> int:
        """What a consumer could begin now."""
        return self.available + self.retryable


def to_claim(row: Row) -> Claim:
    """The claim that a row says."""
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
    """Take a run that waits; None if it does not."""
    row = await tx.one(SQL.run_claim, run_id=run_id, shard=shard, owner=owner, job=job, lease=lease)
    if row is None:
        return None
    taken = to_claim(row)
    await tx.run(SQL.attempt_begin, **taken.fence)
    return taken


async def claimed(tx: Tx, *, owner: str) -> Claim | None:
    """The claim of that owner, if its commit went through after all."""
    row = await tx.one(SQL.run_claimed, owner=owner)
    return None if row is None else to_claim(row)


async def renew(tx: Tx, held: Claim, *, lease: float) -> bool:
    """Hold the claim for longer; False: it is somebody else's by now."""
    return await tx.run(SQL.run_renew, **held.fence, lease=lease) == 1


async def hold(tx: Tx, held: Claim) -> bool:
    """Lock the row by its claim; False: it is somebody else's by now."""
    return await tx.one(SQL.run_hold, **held.fence) is not None


async def back(tx: Tx, held: Claim | Seen, decision: Decision) -> tuple[dt.datetime, int] | None:
    """Put the run back into the queue: when it is due, and its job. None: it was not this claim's any more."""
    fence = _fence(held)
    told = {"code": decision.code, "reason": decision.reason}
    row = await tx.one(SQL.run_back, **fence, **told, delay=decision.delay, spent=decision.spent)
    if row is None:
        return None
    await _ended(tx, fence, decision)
    return row["due_at"], row["queue_job"] or 0


async def give_up(tx: Tx, held: Claim | Seen, decision: Decision) -> int | None:
    """The run failed for good: its job. None: it was not this claim's any more."""
    fence = _fence(held)
    told = {"code": decision.code, "reason": decision.reason}
    row = await tx.one(SQL.run_fail, **fence, **told, spent=decision.spent)
    if row is None:
        return None
    await tx.run(SQL.results_drop, run_id=fence["run_id"], shard=fence["shard"])
    await _ended(tx, fence, decision)
    return row["queue_job"] or 0


async def publish(
    tx: Tx, held: Claim, decision: Decision, *, summary: str, dropped: int
) -> int | None:
    """The run is processed, and its results are in this transaction: its job. None: it was fenced."""
    row = await tx.one(
        SQL.run_publish, **held.fence, spent=decision.spent, summary=summary, dropped=dropped
    )
    if row is None:
        return None
    await _ended(tx, held.fence, decision)
    return row["queue_job"] or 0


async def outcome(tx: Tx, held: Claim) -> str:
    """What is written of the attempt: `running` until its end was committed; empty if the run is gone."""
    row = await tx.one(SQL.attempt_outcome, **held.key, attempt=held.attempt)
    return "" if row is None else str(row["outcome"])


async def lapsed(tx: Tx, *, most: int) -> tuple[Seen, ...]:
    """Runs whose worker was not heard of in time; locked."""
    rows = await tx.all(SQL.runs_lapsed, most=most)
    return tuple(msgspec.convert(row, Seen) for row in rows)


async def backlog(tx: Tx) -> Backlog:
    """How much work there is."""
    row = await tx.one(SQL.backlog)
    assert row is not None  # it counts
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
    told = {key: fence[key] for key in ("run_id", "shard", "attempt")}
    await tx.run(
        SQL.attempt_end,
        **told,
        outcome=decision.verdict,
        code=decision.code,
        reason=decision.reason,
    )
