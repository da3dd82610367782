"""Each job runs at most once, for any order of users' actions, runners' actions and time."""

import asyncio
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.tiers import examples

from runyard.clock import Clock
from runyard.embedded.github.deliveries import DeliveryLog
from runyard.embedded.github.model import Job, PracticeError, Refused
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.state import PracticeState
from runyard.embedded.github.waiting import fits

LABELS = ("mac", "arm", "gpu")
SCOPES = ("orgs/acme", "repos/acme/app", "repos/acme/lib")


class Moving:
    def __init__(self) -> None:
        self.t = 0.0

    def now(self) -> float:
        return self.t

    def monotonic(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.t += seconds

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(None)


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock: Clock = Moving()
        self.history: list[tuple[int, str]] = []
        self.state = PracticeState(
            clock=self.clock,
            rng=random.Random(0),
            settings=PracticeSettings(),
            emit=self._emit,
            trace=lambda _what, _detail: None,
        )
        self.state.install("acme")
        self.repos = [self.state.add_repo("acme/app"), self.state.add_repo("acme/lib")]
        self.jits: list[str] = []
        self.sessions: list[RunnerSession] = []

    def _emit(self, job: Job, action: str) -> None:
        self.history.append((job.id, action))

    @rule(repo=st.integers(0, 1), labels=st.sets(st.sampled_from(LABELS)), waiting=st.booleans())
    def queue(self, repo: int, labels: set[str], *, waiting: bool) -> None:
        self.state.queue_job(
            self.repos[repo], tuple(sorted(labels)), duration=None, run_id=None, waiting=waiting
        )

    @rule(pick=st.integers(0, 50))
    def cancel(self, pick: int) -> None:
        jobs = list(self.state.jobs)
        if jobs:
            self.state.cancel_job(jobs[pick % len(jobs)])

    @rule(pick=st.integers(0, 50))
    def approve(self, pick: int) -> None:
        jobs = list(self.state.jobs)
        if jobs:
            self.state.approve(jobs[pick % len(jobs)])

    @rule(
        scope=st.sampled_from(SCOPES),
        name=st.sampled_from("abcd"),
        labels=st.sets(st.sampled_from(LABELS)),
    )
    def mint(self, scope: str, name: str, labels: set[str]) -> None:
        taken = self.state.runner_named(scope, name) is not None
        try:
            runner = self.state.register(
                scope, name=name, labels=tuple(sorted(labels)), group_id=1, work_folder="w"
            )
        except PracticeError:
            assert taken
        else:
            assert not taken
            self.jits.append(runner.jit)

    @rule(pick=st.integers(0, 50))
    def connect(self, pick: int) -> None:
        if not self.jits:
            return
        session = self.state.connect(self.jits[pick % len(self.jits)])
        if not isinstance(session, Refused):
            self.sessions.append(session)

    @rule(pick=st.integers(0, 50), conclusion=st.sampled_from(["success", "failure"]))
    def finish(self, pick: int, conclusion: str) -> None:
        if self.sessions:
            session = self.sessions[pick % len(self.sessions)]
            listens = not session.over and session.assignment is not None
            assert session.finish(conclusion) is listens

    @rule(pick=st.integers(0, 50))
    def vanish(self, pick: int) -> None:
        if self.sessions:
            self.sessions[pick % len(self.sessions)].vanish()

    @rule(pick=st.integers(0, 50))
    def delete(self, pick: int) -> None:
        idle = [runner for runner in self.state.runners.values() if not runner.busy]
        if idle:
            self.state.remove(idle[pick % len(idle)], why="deleted")

    @rule(seconds=st.sampled_from([1.0, 599.0, 601.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        asyncio.run(self.clock.sleep(seconds))
        self.state.advance()

    @invariant()
    def no_job_was_assigned_twice(self) -> None:
        for job in self.state.jobs.values():
            given = [entry for entry in job.history if entry.what == "in_progress"]
            assert len(given) == job.executions <= 1

    @invariant()
    def busy_runners_and_running_jobs_are_the_same_pairs(self) -> None:
        running = {
            job.id: job.runner_id for job in self.state.jobs.values() if job.status == "in_progress"
        }
        busy = {runner.job_id: runner.id for runner in self.state.runners.values() if runner.busy}
        assert running == busy

    @invariant()
    def no_queued_job_fits_an_idle_runner(self) -> None:
        for runner in self.state.runners.values():
            if runner.online and not runner.busy:
                for job in self.state.jobs.values():
                    assert job.status != "queued" or not fits(runner, job)

    @invariant()
    def the_indices_agree(self) -> None:
        runners = list(self.state.runners.values())
        registry = self.state._registry
        assert len(registry._named) == len(registry._by_jit) == len(runners)
        assert sum(map(len, registry._by_scope.values())) == len(runners)
        idle = [each.id for each in runners if each.online and not each.busy]
        held = [key for group in self.state._waiting._runners.values() for key in group]
        assert sorted(idle) == sorted(held)
        queued = [job.id for job in self.state.jobs.values() if job.status == "queued"]
        assert sorted(queued) == sorted(
            key for group in self.state._waiting._jobs.values() for key in group
        )

    @invariant()
    def every_change_was_emitted_in_order(self) -> None:
        order = {"waiting": 0, "queued": 1, "in_progress": 2, "completed": 3}
        received: dict[int, list[int]] = {}
        for job_id, action in self.history:
            received.setdefault(job_id, []).append(order[action])
        for job_id, steps in received.items():
            assert steps == sorted(steps) and len(set(steps)) == len(steps)
            assert steps[-1] == order[self.state.jobs[job_id].status]


AnyHistory.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestAnyHistory = AnyHistory.TestCase


def test_old_deliveries_are_dropped_and_the_rest_is_paged() -> None:
    clock = Moving()
    log = DeliveryLog(
        clock=clock,
        rng=random.Random(0),
        secret="s",
        settings=PracticeSettings(deliveries_kept=100),
        deliver=None,
    )
    state = PracticeState(
        clock=clock,
        rng=random.Random(0),
        settings=PracticeSettings(),
        emit=lambda job, action: log.add(job, action, body=b"{}"),
        trace=lambda _what, _detail: None,
    )
    state.install("acme")
    repo = state.add_repo("acme/app")
    for _ in range(20):
        clock.t += 10
        state.queue_job(repo, ("mac",), duration=None, run_id=None, waiting=False)
        for attempt in log.take_pending():
            asyncio.run(log.attempt(attempt))
    seen: list[float] = []
    before: int | None = None
    while True:
        page, before = log.page(before=before, size=4)
        seen.extend(attempt.created_at for attempt in page)
        if before is None:
            break
    assert seen == [float(at) for at in range(200, 90, -10)]
    assert len(log.attempts) == len(seen)
