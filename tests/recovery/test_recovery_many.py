"""With many dispatchers, killed servers and lost commits, every job runs once and no budget is exceeded."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benches.recovery.many import Plan, Run, run
from benches.recovery.replay import Size, replay

from runyard.clock import RealClock

RUNNER = Size(1, 1)


def check(plan: Plan, folder: Path) -> None:
    folder.chmod(0o755)  # the database's user passes through
    result = asyncio.run(run(plan, folder))
    print(plan, result)  # noqa: T201 the numbers are the result
    assert result.failures == ()
    assert result.done == plan.jobs
    assert result.deadlocks == 0
    assert result.kills == {"server": plan.server_kills, "database": plan.database_kills}
    assert result.unwritten == plan.database_kills, "no kill could have lost a commit"
    assert max(result.used.values()) > 0, "the replay saw no claim"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_job_runs_once_while_servers_and_database_die(tmp_path: Path) -> None:
    """A share of the whole: `make recovery-many` runs 10,000 jobs."""
    check(Plan(jobs=600), tmp_path)


class CalmRun(Run):
    """Its first kill fails."""

    async def _disturb(self) -> None:
        raise RuntimeError("nobody could be killed")


class PatientGithub:
    """Has jobs that never run."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def jobs(self) -> dict[int, Any]:
        return {1: SimpleNamespace(status="queued")}


def test_a_run_without_successful_kills_fails() -> None:
    async def nowhere(delivery: object) -> int:
        return 200

    made: Any = SimpleNamespace(
        _carry=nowhere,
        clock=RealClock(),
        github=PatientGithub(),
        hosts=None,
        jobs=[1],
    )
    unused: Any = None
    scenario = CalmRun(Plan(jobs=1, dispatchers=0), unused, made, "")
    with pytest.raises(RuntimeError, match="nobody could be killed"):
        asyncio.run(scenario.go())


def step(pod: str, target: str, tenant: str | None, at: int) -> dict[str, Any]:
    return {"pod_uid": pod, "target": target, "tenant": tenant, "at": at}


def test_the_replay_charges_each_offer_to_its_tenant() -> None:
    """The first mint failed, so the slot's last row names the second tenant."""
    log = (
        step("one", "idle", None, 1),
        step("one", "offered", "acme", 2),
        step("two", "offered", "acme", 3),
        step("one", "idle", None, 4),
        step("one", "offered", "birch", 5),
        step("one", "executing", "birch", 6),
        step("one", "draining", None, 7),
        step("one", "closed", None, 8),
    )
    found = replay(log, {"acme": Size(1, 8), "birch": Size(1, 8)}, RUNNER)
    assert found.most == {"acme": 2, "birch": 1}
    assert [each.partition(" of ")[0] for each in found.failures] == [
        f"acme held {Size(2, 2)}",
    ]


def test_the_replay_checks_budgets_after_whole_commits() -> None:
    log = (
        step("one", "offered", "acme", 1),
        step("two", "offered", "acme", 2),
        step("one", "closed", None, 2),
    )
    found = replay(log, {"acme": Size(1, 1)}, RUNNER)
    assert (found.commits, found.most, found.failures) == (2, {"acme": 1}, ())
