"""Reads jobs at GitHub: before a second offer, and periodically while they run.

One rule covers lost webhooks, cancelled jobs and loops around a failing one: a job that was requeued is not offered
again until a read at GitHub finds it still queued.

A job that GitHub does not show (its repository was deleted, a permission was revoked, the App was uninstalled) is not
considered ended: it may come back, and is read less and less often. But GitHub keeps no job queued for longer than a
day; one that is older and not visible has ended.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import JobEnded, JobFact, JobStarted, JobStillQueued
from runyard.dispatch.machine.values import JobState
from runyard.dispatch.modes import Reconciler
from runyard.dispatch.plans.kinds import of_job
from runyard.dispatch.recovery.report import Finding, ReconcilerReport
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiters import Waiters
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError, hidden
from runyard.github.scope import repository
from runyard.github.views import JobView
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.reasons_dispatch import Found, Would

_LATER = 30.0
_LONGEST = 900.0  # between two reads of a job that GitHub does not show
_KNOWN = ("queued", "in_progress", "completed")


class Reader:
    """Reads jobs at GitHub and applies the answers."""

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
        self._running = ReconcilerReport(
            Reconciler.ORPHANED_RUNNERS, modes=modes, meter=meter, log=log
        )
        self._queued = ReconcilerReport(
            Reconciler.STALE_QUEUED_JOBS, modes=modes, meter=meter, log=log
        )

    async def step(self) -> None:
        """Read jobs before they are offered again, and running jobs that are due."""

        async def due(tx: Tx) -> list[Row]:
            return await tx.all(
                SQL.jobs_to_read, limit=self._settings.read_limit, running=not self._running.off
            )

        for row in await self._database.transact(due, name="jobs to read"):
            if row["state"] == JobState.RUNNING and self._running.dry:
                self._running.would(finding(row), Would.READ_JOB)
                await self._defer(row["job_id"])
            elif wait := await self._read(row):
                await self._defer(row["job_id"], wait)

    async def step_stale(self) -> None:
        """Read the jobs that have been waiting for long: GitHub may have dropped them."""
        if self._queued.off:
            return

        async def due(tx: Tx) -> list[Row]:
            return await tx.all(SQL.jobs_stale, limit=self._settings.stale_queued_limit)

        for row in await self._database.transact(due, name="stale jobs"):
            if self._queued.dry:
                self._queued.would(finding(row), Would.READ_JOB)
                await self._defer(row["job_id"])
            elif wait := await self._read(row):
                await self._defer(row["job_id"], wait)

    async def read_job(self, job_id: int) -> bool:
        """Read one job now; False if GitHub did not answer or the job is unknown."""

        async def read(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_to_read, job_id=job_id)

        row = await self._database.transact(read, name="job to read")
        return row is not None and not await self._read(row)

    async def _read(self, row: Row) -> float:
        """Read one job and apply the answer; without one, return the seconds until the next try."""
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
            if not self._expired(row):
                return min(_LONGEST, max(_LATER, float(row["age"]) / 10))
            await self._apply(row, _over(row, "stale"))
            return 0.0
        if view is not None and view.status not in _KNOWN:
            return _LATER  # not queued yet: it waits for an approval
        fact = to_fact(
            view, job_id=row["job_id"], tenant=row["tenant"], last_runner=row["runner_name"]
        )
        await self._apply(row, fact)
        return 0.0

    async def _apply(self, row: Row, fact: JobFact) -> None:
        decision = await self._store.apply_job_read(fact, row["tenant"], look_at=row["look_at"])
        if isinstance(fact, JobStillQueued):
            self._waiters.notify_matchers()
        source = JobState(row["state"])
        if kind := of_job(source, fact, decision):
            report = self._running if source is JobState.RUNNING else self._queued
            report.healed(finding(row, Found.JOB_END_MISSED), kind=kind)

    def _expired(self, row: Row) -> bool:
        """Whether a job has been queued for longer than GitHub keeps one, and may be closed for that."""
        old = row["age"] >= self._settings.stale_queued_after
        return (
            old and row["state"] == JobState.QUEUED and not (self._queued.off or self._queued.dry)
        )

    async def _defer(self, job_id: int, wait: float = _LATER) -> None:
        async def work(tx: Tx) -> int:
            return await tx.run(SQL.job_recheck_later, job_id=job_id, recheck_in=wait)

        await self._database.transact(work, name="job deferred")


def finding(row: Row, found: Found = Found.JOB_UNCHECKED) -> Finding:
    """Build the finding for a job."""
    reason = found.because(state=str(row["state"]))
    return Finding(pod=f"job {row['job_id']}", reason=reason, age=row["age"])


def _over(row: Row, conclusion: str) -> JobEnded:
    return JobEnded(
        job_id=row["job_id"],
        tenant=row["tenant"],
        runner_name=row["runner_name"],
        conclusion=conclusion,
    )


def to_fact(view: JobView | None, *, job_id: int, tenant: str, last_runner: str = "") -> JobFact:
    """Convert GitHub's answer to a fact. A job that GitHub does not know (any more) has ended."""
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
