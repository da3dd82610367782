"""What Postgres knows, read in one short transaction that changes nothing.

Every statement is bounded: it reads through an index or through the end of the log, and has a limit. So the
dashboard costs the same on a table of ten thousand jobs and of a million. Moments leave the database as seconds: that
is what is shown, and a number is read ten times as fast as a date.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.matching.values import Matching
from runyard.web.healing import Entry
from runyard.web.settings import Settings

SQL = load("runyard.web")
Look = Callable[[], Awaitable[Matching]]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it is stored; `bound` jobs carry the runner that is meant for them."""

    job_id: int
    tenant: str
    repository: str
    labels: tuple[str, ...]
    state: str
    verified: bool
    runner_name: str
    conclusion: str
    enqueued_at: float
    started_at: float | None = None
    completed_at: float | None = None
    look_at: float = 0.0
    installation_id: int = 0


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
    started_at: float | None = None


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read."""

    jobs: tuple[JobRow, ...] = ()
    finished: tuple[JobRow, ...] = ()
    waiting: int = 0
    running: int = 0
    slots: tuple[SlotRow, ...] = ()
    healed: tuple[Entry, ...] = ()
    served_since: float | None = None
    swept_at: float | None = None
    sweep_late: bool = False
    matching: Matching | None = None  # what the matcher would do now; None: nobody was asked


async def read_records(database: Database, settings: Settings, look: Look | None = None) -> Records:
    """Read once; raises `DatabaseError`. `look` asks the matcher what it would do, and what holds the rest."""

    async def work(tx: Tx) -> Records:
        return await _read(tx, settings)

    records = await database.transact(work, name="dashboard")
    if look is None:
        return records
    return msgspec.structs.replace(records, matching=await look())


async def _read(tx: Tx, settings: Settings) -> Records:
    limit, window = settings.jobs_shown, settings.log_window
    active = await tx.all(SQL.jobs_active, limit=limit)
    bound = await tx.all(SQL.jobs_bound, limit=limit)
    finished = await tx.all(SQL.jobs_finished, limit=limit, window=window)
    count = await tx.one(SQL.jobs_count) or {}
    slots = await tx.all(
        SQL.slots_open, silent_after=settings.silent_after, limit=settings.slots_read
    )
    healed = await tx.all(SQL.transitions_healed, limit=settings.healed_shown, window=window)
    service = await tx.one(SQL.service, late=settings.sweep_late) or {}
    return Records(
        jobs=tuple(_job(row) for row in (*bound, *active)),
        finished=tuple(_job(row) for row in finished),
        waiting=count.get("waiting", 0) + len(bound),
        running=count.get("running", 0),
        slots=tuple(SlotRow(**row) for row in slots),
        healed=tuple(Entry(**row) for row in healed),
        served_since=service.get("served_since"),
        swept_at=service.get("last_tick"),
        sweep_late=bool(service.get("late", False)),
    )


def _job(row: Row) -> JobRow:
    return JobRow(**{**row, "labels": tuple(row["labels"])})
