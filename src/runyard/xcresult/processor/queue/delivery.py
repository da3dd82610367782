"""Changes deliveries in procrastinate's tables, each in the caller's transaction.

A run and shard has at most one waiting job and at most one job in progress (`queueing_lock` and `lock` of
procrastinate). A delivery only names the run; everything else is on the run's row.

Invariants:
- A job that is missing, or was ended by another worker, is not an error: the row decides, the sweep repairs the queue.
- procrastinate raises inside the transaction for a job in an unexpected state, so the job is read and locked first.
"""

import datetime as dt
from typing import Annotated

import msgspec
from procrastinate.jobs import Job, Status

from runyard.db.contract import Tx
from runyard.db.statements import load
from runyard.xcresult.processor.queue.connector import jobs
from runyard.xcresult.settings import QUEUE

UNKNOWN_RUN = "00000000-0000-0000-0000-000000000000"
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_sql = load("runyard.xcresult.processor.queue")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was fetched from the queue."""

    job: int
    run_id: Annotated[str, msgspec.Meta(pattern=_UUID)]
    shard: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Consumers(msgspec.Struct, frozen=True, kw_only=True):
    """How many consumers are alive."""

    alive: int
    last_heartbeat: dt.datetime | None


def lock_of(run_id: str, shard: int) -> str:
    """The name of a run and shard in the queue."""
    return f"{QUEUE}/{run_id}/{shard}"


async def deliver(tx: Tx, *, run_id: str, shard: int, at: dt.datetime | None = None) -> int:
    """Ensure that a run is delivered, not before `at`; returns its job, new or existing."""
    lock = lock_of(run_id, shard)
    live = await tx.one(_sql.live, lock=lock)
    if live is not None and live["status"] == "todo":
        return int(live["id"])
    if live is not None:
        await retire(tx, job=int(live["id"]))
    job = await jobs(tx).defer_job_async(
        Job(
            queue=QUEUE,
            task_name=QUEUE,
            lock=lock,
            queueing_lock=lock,
            task_kwargs={"run_id": run_id, "shard": shard},
            scheduled_at=at,
        )
    )
    assert job.id is not None  # procrastinate assigns it
    return job.id


async def fetch(tx: Tx, *, worker: int) -> Delivery | None:
    """Fetch the next delivery that is due; None if there is none."""
    job = await jobs(tx).fetch_job([QUEUE], worker)
    if job is None:
        return None
    assert job.id is not None  # it was read from a row
    try:
        return msgspec.convert({**job.task_kwargs, "job": job.id}, Delivery)
    except msgspec.ValidationError:  # not created by runyard
        return Delivery(job=job.id, run_id=UNKNOWN_RUN, shard=0)


async def reschedule(tx: Tx, *, job: int, at: dt.datetime) -> bool:
    """Schedule a delivery in progress again; False if it does not exist any more."""
    row = await tx.one(_sql.status, job=job)
    if row is None or row["status"] != "doing":
        return False
    await jobs(tx).retry_job_by_id_async(job, at)
    return True


async def retire(tx: Tx, *, job: int, good: bool = False) -> bool:
    """End a delivery for good; False if it had ended already."""
    row = await tx.one(_sql.status, job=job)
    if row is None or row["status"] not in ("todo", "doing"):
        return False
    status = Status.SUCCEEDED if good else Status.FAILED
    await jobs(tx).finish_job_by_id_async(job, status, delete_job=False)
    return True


async def stray(tx: Tx, *, most: int) -> tuple[int, ...]:
    """Deliveries in progress that belong to no run in progress; locked."""
    return tuple(int(row["id"]) for row in await tx.all(_sql.stray, queue=QUEUE, most=most))


async def write_heartbeat(tx: Tx, *, worker: int | None) -> int:
    """Write a consumer's heartbeat; returns its number, a new one if it has none or was removed."""
    if worker is not None and await tx.one(_sql.worker, worker=worker) is not None:
        await jobs(tx).update_heartbeat(worker)
        return worker
    return await jobs(tx).register_worker()


async def unregister(tx: Tx, *, worker: int) -> None:
    """Remove a consumer."""
    await jobs(tx).unregister_worker(worker)


async def remove_dead(tx: Tx, *, dead_after: float) -> None:
    """Remove consumers without a recent heartbeat."""
    await jobs(tx).prune_stalled_workers(dead_after)


async def prune(tx: Tx, *, keep_hours: int) -> None:
    """Delete old deliveries."""
    await jobs(tx).delete_old_jobs(
        keep_hours, queue=QUEUE, include_failed=True, include_cancelled=True, include_aborted=True
    )


async def consumers(tx: Tx, *, within: float) -> Consumers:
    """The consumers with a heartbeat in the last `within` seconds."""
    row = await tx.one(_sql.consumers, within=within)
    assert row is not None  # an aggregate returns one row
    return Consumers(alive=row["alive"], last_heartbeat=row["last_heartbeat"])
