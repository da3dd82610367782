"""Many dispatchers, several servers, one Postgres that is killed and forgets: every job once, no budget exceeded."""

import asyncio
from pathlib import Path

import pytest
from benches.recovery.many import Plan, run


def check(plan: Plan, folder: Path) -> None:
    folder.chmod(0o755)  # the database's user passes through
    result = asyncio.run(run(plan, folder))
    print(plan, result)  # noqa: T201 the numbers are the result
    assert result.failures == ()
    assert result.done == plan.jobs
    assert result.deadlocks == 0
    assert max(result.used.values()) > 0, "the replay saw no claim"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_job_runs_once_while_servers_and_database_die(tmp_path: Path) -> None:
    """A share of the whole: `python -m benches.recovery.many` runs 10,000 jobs."""
    check(Plan(jobs=600), tmp_path)
