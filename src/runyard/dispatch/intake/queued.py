"""Jobs that wait at GitHub and that no event told us of: some repositories each time, one after the other.

Deliveries are the quick way and this is the sure one. An event that GitHub never made, or forgot before we came
back, leaves a job that waits for ever; here it is found by asking what waits. It costs some calls a repository, so
it goes slowly, from the least urgent part of the budget, and its position outlives a restart.

With a token for one repository and no webhook there, this is the only way: then all that is said of its jobs
is taken, not just what waits.
"""

from runyard.db.contract import CommitUnknown, Database, DatabaseError, Row, Tx, Unavailable
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, repository
from runyard.github.views import JobView
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_POSITION = "queued jobs"
_STATES = {"queued": "queued", "running": "in_progress"}
_READ_LIMIT = 20  # jobs that are in no open run any more, asked about one by one


class QueuedJobs:
    """Asks repositories what waits there."""

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
        """Look at the next few repositories that we know of, or that the token is for."""
        if self._github.only is not None:
            await self.look(self._github.only)
            return
        for row in await self._database.transact(self._some, name="repositories"):
            scope = repository(row["repository"], installation_id=row["installation_id"])
            try:
                await self.look(scope)
            except GitHubError as error:
                self._log.info("repository not read", repository=str(scope), error=str(error))
            await self._remember(row["repository"])

    async def look(self, repo: Scope) -> int:
        """Apply what waits in a repository and is unknown here; returns how many jobs that were."""
        waiting = await self._github.list_queued_jobs(repo, purpose="audit")
        jobs = {job.id: job for job in waiting}

        async def unknown(tx: Tx) -> list[Row]:
            return await tx.all(SQL.jobs_unknown, job_ids=list(jobs))

        rows = await self._database.transact(unknown, name="jobs unknown") if jobs else []
        for row in rows:
            if await self._found(repo, jobs[row["job_id"]]) == "applied":
                self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="missed_job")
                self._log.warning("job found that no event told of", job=row["job_id"])
        return len(rows)

    async def _found(self, repo: Scope, job: JobView) -> str:
        """Apply one job; one that the database refuses does not hold up the others."""
        try:
            return (await self._intake.found(repo, job)).outcome
        except (Unavailable, CommitUnknown):
            raise
        except DatabaseError as error:
            self._log.error("job refused", job=job.id, error=str(error))
            return "refused"

    async def follow(self, repo: Scope) -> None:
        """Take everything that a repository says of its jobs: there are no events that would."""
        views = {job.id: job for job in await self._github.list_open_jobs(repo, purpose="pull")}

        async def ours(tx: Tx) -> list[Row]:
            name = f"{repo.owner}/{repo.repo}"
            return await tx.all(SQL.jobs_open_of, repository=name, limit=1000)

        held = {
            row["job_id"]: _STATES.get(row["state"], "")
            for row in await self._database.transact(ours, name="open jobs")
        }
        gone = [job_id for job_id in held if job_id not in views][:_READ_LIMIT]
        for job_id in gone:
            view = await self._github.get_job(repo, job_id, purpose="pull")
            if view is not None:
                views[job_id] = view
        for job in views.values():
            if self._news(job, held.get(job.id)):
                await self._found(repo, job)

    def _news(self, job: JobView, held: str | None) -> bool:
        """Whether this is something that we did not know; what was over before we ever heard of it is not."""
        if held is None:
            return job.status != "completed"
        return job.status not in (held, "queued")

    async def _some(self, tx: Tx) -> list[Row]:
        row = await tx.one(SQL.cursor_read, name=_POSITION)
        after = "" if row is None else str(row["value"])
        limit = self._settings.audit_repositories
        found = await tx.all(SQL.repositories_after, after=after, limit=limit)
        if not found and after:
            return await tx.all(SQL.repositories_after, after="", limit=limit)
        return found

    async def _remember(self, position: str) -> None:
        async def write(tx: Tx) -> int:
            return await tx.run(SQL.cursor_write, name=_POSITION, value=position)

        await self._database.transact(write, name="repository looked at")
