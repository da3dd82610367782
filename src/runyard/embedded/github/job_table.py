"""Holds all jobs and the runs that they belong to. Nothing is ever removed.

Invariant: a run is open exactly as long as one of its jobs has not ended.
"""

from collections.abc import Mapping
from types import MappingProxyType

from runyard.embedded.github.model import Job, PracticeError, Repo, Run


class JobTable:
    """Jobs by id, runs by repository; both in the order in which they were added."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._runs: dict[str, dict[int, Run]] = {}
        self._open: dict[str, dict[int, Run]] = {}

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs ever, by id."""
        return MappingProxyType(self._jobs)

    @property
    def last_id(self) -> int:
        """The id of the newest job, the largest; 0 if there is none."""
        return next(reversed(self._jobs), 0)

    def job(self, job_id: int) -> Job:
        """One job; raises `PracticeError` if there is none."""
        job = self._jobs.get(job_id)
        if job is None:
            raise PracticeError(f"no job {job_id}")
        return job

    def runs_of(self, repo: Repo, *, open_only: bool = False) -> Mapping[int, Run]:
        """Runs of a repository, oldest first."""
        runs = self._open if open_only else self._runs
        return MappingProxyType(runs.get(repo.full_name, {}))

    def run(self, run_id: int) -> Run | None:
        """A run of any repository."""
        return next((runs[run_id] for runs in self._runs.values() if run_id in runs), None)

    def add_run(self, run: Run) -> Run:
        """Adds a run; its jobs follow."""
        self._runs.setdefault(run.repo.full_name, {})[run.id] = run
        return run

    def add_job(self, job: Job) -> None:
        """Adds a job to a run of this table."""
        run = self._runs[job.repo.full_name][job.run_id]
        self._jobs[job.id] = run.jobs[job.id] = job
        if job.status != "completed":
            self._open.setdefault(job.repo.full_name, {})[run.id] = run

    def job_ended(self, job: Job) -> None:
        """Closes the job's run if this was its last open job."""
        run = self._runs[job.repo.full_name][job.run_id]
        if run.status == "completed":
            self._open[job.repo.full_name].pop(run.id, None)
