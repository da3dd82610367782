"""What of test results is old goes: rows in batches, and then the objects that no row refers to any more.

A row that knew an object is taken away in one transaction with an entry in `blob_graves`; the object is removed
afterwards, and then the entry. A crash in between leaves the entry, so the next step goes on. Keys are never used
again (`places`), so what is in a grave is nobody's.

Bytes of attachments are shared within a project. Theirs go when no attachment has them, which is asked of the rows, and
nobody is about to have them: whoever is has touched their row, and what was touched lately stays.

Invariants:
- Batches are small, none holds locks for long, and replicas may do this side by side: each skips what another one has.
- A store that is away costs nothing but time: graves wait, longer each time, and everything else goes on.
- An upload that is whole but was never completed is put to work, not thrown away.
"""

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError
from runyard.blobs.keys import is_key
from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.telemetry.catalogue import (
    RUNYARD_BLOBS_GRAVES,
    RUNYARD_BLOBS_REMOVED_TOTAL,
    RUNYARD_PRUNED_ROWS_TOTAL,
    RUNYARD_TEST_UPLOADS_TOTAL,
)
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.people.settings import DAY, Settings
from runyard.xcresult.people.uploads import Uploads
from runyard.xcresult.plans.keeping import Plan, Rule, Times, fate, plan

SQL = load("runyard.xcresult.people")
_NONE = "00000000-0000-0000-0000-000000000000"
_LOOK = 2000  # rows looked at in one transaction


class Keeper:
    """Removes what has had its time."""

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
        self._keeping = settings.keeping
        self._tidied = float("-inf")

    async def step(self) -> None:
        """Some of everything, again while there is more; what time does not allow waits for the next step."""
        keeping = self._keeping
        begun, share = self._clock.monotonic(), keeping.within / 4
        times = Times(runs=keeping.runs, attachments=keeping.attachments, uploads=keeping.uploads)
        rules = plan(times, batch=keeping.batch)
        await self._finish_uploads(begun + share)
        await self._runs(rules, begun + 2 * share)
        for rule in rules.parts:
            await self._all(rule, begun + 3 * share)
        await self._unused("test_payloads", SQL.prune_payloads, keeping.payloads, begun + 4 * share)
        await self._unused("test_cases", SQL.prune_tests, keeping.runs, begun + 4 * share)
        await self._graves(begun + 5 * share)
        await self._tidy()

    async def _runs(self, rules: Plan, end: float) -> None:
        """Old runs, a few at a time, and before each of them what hangs on it."""
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
        """One round through rows that may be unused: those that were not touched lately."""
        micros, after = -1, _NONE
        while self._clock.monotonic() < end:
            asked = {"micros": micros, "after": after, "older": older, "look": _LOOK}

            async def work(tx: Tx, asked: dict[str, object] = asked) -> Row | None:
                return await tx.one(sql, **asked)

            row = await self._database.transact(work, name=f"prune {table}")
            if row is None:
                return
            self._count_rows(table, row["gone"])
            if row["looked"] < _LOOK:
                return
            micros, after = row["micros"], row["last"]

    # ── uploads that nobody completed ───────────────────────────────────────────────────────────

    async def _finish_uploads(self, end: float) -> None:
        keeping = self._keeping
        asked: dict[str, object] = {"micros": -1, "after": _NONE, "after_shard": -1}
        while self._clock.monotonic() < end:

            async def work(tx: Tx, asked: dict[str, object] = asked) -> list[Row]:
                times = {"older": keeping.awaited, "adopt": keeping.adopt}
                return await tx.all(SQL.awaited, **asked, **times, limit=keeping.batch)

            rows = await self._database.transact(work, name="awaited uploads")
            for row in rows:
                try:
                    found = await self._blobs.head(row["storage_key"])
                except BlobError as error:
                    self._log.warning("an upload cannot be looked for", error=str(error))
                    return
                await self._finish(row, None if found is None else found.size)
            if len(rows) < keeping.batch:
                return
            last = rows[-1]
            asked = {
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
            self._log.info("upload adopted", run=row["run_id"], shard=row["shard"])
        elif decided == "abandon":
            grace = self._settings.upload_lasts

            async def work(tx: Tx) -> Row | None:
                return await tx.one(
                    SQL.abandon, run_id=row["run_id"], shard=row["shard"], grace=grace
                )

            gone = await self._database.transact(work, name="abandon upload")
            self._count_rows("test_runs", 0 if gone is None else gone["gone"])

    # ── objects ─────────────────────────────────────────────────────────────────────────────────

    async def _graves(self, end: float) -> None:
        async def due(tx: Tx) -> list[Row]:
            return await tx.all(SQL.graves_due, limit=self._keeping.batch)

        while self._clock.monotonic() < end:
            rows = await self._database.transact(due, name="graves")
            if not rows or not await self._remove(rows):
                break
        await self._count_graves()

    async def _remove(self, rows: list[Row]) -> bool:
        """Remove these objects and forget their graves; False if the store did not do it."""
        keys = [row["storage_key"] for row in rows]
        try:
            await self._blobs.delete([key for key in keys if is_key(key)])
        except BlobError as error:
            self._log.warning("objects cannot be removed", count=len(keys), error=str(error))
            await self._write(SQL.graves_later, keys=keys, retry=self._keeping.retry)
            self._count_blobs(rows, "failed")
            return False
        await self._write(SQL.graves_close, keys=keys)
        self._count_blobs(rows, "removed")
        return True

    async def _write(self, sql: str, **asked: object) -> None:
        async def work(tx: Tx) -> None:
            await tx.run(sql, **asked)

        await self._database.transact(work, name="graves written")

    async def _count_graves(self) -> None:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.graves_count)

        row = await self._database.transact(work, name="graves counted")
        self._meter.set(RUNYARD_BLOBS_GRAVES, 0 if row is None else row["graves"])

    async def _tidy(self) -> None:
        """Once a day: what killed uploads left in a directory."""
        now = self._clock.monotonic()
        if now - self._tidied < DAY:
            return
        gone = await self._blobs.tidy(older=DAY)
        self._tidied = now
        if gone:
            self._log.info("unfinished objects removed", count=gone)

    def _count_rows(self, table: str, gone: int) -> None:
        if gone:
            self._meter.inc(RUNYARD_PRUNED_ROWS_TOTAL, gone, table=table)

    def _count_blobs(self, rows: list[Row], outcome: str) -> None:
        for row in rows:
            self._meter.inc(RUNYARD_BLOBS_REMOVED_TOTAL, kind=row["kind"], outcome=outcome)
