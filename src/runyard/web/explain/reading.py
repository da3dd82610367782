"""The few rows about the one thing that is asked for, in one short transaction that changes nothing."""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.machine.table import after_outage
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.web.explain.scene import JobFacts, Logged, SlotFacts, Terms
from runyard.wire.names import runner_name

SQL = load("runyard.web")
_BIGGEST = 1 << 63


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    job: JobFacts | None = None
    slot: SlotFacts | None = None


async def read_job(database: Database, job_id: int, terms: Terms) -> Rows:
    """A job, and the slot that it is meant for or runs on; raises `DatabaseError`."""

    async def work(tx: Tx) -> Rows:
        row = await tx.one(SQL.explain_job, job_id=job_id)
        if row is None:
            return Rows()
        told = await tx.one(SQL.explain_log_job, job_id=job_id)
        job = JobFacts(**{**row, "labels": tuple(row["labels"])}, last=_logged(told))
        slot = await _slot(tx, terms, runner=job.runner_name, tenant=job.tenant, job_id=job_id)
        return Rows(job=job, slot=slot)

    return await database.transact(work, name="explain job")


async def read_slot(database: Database, name: str, terms: Terms) -> Rows:
    """The slot that goes by this name; raises `DatabaseError`."""

    async def work(tx: Tx) -> Rows:
        return Rows(slot=await _slot(tx, terms, name=name, runner=runner_name(name)))

    return await database.transact(work, name="explain slot")


async def _slot(
    tx: Tx,
    terms: Terms,
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
        outage=terms.outage_after,
        states=[state.value for state in SlotState],
        stays=[after_outage(state, terms.deadlines) for state in SlotState],
    )
    if row is None:
        return None
    told = await tx.one(SQL.explain_log_slot, pod_uid=row["pod_uid"])
    return SlotFacts(
        slot=msgspec.convert(row, Slot, builtin_types=(bytes,)),
        opened_at=row["opened_epoch"],
        last_beat=row["beat_epoch"],
        deadline=row["deadline_epoch"],
        overdue=row["overdue"],
        settled=row["settled"],
        settles_at=row["settles_epoch"],
        last=_logged(told),
    )


def number(text: str) -> int | None:
    """The number that GitHub or we gave something, if the text is one that fits."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text) if int(text) < _BIGGEST else None


def _logged(row: Row | None) -> Logged | None:
    return None if row is None else Logged(**row)
