"""The state of the practice GitHub: jobs are queued, runners connect, and jobs are assigned to runners.

The state is synchronous: after each call everything is consistent. As at GitHub, one thing is not determined: a
job goes to *any* connected idle runner of the organisation or repository whose labels include the job's. The
runner that was minted because of job A may get job B.

Invariants:
- A job is assigned to a runner at most once; an assigned job is never queued again.
- A registration takes one job. When that ends, because the runner reported it or because the runner vanished and
  `lost_after` passed, the registration is removed.
- A JIT configuration opens one session, ever; that of a removed registration opens none. A runner program that
  names its start (`instance`) is treated as GitHub treats it: the same start may return to its session and
  its job, also after it was given up as lost; another start is refused while the first is connected, replaces
  it if that vanished before it had a job, and is refused for good once it had one.
- After each call no queued job is left that a connected idle runner could take.
"""

import random
from collections.abc import Callable, Iterable, Mapping

from runyard.clock import Clock
from runyard.embedded.github.accounts import Accounts
from runyard.embedded.github.changes import Touch, ignored, nothing
from runyard.embedded.github.jit import encode_jit
from runyard.embedded.github.job_table import JobTable
from runyard.embedded.github.model import (
    CONCLUSIONS,
    AccountKind,
    HistoryEntry,
    Installation,
    Job,
    PracticeError,
    Refused,
    Repo,
    Run,
    Runner,
)
from runyard.embedded.github.offline_timers import OfflineTimers
from runyard.embedded.github.registry import Registry
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.waiting import Waiting

# Larger than 32 bits, as GitHub's ids are.
_FIRST_JOB = 40_000_000_001
_FIRST_RUN = 16_000_000_001


class PracticeState:
    """The state behind the API."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        settings: PracticeSettings,
        emit: Callable[[Job, str], None],
        trace: Callable[[str, dict[str, object]], None],
        touch: Touch = ignored,
        settled: Callable[[], object] = nothing,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._emit = emit
        self._trace = trace
        self.touch = touch
        self.settled = settled
        self._accounts = Accounts()
        self._registry = Registry()
        self._job_table = JobTable()
        self._sessions: dict[int, RunnerSession] = {}
        self._waiting = Waiting()
        self._offline_timers = OfflineTimers(clock=clock, settings=settings)
        self.last_id = 1000 + settings.epoch

    # Installations and repositories

    def install(self, account: str, *, kind: AccountKind = "Organization") -> Installation:
        """Installs the App at an account."""
        if self._accounts.named(account) is not None:
            raise PracticeError(f"already installed at {account}")
        installation = Installation(
            id=self._id(),
            account=account,
            account_id=self._id(),
            kind=kind,
            created_at=self._clock.now(),
        )
        self._accounts.add(installation)
        self.touch("installation", installation.id)
        return installation

    def add_repo(self, full_name: str) -> Repo:
        """Gives the App access to a repository; the App must be installed at its account."""
        owner, _, name = full_name.partition("/")
        installation = self._accounts.named(owner)
        if installation is None or not name:
            raise PracticeError(f"the App is not installed at the owner of {full_name!r}")
        repo = Repo(id=self._id(), owner=installation.account, name=name)
        self.touch("installation", installation.id)
        return installation.repos.setdefault(name.lower(), repo)

    # Reading

    @property
    def installations(self) -> dict[int, Installation]:
        """Where the App is installed, by the installation's id."""
        return self._accounts.installations

    def account(self, name: str) -> Installation | None:
        """The installation at an account, by any spelling of its name."""
        return self._accounts.named(name)

    def repo(self, owner: str, name: str) -> Repo | None:
        """A repository by any spelling of its name."""
        return self._accounts.repo(owner, name)

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs ever, by id."""
        return self._job_table.jobs

    def job(self, job_id: int) -> Job:
        """One job; raises `PracticeError` if there is none."""
        return self._job_table.job(job_id)

    def runs_of(self, repo: Repo, *, open_only: bool = False) -> Mapping[int, Run]:
        """Runs of a repository, oldest first."""
        return self._job_table.runs_of(repo, open_only=open_only)

    def run(self, run_id: int) -> Run | None:
        """A run of any repository."""
        return self._job_table.run(run_id)

    @property
    def runners(self) -> Mapping[int, Runner]:
        """All registrations that exist, by id."""
        return self._registry.runners

    def runners_of(self, scope: str) -> Mapping[int, Runner]:
        """Registrations of one scope, oldest first."""
        return self._registry.of(scope)

    def runner_named(self, scope: str, name: str) -> Runner | None:
        """The registration of that name in that scope."""
        return self._registry.named(scope, name)

    def session_of(self, runner_id: int) -> RunnerSession | None:
        """The connected session of a registration."""
        return self._sessions.get(runner_id)

    # Jobs

    def queue_job(
        self,
        repo: Repo,
        labels: tuple[str, ...],
        *,
        duration: float | None,
        run_id: int | None,
        waiting: bool,
        name: str = "",
        script: str = "",
        env: tuple[tuple[str, str], ...] = (),
        attempt: int = 1,
    ) -> Job:
        """Adds a job to the queue; a `waiting` job needs `approve` first."""
        run = self._run(repo, run_id)
        job = Job(
            id=self._next_job_id(),
            run_id=run.id,
            repo=repo,
            installation_id=self._accounts.owner(repo).id,
            name=name or f"job-{len(run.jobs) + 1}",
            labels=labels,
            wanted=frozenset(label.lower() for label in labels),
            created_at=self._clock.now(),
            attempt=attempt,
            duration=duration,
            script=script,
            env=env,
            status="waiting" if waiting else "queued",
        )
        self._job_table.add_job(job)
        self._note(job, job.status)
        if not waiting:
            self._offer(job)
        return job

    def approve(self, job_id: int) -> bool:
        """Moves a waiting job into the queue."""
        job = self.job(job_id)
        if job.status != "waiting":
            return False
        job.status = "queued"
        self._note(job, "queued")
        self._offer(job)
        return True

    def cancel_job(self, job_id: int) -> bool:
        """Cancels a job. A queued job ends at once; a running one when its runner ends it or is lost."""
        job = self.job(job_id)
        if job.status == "completed":
            return False
        if job.status == "in_progress":
            job.cancel_requested = True
            self._remember(job, "cancel_requested")
            session = self._sessions.get(job.runner_id or 0)
            if session is not None:
                session.request_cancel()
            return True
        self._waiting.drop_job(job)
        self._complete(job, "cancelled")
        return True

    # Runners

    def register(
        self, scope: str, *, name: str, labels: tuple[str, ...], group_id: int, work_folder: str
    ) -> Runner:
        """Creates an offline ephemeral registration; the name must be free."""
        if self._registry.named(scope, name) is not None:
            raise PracticeError(f"a runner with the name {name} already exists")
        now = self._clock.monotonic()
        runner = Runner(
            id=self._id(),
            name=name,
            scope=scope,
            account=scope.split("/")[1],
            labels=labels,
            wanted=frozenset(label.lower() for label in labels),
            group_id=group_id,
            work_folder=work_folder,
            created_at=self._clock.now(),
            offline_since=now,
        )
        runner.jit = encode_jit(runner, rng=self._rng, public_url=self._settings.public_url)
        self._registry.add(runner)
        self.touch("runner", runner.id)
        self._offline_timers.start(runner)
        self._trace("registered", {"runner": name, "runner_id": runner.id, "scope": scope})
        return runner

    def remove(self, runner: Runner, *, why: str) -> None:
        """Removes a registration and ends its session."""
        self._registry.drop(runner)
        self._waiting.drop_runner(runner)
        runner.online = False
        session = self._sessions.pop(runner.id, None)
        if session is not None:
            session.end()
        self.touch("runner", runner.id)
        self._trace("removed", {"runner": runner.name, "runner_id": runner.id, "why": why})

    def connect(self, jit: str, *, instance: str = "") -> RunnerSession | Refused:
        """Connects a runner with its JIT configuration; `instance` names the start of its program."""
        runner = self._registry.with_jit(jit)
        if runner is None:
            return Refused(reason="unknown")
        session = self._sessions.get(runner.id)
        if runner.jit_used:
            if not instance or not runner.instance:
                return Refused(reason="used")
            if instance == runner.left:
                return Refused(reason="used")
            if instance == runner.instance:
                return session or self._open(runner)
            if session is not None:
                return Refused(reason="conflict")
            if runner.busy:
                return Refused(reason="used")
        runner.instance = instance
        return self._open(runner)

    def _open(self, runner: Runner) -> RunnerSession:
        runner.jit_used = runner.online = True
        runner.offline_since = None
        session = RunnerSession(self, runner)
        self._sessions[runner.id] = session
        self.touch("runner", runner.id)
        self._trace("connected", {"runner": runner.name, "runner_id": runner.id})
        if runner.job_id is not None:
            job = self.jobs[runner.job_id]
            self._remember(job, "runner_back")
            self._assign_again(session, job)
            return session
        queued = self._waiting.jobs_for(runner)
        if queued:
            self._assign(self._rng.choice(queued), runner)
        else:
            self._waiting.add_runner(runner)
        return session

    def finish(self, runner: Runner, conclusion: str) -> bool:
        """Takes the runner's report of its job's end; `False` if its session is over."""
        if conclusion not in CONCLUSIONS:
            raise PracticeError(f"unknown conclusion {conclusion}")
        if runner.id not in self._sessions or runner.job_id is None:
            return False
        self._end_run_of(runner, self.jobs[runner.job_id], conclusion)
        return True

    def vanish(self, runner: Runner) -> None:
        """Disconnects a runner whose machine is gone."""
        session = self._sessions.pop(runner.id, None)
        if session is None:
            return
        session.end()
        runner.online = False
        runner.offline_since = self._clock.monotonic()
        self.touch("runner", runner.id)
        self._waiting.drop_runner(runner)
        self._offline_timers.start(runner)
        if runner.job_id is not None:
            self._remember(self.jobs[runner.job_id], "runner_lost")
        self._trace(
            "vanished", {"runner": runner.name, "runner_id": runner.id, "busy": runner.busy}
        )

    def leave(self, runner: Runner) -> None:
        """Ends a runner program that signs off: its job fails, and the same start cannot return.

        The sign-off can overtake an earlier request. If that request reconnected it, a job could be assigned to a
        program that no longer runs.
        """
        if self.finish(runner, "failure"):
            return
        self.vanish(runner)
        runner.left = runner.instance
        self.touch("runner", runner.id)

    # Time

    def advance(self) -> None:
        """Does what is due: fails jobs of lost runners, removes unused registrations."""
        for runner in self._offline_timers.expired(self.runners):
            if runner.job_id is not None:
                self._end_run_of(runner, self.jobs[runner.job_id], "failure")
            else:
                self.remove(runner, why="unused")

    def next_due(self) -> float:
        """When `advance` may have something to do, on the monotonic clock."""
        return self._offline_timers.next_due()

    # Restoring from the store

    def restore(
        self, *, installations: Iterable[Installation], runs: Iterable[Run], jobs: Iterable[Job]
    ) -> None:
        """Restores the records; each kind is ordered by id."""
        for installation in installations:
            self._accounts.add(installation)
        for run in runs:
            run.repo = self._accounts.same(run.repo)
            self._job_table.add_run(run)
        for job in jobs:
            job.repo = self._accounts.same(job.repo)
            self._job_table.add_job(job)
            if job.status == "queued":
                self._waiting.add_job(job)

    def restore_runner(self, runner: Runner) -> RunnerSession | None:
        """Restores a registration; returns its session if its program is assumed to run.

        A program with a job gets time to make contact again: it could not while this GitHub was down. A program
        without a job stays offline until it connects: a job assigned to it before that could be lost.
        """
        self._registry.add(runner)
        now = self._clock.monotonic()
        if runner.job_id is None or not runner.instance:
            if runner.online:
                runner.online, runner.offline_since = False, now
                if runner.job_id is not None:
                    self._remember(self.jobs[runner.job_id], "runner_lost")
        elif not runner.online:
            runner.offline_since = now
        if runner.offline_since is not None:
            self._offline_timers.start(runner)
            return None
        session = self._sessions[runner.id] = RunnerSession(self, runner)
        self._assign_again(session, self.jobs[runner.job_id or 0])
        return session

    # Internal

    def _assign_again(self, session: RunnerSession, job: Job) -> None:
        session.assign(job)
        if job.cancel_requested:
            session.request_cancel()

    def _run(self, repo: Repo, run_id: int | None) -> Run:
        if run_id is not None:
            found = self.runs_of(repo).get(run_id)
            if found is None:
                raise PracticeError(f"no run {run_id} in {repo.full_name}")
            return found
        number = _FIRST_RUN + self._id()
        self.touch("run", number)
        return self._job_table.add_run(Run(id=number, repo=repo, created_at=self._clock.now()))

    def _offer(self, job: Job) -> None:
        ready = self._waiting.runners_for(job)
        if ready:
            self._assign(job, self._rng.choice(ready))
        else:
            self._waiting.add_job(job)

    def _assign(self, job: Job, runner: Runner) -> None:
        self._waiting.drop_job(job)
        self._waiting.drop_runner(runner)
        runner.job_id = job.id
        job.status = "in_progress"
        job.started_at = self._clock.now()
        job.executions += 1
        job.runner_id, job.runner_name = runner.id, runner.name
        job.runner_group_id = runner.group_id
        self.touch("runner", runner.id)
        self._note(job, "in_progress")
        self._sessions[runner.id].assign(job)

    def _end_run_of(self, runner: Runner, job: Job, conclusion: str) -> None:
        runner.job_id = None
        self.remove(runner, why="finished" if runner.online else "lost")
        self._complete(job, "cancelled" if job.cancel_requested else conclusion)

    def _complete(self, job: Job, conclusion: str) -> None:
        job.status = "completed"
        job.conclusion = conclusion
        job.completed_at = self._clock.now()
        self._job_table.job_ended(job)
        self._note(job, "completed")

    def _note(self, job: Job, action: str) -> None:
        what = action if action != "completed" else f"completed:{job.conclusion}"
        self._remember(job, what)
        self._trace("job", {"job": job.id, "what": what, "runner": job.runner_name})
        self._emit(job, action)

    def _remember(self, job: Job, what: str) -> None:
        job.history.append(HistoryEntry(self._clock.now(), what, job.runner_name))
        self.touch("job", job.id)

    def _next_job_id(self) -> int:
        return max(self._job_table.last_id + 1, _FIRST_JOB + self._settings.epoch)

    def _id(self) -> int:
        # With gaps, so that no caller relies on consecutive ids.
        self.last_id += self._rng.randint(1, 9)
        self.touch("meta", "counters")
        return self.last_id
