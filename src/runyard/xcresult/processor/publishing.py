"""Writes a run's results to the database: all rows and the state `processed`, in one transaction.

The transaction begins with the fence: it locks the row by its claim. A worker that lost its claim finds no row and
writes nothing; a worker that has it cannot lose it before the commit, because repairs skip locked rows. Results of an
earlier processing are deleted first, so a run can be processed any number of times.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from runyard.db.contract import Database, Tx
from runyard.xcresult import store
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.processor.child_protocol import Summary
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.processor.rows_file import batches
from runyard.xcresult.processor.uploading import Uploads
from runyard.xcresult.store import SQL, Claim

TABLES = (
    "modules",
    "suites",
    "cases",
    "case_runs",
    "arguments",
    "repetitions",
    "failures",
    "attachments",
    "crashes",
    "coverage_targets",
    "coverage_files",
)


class Fenced(Exception):
    """Another worker has taken the run: nothing was written."""


async def publish(
    database: Database,
    claim: Claim,
    decision: Decision,
    *,
    rows: Path,
    summary: Summary,
    uploads: Uploads,
    held: Callable[[], None],
) -> None:
    """Write all results; calls `held` when the row is locked. Raises `Fenced` and database errors."""

    async def work(tx: Tx) -> None:
        if not await store.hold(tx, claim):
            raise Fenced
        held()
        await tx.run(SQL.results_drop, **claim.key)
        for table, text in batches(rows, *TABLES):
            await _load(tx, table, text, claim, uploads)
        await tx.run(SQL.payloads_uploaded, payloads=list(uploads.stored))
        job = await store.publish(
            tx,
            claim,
            decision,
            summary=msgspec.json.encode(summary).decode(),
            dropped=len(uploads.dropped),
        )
        assert job is not None  # we hold the lock on the row
        await delivery.retire(tx, job=job, good=True)

    await database.transact(work, name="xcresult publish")


async def _load(tx: Tx, table: str, text: str, claim: Claim, uploads: Uploads) -> None:
    await tx.run(
        SQL[f"load_{table}"],
        **claim.key,
        rows=text,
        account=claim.account,
        project=claim.project,
        ran_at=claim.ran_at,
        dropped=list(uploads.dropped),
    )
