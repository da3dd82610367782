"""Writing down what transitions decided, any number of them in one statement.

Rows that are new are inserted one by one; everything else travels as JSON in one statement, with the lines of the log.
So a claim costs as many statements as a hundred claims do.

Invariants:
- A slot that is not the one that was locked (another generation) is not written, and nothing else is: `Moved`.
- Every change of state appends to the log in the same statement: who, when, from, to, why.
"""

from collections.abc import Sequence

import msgspec

from runyard.db.contract import Row, Tx
from runyard.db.statements import load
from runyard.dispatch.machine.values import Decision, JobChange, SlotChange, View
from runyard.dispatch.noting import JobMoved, Noting

SQL = load("runyard.dispatch")


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's first mention tells of it, for the row's other columns."""

    repository: str
    labels: tuple[str, ...]
    run_id: int = 0
    run_attempt: int = 1
    name: str = ""
    workflow: str = ""
    branch: str = ""
    head_sha: str = ""


class Moved(Exception):
    """The rows are not the ones that were looked at: run the transaction again."""


class _Page:
    """What one statement will write."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, object]] = []
        self.slots: list[dict[str, object]] = []
        self.log: list[dict[str, object]] = []

    def note(self, **entry: object) -> None:
        self.log.append({"place": len(self.log), **entry})


class Writer:
    """Writes decisions, in the name of one actor."""

    def __init__(self, actor: str) -> None:
        self._actor = actor

    async def write(
        self, tx: Tx, decided: Sequence[tuple[View, Decision]], info: JobInfo | None = None
    ) -> tuple[Decision, ...]:
        """Write them; returns them with the generations that the slots have now. `info` is for a job that is new."""
        page = _Page()
        opened: dict[str, int] = {}
        for _, decision in decided:
            for job in decision.jobs:
                await self._job(tx, page, job, info)
            for slot in decision.slots:
                await self._slot(tx, page, slot, opened)
        rows = await self._flush(tx, page)
        if isinstance(tx, Noting):
            tx.moved += _moved(decided, rows, info)
        generations = opened | {
            row["pod_uid"]: row["generation"] for row in rows if row["job_id"] is None
        }
        return tuple(_after(decision, generations) for _, decision in decided)

    async def _flush(self, tx: Tx, page: _Page) -> list[Row]:
        if not (page.jobs or page.slots or page.log):
            return []
        rows = await tx.all(
            SQL.transition_write,
            jobs=_json(page.jobs),
            slots=_json(page.slots),
            log=_json(page.log),
            actor=self._actor,
        )
        if sum(row["job_id"] is None for row in rows) != len(page.slots):
            raise Moved
        return rows

    async def _job(self, tx: Tx, page: _Page, change: JobChange, info: JobInfo | None) -> None:
        job = change.job
        row: dict[str, object] = {
            "job_id": job.job_id,
            "state": job.state.value,
            "verified": job.verified,
            "runner_name": job.runner_name,
            "conclusion": job.conclusion,
            "look_in": change.look_in,
        }
        if change.source is None and info is not None:
            more = msgspec.structs.asdict(info) | {"labels": list(info.labels)}
            if not await tx.run(SQL.job_insert, tenant=job.tenant, **row, **more):
                raise Moved
        else:
            page.jobs.append(row)
        page.note(
            subject="job",
            job_id=job.job_id,
            source="" if change.source is None else change.source.value,
            target=job.state.value,
            why=change.why,
        )

    async def _slot(self, tx: Tx, page: _Page, change: SlotChange, opened: dict[str, int]) -> None:
        slot = change.slot
        if change.why == "beat":
            await tx.run(
                SQL.slot_beat, pod_uid=slot.pod_uid, before=change.before, wait=change.wait
            )
            return
        if change.before is None:
            opened[slot.pod_uid] = await self._open(tx, change)
        else:
            page.slots.append(_row(change))
        if slot.generation != change.before:
            page.note(
                subject="slot",
                pod_uid=slot.pod_uid,
                job_id=slot.executing_job or slot.intended_job,
                source="" if change.source is None else change.source.value,
                target=slot.state.value,
                why=change.why,
            )

    async def _open(self, tx: Tx, change: SlotChange) -> int:
        slot = change.slot
        row = await tx.one(
            SQL.slot_insert,
            pod_uid=slot.pod_uid,
            pod_name=slot.pod_name,
            pool=slot.pool,
            state=slot.state.value,
            wait=change.wait,
        )
        if row is None:
            raise Moved
        return int(row["generation"])


def _moved(
    decided: Sequence[tuple[View, Decision]], rows: list[Row], info: JobInfo | None
) -> list[JobMoved]:
    """What is told of the jobs: with the pool of the slot that each is with now, or was with until now."""
    written = {row["job_id"]: row for row in rows if row["job_id"] is not None}
    first: Row = {"labels": () if info is None else info.labels, "queued": 0.0}
    moved = []
    for view, decision in decided:
        near = (*(each.slot for each in decision.slots), view.slot, view.rival)
        for change in decision.jobs:
            job_id = change.job.job_id
            row = written.get(job_id, first)
            pools = (
                slot.pool
                for slot in near
                if slot and job_id in (slot.executing_job, slot.intended_job)
            )
            moved.append(
                JobMoved(
                    change=change,
                    pool=next(pools, ""),
                    labels=tuple(row["labels"]),
                    queued=row["queued"],
                    claimed=row.get("claimed"),
                    started=row.get("started"),
                )
            )
    return moved


def _after(decision: Decision, generations: dict[str, int]) -> Decision:
    if not decision.slots:
        return decision
    slots = tuple(
        msgspec.structs.replace(
            change,
            slot=msgspec.structs.replace(
                change.slot,
                generation=generations.get(change.slot.pod_uid, change.slot.generation),
            ),
        )
        for change in decision.slots
    )
    return msgspec.structs.replace(decision, slots=slots)


def _json(rows: list[dict[str, object]]) -> str:
    return msgspec.json.encode(rows).decode()


def _row(change: SlotChange) -> dict[str, object]:
    slot = change.slot
    return {
        "pod_uid": slot.pod_uid,
        "before": change.before,
        "bump": slot.generation != change.before,
        "state": slot.state.value,
        "tenant": slot.tenant,
        "scope": slot.scope,
        "installation_id": slot.installation_id,
        "vcpus": slot.vcpus,
        "memory_gb": slot.memory_gb,
        "platform": slot.platform,
        "intended_job": slot.intended_job,
        "executing_job": slot.executing_job,
        "runner_name": slot.runner_name,
        "runner_id": slot.runner_id,
        "stamped": slot.stamped,
        "jit": None if slot.jit is None else "\\x" + slot.jit.hex(),
        "fence": slot.fence.value,
        "close_reason": slot.close_reason,
        "wait": change.wait,
    }
