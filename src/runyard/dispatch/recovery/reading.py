"""Asking GitHub about jobs: before a second offer, and now and then about those that run.

One rule against lost webhooks, cancelled jobs and loops around a poisoned one: a job that was given
back is not offered again until GitHub has said that it is still queued.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import JobEnded, JobFact, JobStarted, JobStillQueued
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiting import Waiters
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import repository
from runyard.github.views import JobView
from runyard.telemetry.log import Logger

_LATER = 30.0
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
        log: Logger,
        settings: Settings,
    ) -> None:
        self._database = database
        self._store = store
        self._github = github
        self._waiters = waiters
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """Read the jobs that are due for a look."""

        async def due(tx: Tx) -> list[Row]:
            return await tx.all(SQL.jobs_to_read, limit=self._settings.read_limit)

        for row in await self._database.transact(due, name="jobs to read"):
            if not await self._read(row):
                await self._later(row["job_id"])

    async def ask(self, job_id: int) -> bool:
        """Ask about one job now; False if GitHub could not be asked or the job is unknown."""

        async def where(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_where, job_id=job_id)

        row = await self._database.transact(where, name="where is the job")
        return row is not None and await self._read(row)

    async def _read(self, row: Row) -> bool:
        scope = repository(row["repository"], installation_id=row["installation_id"])
        try:
            view = await self._github.get_job(scope, row["job_id"])
            if view is None:
                # "Not found" is also what a lost permission looks like. It counts only if something else in
                # that repository can be read now.
                await self._github.list_queued_jobs(scope)
        except GitHubError as error:
            self._log.info("job not read", job=row["job_id"], error=str(error))
            return False
        if view is not None and view.status not in _KNOWN:
            return False  # not in the queue yet: somebody has to approve it first
        fact = to_fact(
            view, job_id=row["job_id"], tenant=row["tenant"], last_runner=row["runner_name"]
        )
        await self._store.job_read(fact, row["tenant"], look_at=row["look_at"])
        if isinstance(fact, JobStillQueued):
            self._waiters.bell.set()
        return True

    async def _later(self, job_id: int) -> None:
        async def work(tx: Tx) -> int:
            return await tx.run(SQL.job_look_later, job_id=job_id, look_in=_LATER)

        await self._database.transact(work, name="look later")


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
