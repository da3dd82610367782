"""Deletes old test results: rows in batches, then the objects that no row refers to any more.

The transaction that deletes a row also inserts the key of its object into `blob_graves`, the list of pending deletions.
Afterwards the object is deleted, then the entry. After a crash in between, the next step continues with the entry. Keys
are never reused (`object_keys`), so a key in the list belongs to no row.

Payloads are shared within a project. A payload is deleted when no attachment refers to it and its row was not touched
recently: a processor touches the row before it refers to it.

Invariants:
- Batches are small, no transaction holds locks for long, and replicas may run at the same time: each skips locked rows.
- While the store is unavailable, deletions are retried with growing delays and everything else continues.
- A complete upload that was never completed by its client is processed, not deleted.
"""

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError
from runyard.blobs.keys import is_key
from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.telemetry.catalogue import (
    RUNYARD_BLOBS_PENDING_DELETION,
    RUNYARD_BLOBS_REMOVED_TOTAL,
    RUNYARD_PRUNED_ROWS_TOTAL,
    RUNYARD_TEST_UPLOADS_TOTAL,
)
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.plans.retention import Plan, Rule, Times, fate, plan
from runyard.xcresult.rest.settings import DAY, Settings
from runyard.xcresult.rest.uploads import Uploads

SQL = load("runyard.xcresult.rest")
_NONE = "00000000-0000-0000-0000-000000000000"
_CHECKED_AT_ONCE = 2000  # rows checked in one transaction


class RetentionSweep:
    """Deletes test results, payloads, uploads and tests that are older than their retention time."""

    def __init__(
        self,
        database: Database,
        *,
        blobs: Blobs,
        uploads: Uploads,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._uploads = uploads
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings
        self._retention = settings.retention
        self._tidied = float("-inf")

    async def step(self) -> None:
        """Delete a share of each kind, repeatedly until nothing is left or the time is used up."""
        retention = self._retention
        begun, share = self._clock.monotonic(), retention.within / 4
        times = Times(
            runs=retention.runs, attachments=retention.attachments, uploads=retention.uploads
        )
        rules = plan(times, batch=retention.batch)
        await self._finish_uploads(begun + share)
        await self._runs(rules, begun + 2 * share)
        for rule in rules.parts:
            await self._all(rule, begun + 3 * share)
        await self._unused(
            "test_payloads", SQL.prune_payloads, retention.payloads, begun + 4 * share
        )
        await self._unused("test_cases", SQL.prune_tests, retention.runs, begun + 4 * share)
        await self._delete_objects(begun + 5 * share)
        await self._tidy()

    async def _runs(self, rules: Plan, end: float) -> None:
        """Delete old runs, a few at a time; the rows of each run first."""
        few = rules.runs.limit
        while self._clock.monotonic() < end:
            if await self._batch(rules.results, runs=few) >= rules.results.limit:
                continue
            if await self._batch(rules.runs) < few:
                return

    async def _all(self, rule: Rule, end: float) -> None:
        while self._clock.monotonic() < end and await self._batch(rule) >= rule.limit:
            pass

    async def _batch(self, rule: Rule, **more: object) -> int:
        async def work(tx: Tx) -> int:
            row = await tx.one(SQL[rule.statement], older=rule.older, limit=rule.limit, **more)
            return int(row["gone"]) if row is not None else 0

        gone = await self._database.transact(work, name=f"prune {rule.table}")
        self._count_rows(rule.table, gone)
        return gone

    async def _unused(self, table: str, sql: str, older: float, end: float) -> None:
        """Check all rows that were not touched recently, and delete the unused ones."""
        micros, after = -1, _NONE
        while self._clock.monotonic() < end:
            params = {"micros": micros, "after": after, "older": older, "batch": _CHECKED_AT_ONCE}

            async def work(tx: Tx, params: dict[str, object] = params) -> Row | None:
                return await tx.one(sql, **params)

            row = await self._database.transact(work, name=f"prune {table}")
            if row is None:
                return
            self._count_rows(table, row["gone"])
            if row["checked"] < _CHECKED_AT_ONCE:
                return
            micros, after = row["micros"], row["last"]

    # ── uploads that were not completed ───────────────────────────────────────────────────────────

    async def _finish_uploads(self, end: float) -> None:
        retention = self._retention
        params: dict[str, object] = {"micros": -1, "after": _NONE, "after_shard": -1}
        while self._clock.monotonic() < end:

            async def work(tx: Tx, params: dict[str, object] = params) -> list[Row]:
                times = {"older": retention.awaited, "adopt": retention.adopt}
                return await tx.all(SQL.awaited, **params, **times, limit=retention.batch)

            rows = await self._database.transact(work, name="awaited uploads")
            for row in rows:
                try:
                    found = await self._blobs.head(row["storage_key"])
                except BlobError as error:
                    self._log.warning("upload cannot be checked", error=str(error))
                    return
                await self._finish(row, None if found is None else found.size)
            if len(rows) < retention.batch:
                return
            last = rows[-1]
            params = {
                "micros": last["micros"],
                "after": last["run_id"],
                "after_shard": last["shard"],
            }

    async def _finish(self, row: Row, size: int | None) -> None:
        decided = fate(size, limit=self._settings.upload_limit, over=row["over"])
        if decided == "adopt":
            assert size is not None
            await self._uploads.enqueue(row["run_id"], row["shard"], size=size)
            self._meter.inc(RUNYARD_TEST_UPLOADS_TOTAL, outcome="adopted")
            self._log.info(
                "processing an uncompleted upload", run=row["run_id"], shard=row["shard"]
            )
        elif decided == "abandon":
            # An upload may still be on its way: its link may be new, and the upload begins while the link is valid.
            grace = self._settings.upload_lasts + self._settings.upload_longest

            async def work(tx: Tx) -> Row | None:
                return await tx.one(
                    SQL.abandon, run_id=row["run_id"], shard=row["shard"], grace=grace
                )

            gone = await self._database.transact(work, name="abandon upload")
            self._count_rows("test_runs", 0 if gone is None else gone["gone"])

    # ── objects ─────────────────────────────────────────────────────────────────────────────────

    async def _delete_objects(self, end: float) -> None:
        async def due(tx: Tx) -> list[Row]:
            return await tx.all(SQL.deletions_due, limit=self._retention.batch)

        while self._clock.monotonic() < end:
            rows = await self._database.transact(due, name="graves")
            if not rows or not await self._remove(rows):
                break
        await self._count_deletions()

    async def _remove(self, rows: list[Row]) -> bool:
        """Delete these objects and their entries; False if the store failed."""
        keys = [row["storage_key"] for row in rows]
        try:
            await self._blobs.delete([key for key in keys if is_key(key)])
        except BlobError as error:
            self._log.warning(
                "objects cannot be deleted; retrying later", count=len(keys), error=str(error)
            )
            await self._write(SQL.deletions_retry, keys=keys, retry=self._retention.retry)
            self._count_blobs(rows, "failed")
            return False
        await self._write(SQL.deletions_done, keys=keys)
        self._count_blobs(rows, "removed")
        return True

    async def _write(self, sql: str, **params: object) -> None:
        async def work(tx: Tx) -> None:
            await tx.run(sql, **params)

        await self._database.transact(work, name="pending deletions written")

    async def _count_deletions(self) -> None:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.deletions_count)

        row = await self._database.transact(work, name="pending deletions counted")
        self._meter.set(RUNYARD_BLOBS_PENDING_DELETION, 0 if row is None else row["graves"])

    async def _tidy(self) -> None:
        """Once a day: delete files of interrupted puts in a directory."""
        now = self._clock.monotonic()
        if now - self._tidied < DAY:
            return
        gone = await self._blobs.tidy(older=DAY)
        self._tidied = now
        if gone:
            self._log.info("files of interrupted puts deleted", count=gone)

    def _count_rows(self, table: str, gone: int) -> None:
        if gone:
            self._meter.inc(RUNYARD_PRUNED_ROWS_TOTAL, gone, table=table)

    def _count_blobs(self, rows: list[Row], outcome: str) -> None:
        for row in rows:
            self._meter.inc(RUNYARD_BLOBS_REMOVED_TOTAL, kind=row["kind"], outcome=outcome)
