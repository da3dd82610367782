"""Holds queued jobs that wait for a runner and idle runners that wait for a job, and finds which fit.

Both are grouped by account, in order of arrival. `state` chooses among them.
"""

from runyard.embedded.github.model import Job, Runner


def fits(runner: Runner, job: Job) -> bool:
    """Whether GitHub could give this job to this runner of the same account."""
    return job.wanted <= runner.wanted and (
        runner.scope.startswith("orgs/") or runner.scope == f"repos/{job.repo.full_name.lower()}"
    )


class Waiting:
    """Queued jobs and idle runners, by account."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, Job]] = {}
        self._runners: dict[str, dict[int, Runner]] = {}

    def add_job(self, job: Job) -> None:
        """Adds a job that waits for a runner."""
        self._jobs.setdefault(job.repo.owner.lower(), {})[job.id] = job

    def drop_job(self, job: Job) -> None:
        """Removes a job, if it waits."""
        self._jobs.get(job.repo.owner.lower(), {}).pop(job.id, None)

    def add_runner(self, runner: Runner) -> None:
        """Adds a runner that waits for a job."""
        self._runners.setdefault(runner.account, {})[runner.id] = runner

    def drop_runner(self, runner: Runner) -> None:
        """Removes a runner, if it waits."""
        self._runners.get(runner.account, {}).pop(runner.id, None)

    def jobs_for(self, runner: Runner) -> list[Job]:
        """The jobs that this runner could take."""
        return [job for job in self._jobs.get(runner.account, {}).values() if fits(runner, job)]

    def runners_for(self, job: Job) -> list[Runner]:
        """The runners that could take this job."""
        idle = self._runners.get(job.repo.owner.lower(), {})
        return [runner for runner in idle.values() if fits(runner, job)]
