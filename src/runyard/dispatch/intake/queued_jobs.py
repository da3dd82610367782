"""Finds queued jobs at GitHub that no event reported, a few repositories at a time.

If GitHub never sent an event, or deleted it before the server came back, its job would stay queued for ever; listing
the queued jobs finds it. That costs some calls per repository, so it runs slowly, at the lowest priority of the rate
budget, and its position is stored.

With a token for one repository and no webhook, this is the only intake: then every state of its jobs is taken, not
only queued.
"""

from runyard.db.contract import CommitUnknown, Database, DatabaseError, Row, Tx, Unavailable
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, repository
from runyard.github.views import JobView
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.reasons_dispatch import DeliveryOutcome

_POSITION = "queued jobs"
_STATES = {"queued": "queued", "running": "in_progress"}
_READ_LIMIT = 20  # jobs that are in no open run any more, read one by one


class QueuedJobs:
    """Lists the queued jobs of repositories."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        intake: Intake,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._github = github
        self._database = database
        self._intake = intake
        self._meter = meter
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """Read the next few known repositories, or the one of the token."""
        if self._github.only is not None:
            await self.read_repository(self._github.only)
            return
        for row in await self._database.transact(self._next_repositories, name="repositories"):
            scope = repository(row["repository"], installation_id=row["installation_id"])
            try:
                await self.read_repository(scope)
            except GitHubError as error:
                self._log.info("repository not read", repository=str(scope), error=str(error))
            await self._save_position(row["repository"])

    async def read_repository(self, repo: Scope) -> int:
        """Apply the queued jobs of a repository that are unknown here; returns how many there were."""
        waiting = await self._github.list_queued_jobs(repo, purpose="audit")
        jobs = {job.id: job for job in waiting}

        async def unknown(tx: Tx) -> list[Row]:
            return await tx.all(SQL.jobs_unknown, job_ids=list(jobs))

        rows = await self._database.transact(unknown, name="jobs unknown") if jobs else []
        for row in rows:
            if await self._apply(repo, jobs[row["job_id"]]) is DeliveryOutcome.APPLIED:
                self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="missed_job")
                self._log.warning("queued job without an event", job=row["job_id"])
        return len(rows)

    async def _apply(self, repo: Scope, job: JobView) -> DeliveryOutcome | None:
        """Apply one job; None if the database rejects it, which does not block the others."""
        try:
            return (await self._intake.apply_listed(repo, job)).outcome
        except (Unavailable, CommitUnknown):
            raise
        except DatabaseError as error:
            self._log.error("job refused", job=job.id, error=str(error))
            return None

    async def sync_repository(self, repo: Scope) -> None:
        """Apply every change of a repository's jobs; used instead of events."""
        views = {job.id: job for job in await self._github.list_open_jobs(repo, purpose="pull")}

        async def open_jobs(tx: Tx) -> list[Row]:
            name = f"{repo.owner}/{repo.repo}"
            return await tx.all(SQL.jobs_open_of, repository=name, limit=1000)

        known = {
            row["job_id"]: _STATES.get(row["state"], "")
            for row in await self._database.transact(open_jobs, name="open jobs")
        }
        gone = [job_id for job_id in known if job_id not in views][:_READ_LIMIT]
        for job_id in gone:
            view = await self._github.get_job(repo, job_id, purpose="pull")
            if view is not None:
                views[job_id] = view
        for job in views.values():
            if self._is_new(job, known.get(job.id)):
                await self._apply(repo, job)

    def _is_new(self, job: JobView, known: str | None) -> bool:
        """Whether GitHub's state of a job is news; an unknown job that is already completed is not."""
        if known is None:
            return job.status != "completed"
        return job.status not in (known, "queued")

    async def _next_repositories(self, tx: Tx) -> list[Row]:
        row = await tx.one(SQL.cursor_read, name=_POSITION)
        after = "" if row is None else str(row["value"])
        limit = self._settings.audit_repositories
        found = await tx.all(SQL.repositories_after, after=after, limit=limit)
        if not found and after:
            return await tx.all(SQL.repositories_after, after="", limit=limit)
        return found

    async def _save_position(self, position: str) -> None:
        async def write(tx: Tx) -> int:
            return await tx.run(SQL.cursor_write, name=_POSITION, value=position)

        await self._database.transact(write, name="repository read")
