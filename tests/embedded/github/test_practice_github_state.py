"""The state of the practice GitHub: jobs, runners and timeouts."""

import asyncio
from typing import Any

import pytest

from runyard.embedded.github.model import PracticeError, Refused
from runyard.embedded.github.session import RunnerSession


def connect(practice: Any, jit: str) -> RunnerSession:
    session = practice.core.connect(jit)
    assert isinstance(session, RunnerSession)
    return session


def history(practice: Any, job_id: int) -> list[str]:
    return [entry.what for entry in practice.core.history(job_id)]


def test_a_job_runs_once_from_queue_to_end(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    job_id = practice.core.queue_job("acme/app", ("MAC",), duration=30)
    job = practice.core.jobs()[job_id]
    assert job.status == "queued"
    session = connect(practice, jit)
    assignment = asyncio.run(session.next_job())
    assert assignment is not None
    assert (assignment.job_id, assignment.repo, assignment.duration) == (job_id, "acme/app", 30)
    assert (job.status, job.runner_id, job.runner_name) == ("in_progress", runner_id, "a")
    practice.clock.t += 30
    assert session.finish("success")
    assert not session.finish("success")
    assert (job.status, job.conclusion, job.executions) == ("completed", "success", 1)
    assert history(practice, job_id) == ["queued", "in_progress", "completed:success"]
    assert not practice.core.runners()
    asyncio.run(practice.core.settle())
    assert [each.action for each in practice.delivered] == ["queued", "in_progress", "completed"]


def test_a_runner_minted_for_one_job_may_get_another(make_practice: Any) -> None:
    chosen: dict[int, int] = {}
    for seed in range(20):
        practice = make_practice(seed)
        jobs = [practice.core.queue_job("acme/app", ("mac",)) for _ in range(2)]
        session = connect(practice, practice.mint("a")[1])
        assert session.assignment is not None
        position = jobs.index(session.assignment.job_id)
        chosen[position] = chosen.get(position, 0) + 1
    assert sorted(chosen) == [0, 1]


def test_a_job_may_go_to_any_runner_that_waits(make_practice: Any) -> None:
    names: dict[str, None] = {}
    for seed in range(20):
        practice = make_practice(seed)
        for name in ("a", "b", "c"):
            connect(practice, practice.mint(name)[1])
        job_id = practice.core.queue_job("acme/app", ("mac",))
        names[practice.core.jobs()[job_id].runner_name] = None
    assert sorted(names) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("scope", "labels", "repo", "wants", "runs"),
    [
        ("orgs/acme", ("mac", "arm"), "acme/lib", ("mac",), True),
        ("orgs/acme", ("Mac",), "acme/app", ("mAC",), True),
        ("orgs/acme", ("mac",), "acme/app", ("mac", "arm"), False),
        ("orgs/acme", ("mac",), "mona/dots", ("mac",), False),
        ("repos/acme/app", ("mac",), "acme/app", ("mac",), True),
        ("repos/acme/app", ("mac",), "acme/lib", ("mac",), False),
    ],
)
def test_labels_and_scope_decide(
    practice: Any,
    scope: str,
    labels: tuple[str, ...],
    repo: str,
    wants: tuple[str, ...],
    *,
    runs: bool,
) -> None:
    session = connect(practice, practice.mint("a", scope=scope, labels=labels)[1])
    job_id = practice.core.queue_job(repo, wants)
    assert (session.assignment is not None) is runs
    assert (practice.core.jobs()[job_id].status == "in_progress") is runs


def test_a_jit_configuration_opens_one_session(practice: Any) -> None:
    _, jit = practice.mint("a")
    session = connect(practice, jit)
    assert practice.core.connect(jit) == Refused(reason="used")
    session.vanish()
    assert practice.core.connect(jit) == Refused(reason="used")
    assert practice.core.connect("nonsense") == Refused(reason="unknown")


def test_the_jit_configuration_of_a_deleted_registration_is_refused(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    assert practice.ask("DELETE", f"/orgs/acme/actions/runners/{runner_id}").status == 204
    assert practice.core.connect(jit) == Refused(reason="unknown")


def test_deleting_an_idle_runner_ends_its_session(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    session = connect(practice, jit)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(session.next_job())
            await asyncio.sleep(0)
            assert not waiting.done()
            practice.core._state.remove(practice.core.runners()[runner_id], why="deleted")
        assert waiting.result() is None

    asyncio.run(scenario())
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert practice.core.jobs()[job_id].status == "queued"


def test_a_busy_runner_cannot_be_deleted_also_when_its_machine_is_gone(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    session = connect(practice, jit)
    practice.core.queue_job("acme/app", ("mac",))
    path = f"/orgs/acme/actions/runners/{runner_id}"
    assert practice.ask("DELETE", path).status == 422
    session.vanish()
    assert practice.ask("DELETE", path).status == 422
    practice.clock.t += 600
    assert practice.ask("DELETE", path).status == 404


def test_the_job_of_a_vanished_runner_fails_and_is_not_run_again(practice: Any) -> None:
    session = connect(practice, practice.mint("a")[1])
    job_id = practice.core.queue_job("acme/app", ("mac",))
    practice.clock.t += 100
    session.vanish()
    session.vanish()
    assert not session.finish("success")
    practice.clock.t += 599
    other = connect(practice, practice.mint("b")[1])
    assert other.assignment is None
    assert practice.core.jobs()[job_id].status == "in_progress"
    practice.clock.t += 1
    asyncio.run(practice.core.settle())
    assert history(practice, job_id) == [
        "queued",
        "in_progress",
        "runner_lost",
        "completed:failure",
    ]
    assert practice.core.jobs()[job_id].executions == 1
    assert [each.action for each in practice.delivered][-1] == "completed"
    assert [runner.name for runner in practice.core.runners().values()] == ["b"]


@pytest.mark.parametrize("connected", [False, True], ids=["never-came", "came-and-vanished"])
def test_an_unused_registration_ends_after_a_day(practice: Any, *, connected: bool) -> None:
    runner_id, jit = practice.mint("a")
    if connected:
        practice.clock.t += 3600
        connect(practice, jit).vanish()
    practice.clock.t += 86399
    asyncio.run(practice.core.settle())
    assert runner_id in practice.core.runners()
    practice.clock.t += 1
    asyncio.run(practice.core.settle())
    assert runner_id not in practice.core.runners()


def test_a_runner_that_waits_for_days_is_not_unused(practice: Any) -> None:
    session = connect(practice, practice.mint("a")[1])
    practice.clock.t += 5 * 86400
    practice.core.queue_job("acme/app", ("mac",))
    assert session.assignment is not None


def test_a_cancelled_queued_job_reaches_no_runner(practice: Any) -> None:
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert practice.core.cancel_job(job_id)
    assert not practice.core.cancel_job(job_id)
    session = connect(practice, practice.mint("a")[1])
    assert session.assignment is None
    shown = practice.ask("GET", f"/repos/acme/app/actions/jobs/{job_id}").json()
    assert (shown["conclusion"], shown["runner_id"], shown["runner_name"]) == ("cancelled", 0, "")


@pytest.mark.parametrize("lost", [False, True], ids=["runner-obeys", "runner-is-lost"])
def test_a_running_job_is_cancelled_by_its_end(practice: Any, *, lost: bool) -> None:
    session = connect(practice, practice.mint("a")[1])
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert session.assignment is not None and not session.assignment.cancelled.is_set()
    assert practice.core.cancel_job(job_id)
    assert session.assignment.cancelled.is_set()
    assert practice.core.jobs()[job_id].status == "in_progress"
    if lost:
        session.vanish()
        practice.clock.t += 600
        asyncio.run(practice.core.settle())
    else:
        assert session.finish("failure")
    assert practice.core.jobs()[job_id].conclusion == "cancelled"


def test_a_waiting_job_is_not_run_before_its_approval(practice: Any) -> None:
    session = connect(practice, practice.mint("a")[1])
    job_id = practice.core.queue_job("acme/app", ("mac",), waiting=True)
    assert session.assignment is None
    assert practice.core.approve_job(job_id)
    assert not practice.core.approve_job(job_id)
    assert session.assignment is not None
    asyncio.run(practice.core.settle())
    actions = [each.action for each in practice.delivered]
    assert actions == ["waiting", "queued", "in_progress"]


def test_the_state_refuses_what_github_would_refuse(practice: Any) -> None:
    with pytest.raises(PracticeError):
        practice.core.queue_job("acme/nothing", ("mac",))
    with pytest.raises(PracticeError):
        practice.core.queue_job("acme/app", ("mac",), run_id=1)
    with pytest.raises(PracticeError):
        practice.core.cancel_job(1)
    with pytest.raises(PracticeError):
        practice.core.add_repo("nobody/app")
    with pytest.raises(PracticeError):
        practice.core.install("ACME")
    session = connect(practice, practice.mint("a")[1])
    practice.core.queue_job("acme/app", ("mac",))
    with pytest.raises(PracticeError):
        session.finish("splendid")


def test_runs_follow_their_jobs(practice: Any) -> None:
    first = practice.core.queue_job("acme/app", ("mac",))
    run_id = practice.core.jobs()[first].run_id
    practice.core.queue_job("acme/app", ("gpu",), run_id=run_id)

    def runs(status: str) -> list[int]:
        answer = practice.ask("GET", "/repos/acme/app/actions/runs", query=(("status", status),))
        return [run["id"] for run in answer.json()["workflow_runs"]]

    assert (runs("queued"), runs("in_progress")) == ([run_id], [])
    session = connect(practice, practice.mint("a")[1])
    assert (runs("queued"), runs("in_progress")) == ([], [run_id])
    session.finish("success")
    for job_id in practice.core.jobs():
        practice.core.cancel_job(job_id)
    assert (runs("in_progress"), runs("completed")) == ([], [run_id])
    jobs = practice.ask("GET", f"/repos/acme/app/actions/runs/{run_id}/jobs").json()
    assert (jobs["total_count"], len(jobs["jobs"])) == (2, 2)


def test_the_same_seed_gives_the_same_history(make_practice: Any) -> None:
    def process(seed: int) -> list[Any]:
        practice = make_practice(seed)
        for _ in range(10):
            practice.core.queue_job("acme/app", ("mac",))
        for number in range(10):
            connect(practice, practice.mint(f"r{number}")[1]).finish("success")
        asyncio.run(practice.core.settle())
        return [(each.id, each.guid, each.body) for each in practice.delivered]

    assert process(5) == process(5)
    assert process(5) != process(6)
