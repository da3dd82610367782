"""Jobs as people see them, and what GitHub is asked about them: to cancel a run, to run a job once more.

Nothing of a job is changed here. GitHub decides, and tells what became of it by webhook, like of everything else.

Invariants:
- GitHub cancels whole runs. Where other jobs would end with the one that is meant, nobody is asked before the
  person has said so; they are counted by GitHub's own list, because a run may have jobs that are not ours.
- Who asked what about a job that is known, and what became of it, is in the log and in the audit trail; also when
  GitHub did not answer, because it may have done it all the same.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.people.tenants import SQL
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError, NotAllowed
from runyard.github.scope import Scope, repository
from runyard.telemetry.log import Logger
from runyard.wire.people import Asked, Job, JobDetail, Jobs, Question, Slot, Transition

_NEWEST = (1 << 63) - 1
SLOTS_SHOWN = 5
TRANSITIONS_SHOWN = 200
QUESTIONS_SHOWN = 20
_LONGEST = 500  # of an outcome


class No(StrEnum):
    """Why GitHub was not asked, or said no."""

    UNKNOWN_JOB = "there is no such job"
    UNKNOWN_RUN = "its run is not known"
    OVER = "it is over already"
    NOT_OVER = "it is not over yet"
    NOT_NOW = "GitHub does not allow it now"  # its run is not over, is too old, or we may not
    OTHERS = "its run has other jobs"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was asked of GitHub."""

    no: No
    others: tuple[int, ...] = ()
    told: str = ""  # GitHub's own words


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; empty is any."""

    state: str = ""
    tenant: str = ""
    repository: str = ""


class Work:
    """Reads jobs, and asks GitHub about them."""

    def __init__(self, database: Database, *, github: GitHub, log: Logger) -> None:
        self._database = database
        self._github = github
        self._log = log

    async def page(self, which: Filter, *, before: int, limit: int) -> Jobs:
        """Some jobs, newest first."""
        any_state = which.state in ("", "done")
        statement = SQL.jobs_page if any_state else SQL.jobs_alive_page

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
        """One job, the slots that it was meant for, and what happened."""

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
            asked = await tx.all(SQL.asked_of_job, job=number, limit=QUESTIONS_SHOWN)
            return JobDetail(
                job=job,
                asked=tuple(Question(**each) for each in asked),
                slots=tuple(Slot(**slot) for slot in slots),
                transitions=tuple(Transition(**entry) for entry in reversed(log)),
            )

        return await self._database.transact(work, name="job")

    async def cancel(self, number: int, *, others: bool, actor: str) -> Asked | Refusal:
        """Ask GitHub to cancel the run of a job; raises `GitHubError`."""

        async def ask(row: Row) -> Asked | Refusal:
            return await self._cancel(row, others=others)

        return await self._noted("cancel", number, actor, ask)

    async def retry(self, number: int, *, actor: str) -> Asked | Refusal:
        """Ask GitHub to run a job once more, as a new job; raises `GitHubError`."""
        return await self._noted("retry", number, actor, self._retry)

    async def _cancel(self, row: Row, *, others: bool) -> Asked | Refusal:
        if row["state"] == "done":
            return Refusal(no=No.OVER)
        if not row["run_id"]:
            return Refusal(no=No.UNKNOWN_RUN)
        scope, number = _scope(row), row["job_id"]
        beside = await self._beside(scope, row["run_id"], number)
        if beside and not others:
            return Refusal(no=No.OTHERS, others=beside)
        taken = await self._github.cancel_run(scope, row["run_id"])
        if not taken:
            return Refusal(no=No.OVER)
        return Asked(job=number, run_id=row["run_id"], others=beside, outcome="cancelling")

    async def _retry(self, row: Row) -> Asked | Refusal:
        number = row["job_id"]
        if row["state"] != "done":
            return Refusal(no=No.NOT_OVER)
        try:
            await self._github.rerun_job(_scope(row), number)
        except NotAllowed as error:
            return Refusal(no=No.NOT_NOW, told=str(error))
        return Asked(job=number, run_id=row["run_id"], outcome="queued again, under a new number")

    async def _noted(
        self,
        what: str,
        number: int,
        actor: str,
        ask: Callable[[Row], Awaitable[Asked | Refusal]],
    ) -> Asked | Refusal:
        row = await self._where(number)
        if row is None:
            return Refusal(no=No.UNKNOWN_JOB)
        try:
            asked = await ask(row)
        except GitHubError as error:
            await self._note(row, what, actor, f"not known, GitHub said no or nothing: {error}")
            raise
        await self._note(row, what, actor, _outcome(asked))
        return asked

    async def _note(self, row: Row, what: str, actor: str, outcome: str) -> None:
        """Into the log first: the trail may be out of reach."""
        number, outcome = row["job_id"], outcome[:_LONGEST]
        self._log.info("asked by people", what=what, job=number, actor=actor, outcome=outcome)

        async def work(tx: Tx) -> None:
            await tx.run(
                SQL.change_append,
                tenant=row["tenant"],
                job=number,
                field=what,
                source="",
                target=outcome,
                why="",
                actor=actor,
            )

        await self._database.transact(work, name="job asked")

    async def _where(self, number: int) -> Row | None:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_installation, job=number)

        return await self._database.transact(work, name="job where")

    async def _beside(self, scope: Scope, run_id: int, number: int) -> tuple[int, ...]:
        """Other jobs of the run that are not over."""
        jobs = await self._github.run_jobs(scope, run_id)
        return tuple(job.id for job in jobs if job.id != number and job.status != "completed")


def _scope(row: Row) -> Scope:
    return repository(row["repository"], installation_id=row["installation_id"])


def _outcome(asked: Asked | Refusal) -> str:
    if isinstance(asked, Asked):
        return asked.outcome
    return f"refused: {asked.told or asked.no.value}"


def _job(row: Row) -> Job:
    return Job(**{**row, "labels": tuple(row["labels"])})
