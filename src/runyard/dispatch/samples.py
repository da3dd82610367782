"""Stores the machine samples that runners report, for the job that they execute.

The job is read from the slot, where it was set by GitHub's report of its start. Samples of a Pod without a job are
accepted, dropped and counted: they may have been taken before the start was known.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Tx
from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.samples import StoredSample, validate
from runyard.dispatch.store import SQL
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.meter import Meter
from runyard.wire.bodies import Samples

_AT_WORK = (
    SlotState.EXECUTING.value,
    SlotState.DRAINING.value,
)  # the last samples arrive after the job


class SampleStore:
    """Validates and stores samples."""

    def __init__(self, database: Database, *, clock: Clock, meter: Meter) -> None:
        self._database = database
        self._clock = clock
        self._meter = meter

    async def add(self, body: bytes, *, pod_uid: str) -> int:
        """Store the samples of a Pod and return how many; raises `ValueError` or `RecursionError` for invalid ones."""
        report = msgspec.json.decode(body, type=Samples)
        found = validate(report, now=self._clock.now())
        if not found:
            return 0

        async def keep(tx: Tx) -> int | None:
            slot = await tx.one(SQL.slot_peek, pod_uid=pod_uid)
            if slot is None or slot["executing_job"] is None or slot["state"] not in _AT_WORK:
                return None
            return await tx.run(SQL.samples_insert, job_id=slot["executing_job"], **_columns(found))

        kept = await self._database.transact(keep, name="samples")
        if kept is None:
            kind = "metrics_dropped_awaiting_attribution"
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, len(report.samples), kind=kind)
        return kept or 0


def _columns(found: tuple[StoredSample, ...]) -> dict[str, object]:
    return {
        name: [getattr(each, name) for each in found] for name in StoredSample.__struct_fields__
    }
