"""Asking GitHub about jobs: before a second offer, and now and then about those that run.

One rule against lost webhooks, cancelled jobs and loops around a poisoned one: a job that was given
back is not offered again until GitHub has said that it is still queued.

What GitHub hides from us (a repository that was deleted, a permission that was taken, an App that was uninstalled) is
not over for that: it may come back, and is asked for less and less often. But GitHub itself keeps no job in its queue
for longer than a day; one that is older and cannot be seen is over, whatever became of it.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import JobEnded, JobFact, JobStarted, JobStillQueued
from runyard.dispatch.machine.values import JobState
from runyard.dispatch.plans.kinds import of_job
from runyard.dispatch.recovery.modes import Reconciler
from runyard.dispatch.recovery.reconciling import Desk, Finding
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiting import Waiters
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError, hidden
from runyard.github.scope import repository
from runyard.github.views import JobView
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_LATER = 30.0
_LONGEST = 900.0  # between two looks for what GitHub hides from us
_KNOWN = ("queued", "in_progress", "completed")


class Reader:
    """Reads jobs at GitHub and applies what it hears."""

    def __init__(
        self,
        *,
        database: Database,
        store: Store,
        github: GitHub,
        waiters: Waiters,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._database = database
        self._store = store
        self._github = github
        self._waiters = waiters
        self._log = log
        self._settings = settings
        modes = settings.modes
        self._running = Desk(Reconciler.ORPHANED_RUNNERS, modes=modes, meter=meter, log=log)
        self._queued = Desk(Reconciler.STALE_QUEUED_JOBS, modes=modes, meter=meter, log=log)

    async def step(self) -> None:
        """Read the jobs that must be before they are offered again, and those that run and are due for a look."""

        async def due(tx: Tx) -> list[Row]:
            return await tx.all(
                SQL.jobs_to_read, limit=self._settings.read_limit, running=not self._running.off
            )

        for row in await self._database.transact(due, name="jobs to read"):
            if row["state"] == JobState.RUNNING and self._running.dry:
                self._running.would(finding(row), "ask GitHub about it")
                await self._later(row["job_id"])
            elif wait := await self._read(row):
                await self._later(row["job_id"], wait)

    async def step_stale(self) -> None:
        """Read the jobs that have been waiting for long: GitHub may have forgotten them."""
        if self._queued.off:
            return

        async def due(tx: Tx) -> list[Row]:
            return await tx.all(SQL.jobs_stale, limit=self._settings.stale_queued_limit)

        for row in await self._database.transact(due, name="stale jobs"):
            if self._queued.dry:
                self._queued.would(finding(row), "ask GitHub about it")
                await self._later(row["job_id"])
            elif wait := await self._read(row):
                await self._later(row["job_id"], wait)

    async def ask(self, job_id: int) -> bool:
        """Ask about one job now; False if GitHub could not be asked or the job is unknown."""

        async def where(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_where, job_id=job_id)

        row = await self._database.transact(where, name="where is the job")
        return row is not None and not await self._read(row)

    async def _read(self, row: Row) -> float:
        """Read one job and apply the answer; if there is none, how long to wait before the next try."""
        scope = repository(row["repository"], installation_id=row["installation_id"])
        try:
            view = await self._github.get_job(scope, row["job_id"])
            if view is None:
                # "Not found" is also what a lost permission looks like. It counts only if something else in
                # that repository can be read now.
                await self._github.list_queued_jobs(scope)
        except GitHubError as error:
            self._log.info("job not read", job=row["job_id"], error=str(error))
            if not hidden(error):
                return _LATER
            if not self._outlived(row):
                return min(_LONGEST, max(_LATER, float(row["age"]) / 10))
            await self._apply(row, _over(row, "stale"))
            return 0.0
        if view is not None and view.status not in _KNOWN:
            return _LATER  # not in the queue yet: somebody has to approve it first
        fact = to_fact(
            view, job_id=row["job_id"], tenant=row["tenant"], last_runner=row["runner_name"]
        )
        await self._apply(row, fact)
        return 0.0

    async def _apply(self, row: Row, fact: JobFact) -> None:
        decision = await self._store.job_read(fact, row["tenant"], look_at=row["look_at"])
        if isinstance(fact, JobStillQueued):
            self._waiters.made_work()
        source = JobState(row["state"])
        if kind := of_job(source, fact, decision):
            desk = self._running if source is JobState.RUNNING else self._queued
            desk.healed(finding(row, "over, and its end was not heard of"), kind=kind)

    def _outlived(self, row: Row) -> bool:
        """Has a job waited for longer than GitHub keeps one, and may that be its end?"""
        old = row["age"] >= self._settings.stale_queued_after
        return (
            old and row["state"] == JobState.QUEUED and not (self._queued.off or self._queued.dry)
        )

    async def _later(self, job_id: int, wait: float = _LATER) -> None:
        async def work(tx: Tx) -> int:
            return await tx.run(SQL.job_look_later, job_id=job_id, look_in=wait)

        await self._database.transact(work, name="look later")


def finding(row: Row, reason: str = "not looked at for long") -> Finding:
    """A job as a finding."""
    return Finding(pod=f"job {row['job_id']}", reason=f"{row['state']}: {reason}", age=row["age"])


def _over(row: Row, conclusion: str) -> JobEnded:
    return JobEnded(
        job_id=row["job_id"],
        tenant=row["tenant"],
        runner_name=row["runner_name"],
        conclusion=conclusion,
    )


def to_fact(view: JobView | None, *, job_id: int, tenant: str, last_runner: str = "") -> JobFact:
    """What GitHub's answer means. A job that GitHub does not know (any more) is over, wherever it ran."""
    if view is None:
        return JobEnded(job_id=job_id, tenant=tenant, runner_name=last_runner, conclusion="gone")
    runner = view.runner_name or ""
    if view.status == "completed":
        conclusion = view.conclusion or "unknown"
        return JobEnded(
            job_id=job_id, tenant=tenant, runner_name=runner or last_runner, conclusion=conclusion
        )
    if view.status == "in_progress":
        return JobStarted(job_id=job_id, tenant=tenant, runner_name=runner or last_runner)
    return JobStillQueued(job_id=job_id)
