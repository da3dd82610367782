"""A pool that `runyard pool create` made on a running machine takes a real job; the pages show what was printed."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import HAS_PROC, REPOSITORY, Up, environment, machine, until
from tests.transcripts import Transcript, check, transcripts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
POOLS, STATUS = "docs/pools.md", "docs/status.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with machine() as running:
        yield running


def printed(line: str, data: Path) -> str:
    """What a command prints in a shell, with the data directory as the pages write it."""
    argv = ["bash", "-c", line.replace("DIR", shlex.quote(str(data)))]
    done = subprocess.run(
        argv,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.replace(str(data), "DIR")


def produced(page: Transcript, data: Path) -> None:
    check(page, [printed(step.command, data) for step in page.steps])


def idle(up: Up, **wanted: int) -> bool:
    """Whether these pools and no others exist, each with that many runners, which all wait for work."""
    view = up.owner("GET", "/api/v1/overview").json()
    counts = {each["name"]: each["idle"] for each in view["pools"]}
    others = [each[s] for each in view["pools"] for s in ("busy", "starting", "other")]
    running = sum(host["running"] for host in view["hosts"])
    return counts == wanted and not any(others) and running == sum(wanted.values())


def test_a_real_job_runs_in_a_pool_that_was_created_on_a_running_machine(up: Up) -> None:
    data = up.data
    change, create, look, delete = transcripts(POOLS)
    (status,) = transcripts(STATUS)
    until(lambda: idle(up, practice=2), what="the first pool's runners")
    produced(status, data)
    produced(change, data)
    until(lambda: idle(up, practice=1), what="a free slot")
    produced(create, data)
    until(lambda: idle(up, practice=1, ci=1), what="the new pool's runner")
    produced(look, data)

    (found,) = json.loads(printed("runyard pool show ci -o json --data DIR", data))["hosts"]
    assert found == {"name": "host-1", "runners": 1, "able": True}
    labels = ["self-hosted", "Linux", "ci"]
    body = {"repo": REPOSITORY, "labels": labels, "script": "echo hello from ci", "name": "in ci"}
    answer = up.github("POST", "/practice/jobs", body)
    assert answer.status == 201, answer
    done = up.in_state(int(answer.json()["id"]), "completed")
    assert done["conclusion"] == "success", done
    assert done["runner_name"].startswith("ci-runner-"), done

    until(lambda: idle(up, practice=1, ci=1), what="the next runner")
    produced(delete, data)
    until(lambda: idle(up, practice=1), what="the end of the pool")
