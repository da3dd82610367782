"""Reads jobs for the REST API, and requests cancellations and re-runs from GitHub.

This module changes no job. GitHub decides on the request and reports the result by webhook.

Invariants:
- GitHub cancels whole runs. If the run has other unfinished jobs, nothing is cancelled until the request confirms it
  (`others`). They are counted by GitHub's list, because a run may have jobs that runyard does not serve.
- Every request about a known job is logged and recorded in the audit trail with its actor and outcome; also when GitHub
  did not answer, because GitHub may have done it all the same.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.rest.tenants import SQL
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError, NotAllowed
from runyard.github.scope import Scope, repository
from runyard.telemetry.log import Logger
from runyard.wire.reasons import Reason, logged, render
from runyard.wire.reasons_dispatch import REQUESTS, TRANSITIONS, TRUST, Requested
from runyard.wire.rest import Asked, Job, JobDetail, Jobs, Question, Slot, Transition

_NEWEST = (1 << 63) - 1
SLOTS_SHOWN = 5
TRANSITIONS_SHOWN = 200
QUESTIONS_SHOWN = 20
_LONGEST = 500  # of GitHub's message


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The request was not sent to GitHub, or GitHub refused it."""

    reason: Reason
    others: tuple[int, ...] = ()


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; an empty field matches all."""

    state: str = ""
    tenant: str = ""
    repository: str = ""


class JobService:
    """Reads jobs and sends requests about them to GitHub."""

    def __init__(self, database: Database, *, github: GitHub, log: Logger) -> None:
        self._database = database
        self._github = github
        self._log = log

    async def page(self, which: Filter, *, before: int, limit: int) -> Jobs:
        """Return a page of jobs, newest first."""
        any_state = which.state in ("", "done")
        statement = SQL.jobs_page if any_state else SQL.jobs_unfinished_page

        async def work(tx: Tx) -> list[Row]:
            return await tx.all(
                statement,
                before=before or _NEWEST,
                limit=limit + 1,
                **msgspec.structs.asdict(which),
            )

        rows = await self._database.transact(work, name="jobs")
        items = tuple(_job(row) for row in rows[:limit])
        return Jobs(items=items, next=items[-1].job if len(rows) > limit else 0)

    async def show(self, number: int) -> JobDetail | None:
        """Return one job with its slots, requests and transitions; None if it is unknown."""

        async def work(tx: Tx) -> JobDetail | None:
            row = await tx.one(SQL.job_of, job=number)
            if row is None:
                return None
            job = _job(row)
            slots = await tx.all(
                SQL.slots_of_job,
                job=number,
                tenant=job.tenant,
                runner_name=job.runner_name,
                limit=SLOTS_SHOWN,
            )
            log = await tx.all(
                SQL.transitions_of_job,
                job=number,
                pod_uids=[slot["pod_uid"] for slot in slots],
                limit=TRANSITIONS_SHOWN,
            )
            requests = await tx.all(SQL.requests_of_job, job=number, limit=QUESTIONS_SHOWN)
            return JobDetail(
                job=job,
                asked=tuple(_question(each) for each in requests),
                slots=tuple(_slot(slot) for slot in slots),
                transitions=tuple(_transition(entry) for entry in reversed(log)),
            )

        return await self._database.transact(work, name="job")

    async def cancel(self, number: int, *, others: bool, actor: str) -> Asked | Refusal:
        """Ask GitHub to cancel the run of a job; raises `GitHubError`."""

        async def ask(row: Row) -> Asked | Refusal:
            return await self._cancel(row, others=others)

        return await self._recorded("cancel", number, actor, ask)

    async def retry(self, number: int, *, actor: str) -> Asked | Refusal:
        """Ask GitHub to re-run a job, as a new job; raises `GitHubError`."""
        return await self._recorded("retry", number, actor, self._retry)

    async def _cancel(self, row: Row, *, others: bool) -> Asked | Refusal:
        if row["state"] == "done":
            return Refusal(reason=Requested.JOB_OVER.because())
        if not row["run_id"]:
            return Refusal(reason=Requested.RUN_UNKNOWN.because())
        scope, number = _scope(row), row["job_id"]
        other_jobs = await self._other_jobs(scope, row["run_id"], number)
        if other_jobs and not others:
            return Refusal(reason=Requested.RUN_HAS_OTHERS.because(), others=other_jobs)
        taken = await self._github.cancel_run(scope, row["run_id"])
        if not taken:
            return Refusal(reason=Requested.JOB_OVER.because())
        return _asked(row, Requested.CANCELLING, others=other_jobs)

    async def _retry(self, row: Row) -> Asked | Refusal:
        if row["state"] != "done":
            return Refusal(reason=Requested.JOB_NOT_OVER.because())
        try:
            await self._github.rerun_job(_scope(row), row["job_id"])
        except NotAllowed as error:
            return Refusal(reason=Requested.RERUN_REFUSED.because(message=str(error)[:_LONGEST]))
        return _asked(row, Requested.RERUN_QUEUED)

    async def _recorded(
        self,
        what: str,
        number: int,
        actor: str,
        ask: Callable[[Row], Awaitable[Asked | Refusal]],
    ) -> Asked | Refusal:
        row = await self._read_job(number)
        if row is None:
            return Refusal(reason=Requested.JOB_UNKNOWN.because())
        try:
            result = await ask(row)
        except GitHubError as error:
            failed = Requested.GITHUB_FAILED.because(message=str(error)[:_LONGEST])
            await self._record(row, what, actor, failed)
            raise
        await self._record(row, what, actor, _outcome(result))
        return result

    async def _record(self, row: Row, what: str, actor: str, outcome: Reason) -> None:
        """Record a request in the log, then in the audit trail: the database may be unavailable."""
        number = row["job_id"]
        self._log.info("job request", what=what, job=number, actor=actor, **logged(outcome))

        async def work(tx: Tx) -> None:
            await tx.run(
                SQL.change_append,
                tenant=row["tenant"],
                job=number,
                field=what,
                source="",
                target=outcome.slug,
                detail=msgspec.json.encode(outcome.fields).decode(),
                why="",
                actor=actor,
            )

        await self._database.transact(work, name="job request")

    async def _read_job(self, number: int) -> Row | None:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_installation, job=number)

        return await self._database.transact(work, name="job installation")

    async def _other_jobs(self, scope: Scope, run_id: int, number: int) -> tuple[int, ...]:
        """Return the other unfinished jobs of the run."""
        jobs = await self._github.run_jobs(scope, run_id)
        return tuple(job.id for job in jobs if job.id != number and job.status != "completed")


def _scope(row: Row) -> Scope:
    return repository(row["repository"], installation_id=row["installation_id"])


def _outcome(result: Asked | Refusal) -> Reason:
    return result.reason if isinstance(result, Refusal) else REQUESTS.read(result.outcome)


def _asked(row: Row, outcome: Requested, *, others: tuple[int, ...] = ()) -> Asked:
    return Asked(
        job=row["job_id"],
        run_id=row["run_id"],
        others=others,
        outcome=outcome.value,
        text=render(outcome.because()),
    )


def _question(row: Row) -> Question:
    return Question(**row, text=REQUESTS.text(row["outcome"], row["detail"]))


def _slot(row: Row) -> Slot:
    closed = row["close_reason"]
    return Slot(**row, close_text=TRANSITIONS.text(closed) if closed else "")


def _transition(row: Row) -> Transition:
    return Transition(**row, text=TRANSITIONS.text(row["reason"], row["detail"]))


def _job(row: Row) -> Job:
    text = TRUST.text(row["trust"]) if row["trust"] else ""
    return Job(**{**row, "labels": tuple(row["labels"]), "trust_text": text})
