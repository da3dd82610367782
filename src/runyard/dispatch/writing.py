"""Writes what transitions decided, any number of them in one round trip.

A new row is inserted by a statement of its own; everything else is passed as JSON to one statement, with the lines of
the log. All statements travel together, so a hundred claims cost as many round trips as one.

Invariants:
- If a slot's generation is not the one that was locked, or a new row exists by now, the statements fail as a whole;
  `store` then runs the transaction again. So they may be sent together with the COMMIT.
- Every change of state appends a log entry in the same statement: actor, time, source, target, and the reason's code.
"""

from collections.abc import Sequence

import msgspec

from runyard.db.contract import Row, Statement, Tx
from runyard.db.statements import load
from runyard.dispatch.machine.values import Decision, Job, JobChange, JobState, SlotChange, View
from runyard.dispatch.recorded_tx import JobTransition, RecordingTx
from runyard.wire.reasons_dispatch import Why

SQL = load("runyard.dispatch")


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a new job that the state machine does not use."""

    repository: str
    labels: tuple[str, ...]
    run_id: int = 0
    run_attempt: int = 1
    name: str = ""
    workflow: str = ""
    branch: str = ""
    head_sha: str = ""
    trust: str = ""  # empty: not decided yet


class RowsChanged(Exception):
    """The rows changed since they were read: run the transaction again."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions with the generations that their slots have now, and the rows of the statements run beside them."""

    decisions: tuple[Decision, ...]
    beside: tuple[list[Row], ...] = ()


class _Batch:
    """The statements that write some decisions, in order, and the rows for the one that takes JSON."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.opened: dict[str, int] = {}  # a new slot's uid → its statement
        self.jobs: list[dict[str, object]] = []
        self.slots: list[dict[str, object]] = []
        self.log: list[dict[str, object]] = []

    def insert(self, sql: str, params: dict[str, object]) -> int:
        """Add a statement; returns its place."""
        self.statements.append((sql, params))
        return len(self.statements) - 1

    def log_entry(self, **entry: object) -> None:
        """Add a line of the log."""
        self.log.append({"place": len(self.log), **entry})


class Writer:
    """Writes decisions; `actor` is recorded in the log."""

    def __init__(self, actor: str) -> None:
        self._actor = actor

    async def write(
        self,
        tx: Tx,
        decided: Sequence[tuple[View, Decision]],
        info: JobInfo | None = None,
        *,
        beside: Sequence[Statement] = (),
        first: Sequence[Statement] = (),
        last: bool = False,
    ) -> Written:
        """Write decisions; `info` is for a job that is new, `beside` for other statements of the same transaction.

        With `last`, the transaction is committed in the same round trip. `first` are checks that fail if nothing may
        be written; with them and `last`, it is the whole transaction.
        """
        batch = _Batch()
        for _, decision in decided:
            for job in decision.jobs:
                _add_job(batch, job, info)
            for slot in decision.slots:
                _add_slot(batch, slot)
        own = len(batch.statements)
        changes = bool(batch.jobs or batch.slots or batch.log)
        if changes:
            batch.statements.append((SQL.transition_write, self._parameters(batch)))
        statements = (*first, *batch.statements, *beside)
        if last:
            answers = await tx.finish(*statements, alone=bool(first))
        else:
            answers = await tx.several(*statements)
        answers = answers[len(first) :]
        rows = answers[own] if changes else []
        if isinstance(tx, RecordingTx):
            tx.job_transitions += _job_transitions(decided, rows, info)
        generations = {
            uid: int(answers[place][0]["generation"]) for uid, place in batch.opened.items()
        } | {row["pod_uid"]: row["generation"] for row in rows if row["job_id"] is None}
        return Written(
            decisions=tuple(_after(decision, generations) for _, decision in decided),
            beside=tuple(answers[len(batch.statements) :]),
        )

    def _parameters(self, batch: _Batch) -> dict[str, object]:
        return {
            "jobs": _json(batch.jobs),
            "slots": _json(batch.slots),
            "log": _json(batch.log),
            "actor": self._actor,
        }


def _add_job(batch: _Batch, change: JobChange, info: JobInfo | None) -> None:
    job = change.job
    row: dict[str, object] = {
        "job_id": job.job_id,
        "state": job.state.value,
        "verified": job.verified,
        "runner_name": job.runner_name,
        "conclusion": job.conclusion,
        "recheck_in": change.recheck_in,
    }
    if change.source is None and info is not None:
        more = msgspec.structs.asdict(info) | {"labels": list(info.labels)}
        batch.insert(SQL.job_insert, {"tenant": job.tenant, **row, **more})
    else:
        batch.jobs.append(row)
    batch.log_entry(
        subject="job",
        job_id=job.job_id,
        source="" if change.source is None else change.source.value,
        target=job.state.value,
        reason=change.reason.slug,
        detail=change.reason.fields,
    )


def _add_slot(batch: _Batch, change: SlotChange) -> None:
    slot = change.slot
    if change.reason.code is Why.HEARTBEAT and slot.generation == change.before:
        beat = {"pod_uid": slot.pod_uid, "before": change.before, "wait": change.wait}
        batch.statements.append((SQL.slot_beat, beat))
        return
    if change.before is None:
        opened: dict[str, object] = {
            "pod_uid": slot.pod_uid,
            "pod_name": slot.pod_name,
            "pool": slot.pool,
            "state": slot.state.value,
            "wait": change.wait,
        }
        batch.opened[slot.pod_uid] = batch.insert(SQL.slot_insert, opened)
    else:
        batch.slots.append(_row(change))
    if slot.generation != change.before:
        batch.log_entry(
            subject="slot",
            pod_uid=slot.pod_uid,
            job_id=slot.executing_job or slot.intended_job,
            source="" if change.source is None else change.source.value,
            target=slot.state.value,
            reason=change.reason.slug,
            detail=change.reason.fields,
        )


def _job_transitions(
    decided: Sequence[tuple[View, Decision]], rows: list[Row], info: JobInfo | None
) -> list[JobTransition]:
    """The job transitions for observers, each with the pool of the slot that holds or held the job."""
    written = {row["job_id"]: row for row in rows if row["job_id"] is not None}
    first: Row = {"labels": () if info is None else info.labels, "queued": 0.0}
    transitions = []
    for view, decision in decided:
        near = (*(each.slot for each in decision.slots), view.slot, view.holder)
        for change in decision.jobs:
            job_id = change.job.job_id
            row = written.get(job_id, first)
            pools = (
                slot.pool
                for slot in near
                if slot and job_id in (slot.executing_job, slot.intended_job)
            )
            transitions.append(
                JobTransition(
                    change=change,
                    pool=next(pools, ""),
                    labels=tuple(row["labels"]),
                    queued=row["queued"],
                    claimed=row.get("claimed"),
                    started=row.get("started"),
                    swapped=_is_swapped(view, change.job),
                )
            )
    return transitions


def _is_swapped(view: View, job: Job) -> bool:
    """Whether the job runs, or ran, on a slot that was not meant for it."""
    return (
        job.state in (JobState.RUNNING, JobState.DONE)
        and view.slot is not None
        and job.job_id not in (view.slot.intended_job, view.slot.executing_job)
    )


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
