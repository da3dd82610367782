"""`runyard up` with tart: jobs of the practice GitHub run in VMs of an image that has nothing of ours."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import (
    HAS_PROC,
    PODS,
    REPOSITORY,
    Up,
    directory,
    environment,
    until,
)
from tests.fixtures_registry import RegistryServer, registry, registry_program  # noqa: F401 - fixtures
from tests.standins.tart.helper import StandIn, archive
from tests.tart_images import tart_image
from tests.transcripts import check, transcripts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
JOBS = 6
SOON = 200.0


def queue(up: Up, name: str, script: str) -> int:
    body = {"repo": REPOSITORY, "labels": ["runyard"], "script": script, "name": name}
    answer = up.github("POST", "/practice/jobs", body)
    assert answer.status == 201, answer
    return int(answer.json()["id"])


def completed(up: Up, number: int) -> dict[str, object] | None:
    found = up.github("GET", f"/practice/jobs/{number}").json()
    return found if found["status"] == "completed" else None


def test_jobs_run_once_in_vms_of_a_stock_image_although_the_agent_is_killed(
    registry: RegistryServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    # A disk without a program of ours: a guest that only answers `tart exec`.
    registry.push(tart_image(disk=archive({})), "mac/stock", "1")
    tart = StandIn(tmp_path)
    image = f"{registry.address}/mac/stock:1"
    flags = ("--image", image, "--insecure-registry", registry.address)
    path = f"{tart.bin}{os.pathsep}{environment()['PATH']}"
    with directory() as data, Up(data, *flags, PATH=path, TART_HOME=str(tart.home)) as up:
        up.prints("Ctrl-C stops it")
        (page,) = transcripts("docs/first-mac.md")
        check(page, ["".join(up.lines).replace(str(data), "DIR")])
        jobs = [queue(up, f"job {number}", "sleep 1; echo done") for number in range(JOBS)]
        until(lambda: tart.journal("run"), within=SOON, what="a VM")
        before = up.pid("host-1")
        os.kill(before, signal.SIGKILL)
        ended = [until(lambda job=job: completed(up, job), within=SOON) for job in jobs]
        assert [job["conclusion"] for job in ended] == ["success"] * JOBS
        assert len({job["runner_name"] for job in ended}) == JOBS, "a runner ran one job"
        runs = Counter(argv[1] for argv in tart.journal("run"))
        assert set(runs.values()) == {1}, "one `tart run` for each Pod"
        (pod, *_) = up.items(PODS)
        (status,) = pod["status"]["containerStatuses"]
        assert status["imageID"].startswith(f"{registry.address}/mac/stock@sha256:")
        secrets = json.dumps(tart.journal())
        assert "eyJ" not in secrets, "a token or a JIT configuration is among the arguments"
