"""Reads the rows of one job or slot in a short read-only transaction."""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.machine.table import after_outage
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.web.explain.context import DispatchLimits, JobFacts, LogEntry, SlotFacts
from runyard.wire.names import runner_name

SQL = load("runyard.web")
_ID_LIMIT = 1 << 63


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were found."""

    job: JobFacts | None = None
    slot: SlotFacts | None = None


async def read_job(database: Database, job_id: int, limits: DispatchLimits) -> Rows:
    """Read a job, and the slot that it is assigned to or runs on; raises `DatabaseError`."""

    async def work(tx: Tx) -> Rows:
        row = await tx.one(SQL.explain_job, job_id=job_id)
        if row is None:
            return Rows()
        entry = await tx.one(SQL.explain_log_job, job_id=job_id)
        job = JobFacts(**{**row, "labels": tuple(row["labels"])}, last=_log_entry(entry))
        slot = await _slot(tx, limits, runner=job.runner_name, tenant=job.tenant, job_id=job_id)
        return Rows(job=job, slot=slot)

    return await database.transact(work, name="explain job")


async def read_slot(database: Database, name: str, limits: DispatchLimits) -> Rows:
    """Read the slot with this name; raises `DatabaseError`."""

    async def work(tx: Tx) -> Rows:
        return Rows(slot=await _slot(tx, limits, name=name, runner=runner_name(name)))

    return await database.transact(work, name="explain slot")


async def _slot(
    tx: Tx,
    limits: DispatchLimits,
    *,
    name: str = "",
    runner: str = "",
    tenant: str | None = None,
    job_id: int | None = None,
) -> SlotFacts | None:
    row = await tx.one(
        SQL.explain_slot,
        name=name,
        runner=runner,
        tenant=tenant,
        runner_id=number(name),
        job_id=job_id,
        outage=limits.outage_after,
        states=[state.value for state in SlotState],
        stays=[after_outage(state, limits.deadlines) for state in SlotState],
    )
    if row is None:
        return None
    entry = await tx.one(SQL.explain_log_slot, pod_uid=row["pod_uid"])
    return SlotFacts(
        slot=msgspec.convert(row, Slot, builtin_types=(bytes,)),
        opened_at=row["opened_epoch"],
        last_beat=row["beat_epoch"],
        poll_dropped=row["poll_dropped"],
        deadline=row["deadline_epoch"],
        overdue=row["overdue"],
        settled=row["settled"],
        settles_at=row["settles_epoch"],
        last=_log_entry(entry),
        job_trust=row["job_trust"] or "",
        marked_job=row["marked_job"],
        marked_untrusted=row["marked_untrusted"],
    )


def number(text: str) -> int | None:
    """Parse an id; None if the text is not a number that fits a bigint."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text) if int(text) < _ID_LIMIT else None


def _log_entry(row: Row | None) -> LogEntry | None:
    return None if row is None else LogEntry(**row)
