"""`runyard up` with tart: jobs of the practice GitHub run in VMs of an image that has nothing of ours.

The run is the one in docs/testing.md, at its full size in the tier `long`.
"""

import json
import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import HAS_PROC, PODS, Up, directory, environment, until
from tests.fixtures_registry import RegistryServer, registry, registry_program  # noqa: F401 - fixtures
from tests.standins.tart.helper import StandIn, archive
from tests.tart_images import tart_image
from tests.tiers import pick
from tests.transcripts import check, shape, transcripts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
WHOLE = 20  # as many as on the page
JOBS = pick(fast=6, ci=6, long=WHOLE)
SOON = 200.0


def shell(line: str, data: Path) -> str:
    """What a line of the page prints in a shell, with the data directory as the page writes it."""
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


def jobs_of(up: Up) -> list[dict[str, object]]:
    """All jobs, oldest first."""
    found = up.github("GET", "/practice/jobs").json()["items"]
    return sorted(found, key=lambda job: job["id"])


def in_state(up: Up, state: str) -> dict[int, str]:
    """The jobs in this state, with their runners."""
    return {job["id"]: job["runner_name"] for job in jobs_of(up) if job["status"] == state}


def done(command: str, data: Path) -> str:
    """The list of jobs once the server knows the end of all of them."""
    printed = shell(command, data)
    return printed if printed.count(" done ") == JOBS else ""


def image_of(up: Up) -> str:
    """The image of a runner's VM, with its digest."""
    states = [each for pod in up.items(PODS) for each in pod["status"].get("containerStatuses", ())]
    return next((each["imageID"] for each in states if each.get("imageID")), "")


def test_jobs_run_once_in_vms_of_a_stock_image_although_the_agent_is_killed(
    registry: RegistryServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    (page,) = transcripts("docs/testing.md")
    start, first, kill, more, listed, status = steps = page.steps
    # A disk without a program of ours: a guest that only answers `tart exec`.
    registry.push(tart_image(disk=archive({})), "mac/stock", "1")
    tart = StandIn(tmp_path)
    flags = [
        word.replace("REGISTRY", registry.address)
        for word in shlex.split(start.command)
        if word not in ("runyard", "up", "--plain", "--data", "DIR")
    ]
    path = f"{tart.bin}{os.pathsep}{environment()['PATH']}"
    with directory() as data, Up(data, *flags, PATH=path, TART_HOME=str(tart.home)) as up:
        up.prints("Ctrl-C stops it")
        printed = ["".join(up.lines).replace(str(data), "DIR")]
        printed.append(shell(first.command, data))
        until(lambda: len(in_state(up, "in_progress")) == 2, within=SOON, what="two jobs that run")
        before, running = up.pid("host-1"), in_state(up, "in_progress")
        printed.append(shell(kill.command.replace("PID", str(before)), data))
        printed.append(shell(more.command.replace(f"seq 3 {WHOLE}", f"seq 3 {JOBS}"), data))
        until(lambda: len(in_state(up, "completed")) == JOBS, within=SOON)
        printed.append(until(lambda: done(listed.command, data), within=SOON, what="all are done"))
        printed.append(shell(status.command, data))
        ended = jobs_of(up)
        assert [job["conclusion"] for job in ended] == ["success"] * JOBS
        assert len({job["runner_name"] for job in ended}) == JOBS, "a runner ran one job"
        assert up.pid("host-1") not in (0, before)
        # They went on where they were.
        assert in_state(up, "completed").items() >= running.items()
        runs = Counter(argv[1] for argv in tart.journal("run"))
        assert set(runs.values()) == {1}, "one `tart run` for each Pod"
        names = {name[: len("practice-runner-") + 8] for name in runs}
        assert {job["runner_name"] for job in ended} <= names, "each in a VM"
        image = until(lambda: image_of(up), within=SOON, what="a VM of the next runner")
        assert image.startswith(f"{registry.address}/mac/stock@sha256:")
        secrets = json.dumps(tart.journal())
        assert "eyJ" not in secrets, "a token or a JIT configuration is among the arguments"
    if JOBS == WHOLE:
        check(page, printed)
        return
    heading, *rows = listed.output.splitlines()
    fewer = "\n".join((heading, *rows[WHOLE - JOBS :]))  # the newest is first
    for step, output in zip(steps, printed, strict=True):
        assert shape(output) == shape(fewer if step is listed else step.output), step.command


def test_a_stock_image_with_its_runner_elsewhere_is_used_and_a_mac_may_keep_a_seat(
    registry: RegistryServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    registry.push(tart_image(disk=archive({})), "mac/stock", "1")
    tart = StandIn(tmp_path)
    path = f"{tart.bin}{os.pathsep}{environment()['PATH']}"
    flags = (
        *("--insecure-registry", registry.address, "--image", f"{registry.address}/mac/stock:1"),
        *("--runner-directory", "/Users/ci/a runner", "--vm-slots", "1"),
    )
    with directory() as data, Up(data, *flags, PATH=path, TART_HOME=str(tart.home)) as up:
        up.ready()
        orders = until(
            lambda: list(data.glob("hosts/host-1/vm/tart/**/order.json")), within=SOON, what="a VM"
        )
        assert json.loads(orders[0].read_text())["polling"]["runner"] == "/Users/ci/a runner"
        (node,) = up.items("/api/v1/nodes")
        assert node["status"]["capacity"]["pods"] == "1"
        assert len(up.items(PODS)) == 1
        assert up.interrupt() == 0


@pytest.mark.long
def test_a_pool_that_was_made_without_tart_runs_jobs_in_vms_once_tart_is_installed(
    registry: RegistryServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    registry.push(tart_image(disk=archive({})), "mac/stock", "1", "2")
    tart = StandIn(tmp_path)
    path = f"{tart.bin}{os.pathsep}{environment()['PATH']}"
    flags = ("--insecure-registry", registry.address, "--image")
    with directory() as data:
        with Up(data) as up:
            up.ready()
            assert up.run("echo a process") == "success"
            assert up.interrupt() == 0
        for version in ("1", "2"):
            image = f"{registry.address}/mac/stock:{version}"
            with Up(data, *flags, image, PATH=path, TART_HOME=str(tart.home)) as up:
                assert image in up.prints("the pool practice ")
                up.ready()
                until(lambda image=image: image_in_use(up, image), within=SOON, what=image)
                assert up.run("echo a VM", within=SOON) == "success"
                assert up.interrupt() == 0


def image_in_use(up: Up, image: str) -> bool:
    """Whether every runner is one of this image, and runs."""
    pods = up.items(PODS)
    images = {pod["spec"]["containers"][0]["image"] for pod in pods}
    return images == {image} and all(pod["status"].get("phase") == "Running" for pod in pods)
