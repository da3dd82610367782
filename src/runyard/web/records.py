"""Reads jobs, slots and recoveries from Postgres in one short read-only transaction.

Every statement uses an index or the end of the transition log, and has a limit, so the cost does not depend on the
number of jobs. Times are read as seconds since the epoch, which decode ten times as fast as timestamps.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.machine.table import ASKING_WITHIN
from runyard.dispatch.matching.values import Matching
from runyard.web.recoveries import CODES, Entry
from runyard.web.settings import Settings

SQL = load("runyard.web")
ReadMatching = Callable[[], Awaitable[Matching]]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the job table; `bound` jobs have the name of the runner that they are assigned to."""

    job_id: int
    tenant: str
    repository: str
    labels: tuple[str, ...]
    state: str
    verified: bool
    runner_name: str
    conclusion: str
    name: str
    workflow: str
    run_id: int  # 0: not known
    enqueued_at: float
    started_at: float | None = None
    completed_at: float | None = None
    look_at: float = 0.0
    installation_id: int = 0


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs wait of one kind and state: the same holds all of them."""

    tenant: str
    repository: str
    labels: tuple[str, ...]
    state: str
    verified: bool
    jobs: int


class SlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One open slot."""

    pod_uid: str
    pod_name: str
    pool: str
    state: str
    opened_at: float
    silent: bool
    job_id: int | None = None
    repository: str = ""
    job_name: str = ""
    job_workflow: str = ""
    run_id: int = 0
    started_at: float | None = None


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one read."""

    jobs: tuple[JobRow, ...] = ()
    finished: tuple[JobRow, ...] = ()
    groups: tuple[JobGroup, ...] = ()  # of all waiting jobs, also of those that are not shown
    waiting: int = 0
    running: int = 0
    slots: tuple[SlotRow, ...] = ()
    recoveries: tuple[Entry, ...] = ()
    served_since: float | None = None
    swept_at: float | None = None
    sweep_late: bool = False
    matching: Matching | None = None  # what the matcher would do now; None without a dispatcher


async def read_records(
    database: Database,
    settings: Settings,
    read_matching: ReadMatching | None = None,
    *,
    asking_within: float = ASKING_WITHIN,
) -> Records:
    """Read once, and call the matcher if there is one; raises `DatabaseError`."""

    async def work(tx: Tx) -> Records:
        return await _read(tx, settings, asking_within)

    records = await database.transact(work, name="dashboard")
    if read_matching is None:
        return records
    return msgspec.structs.replace(records, matching=await read_matching())


async def _read(tx: Tx, settings: Settings, asking_within: float) -> Records:
    limit, window = settings.jobs_shown, settings.log_window
    active = await tx.all(SQL.jobs_active, limit=limit)
    bound = await tx.all(SQL.jobs_bound, limit=limit)
    finished = await tx.all(SQL.jobs_finished, limit=limit, window=window)
    count = await tx.one(SQL.jobs_count) or {}
    groups = await tx.all(SQL.jobs_waiting_by_kind, limit=settings.holds_counted)
    slots = await tx.all(SQL.slots_open, asking_within=asking_within, limit=settings.slots_read)
    recovered = await tx.all(
        SQL.recoveries, limit=settings.recoveries_shown, window=window, **CODES
    )
    service = await tx.one(SQL.service, late=settings.sweep_late) or {}
    return Records(
        jobs=tuple(_job(row) for row in (*bound, *active)),
        finished=tuple(_job(row) for row in finished),
        groups=tuple(JobGroup(**{**row, "labels": tuple(row["labels"])}) for row in groups),
        waiting=count.get("waiting", 0) + len(bound),
        running=count.get("running", 0),
        slots=tuple(SlotRow(**row) for row in slots),
        recoveries=tuple(Entry(**row) for row in recovered),
        served_since=service.get("served_since"),
        swept_at=service.get("last_tick"),
        sweep_late=bool(service.get("late", False)),
    )


def _job(row: Row) -> JobRow:
    return JobRow(**{**row, "labels": tuple(row["labels"])})
