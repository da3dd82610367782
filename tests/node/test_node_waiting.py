"""Tests what a Pod says while it waits for an image or a VM slot, and which Pods become VMs at all."""

from pathlib import Path
from typing import Any

import pytest
from tests.node.agent_harness import IMAGE, AgentHarness, changed, play

from runyard.kube.kinds import PODS
from runyard.sim.driver import Host, SimDriver
from runyard.telemetry.catalogue import TART_KUBELET_UNOWNED_VMS as UNOWNED_VMS
from runyard.vm.contract import Fault
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

TWO_SLOTS = Host(boot_seconds=5.0, bandwidth=1e9, image_bytes=1e9, max_running=2)


def waiting(pod: dict[str, Any] | None) -> dict[str, str]:
    assert pod is not None
    return dict(pod["status"]["containerStatuses"][0]["state"].get("waiting", {}))


def measured(harness: AgentHarness, name: str) -> float:
    lines = harness.meters[-1].exposition().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def test_a_pod_waits_for_a_slot_that_another_tool_uses_and_no_third_vm_is_started(
    tmp_path: Path,
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.add_foreign_vm("packer-build")
        harness.guests["a"] = 300.0
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        await harness.add_pod("b")
        await harness.clock.sleep(120)
        assert waiting(await harness.pod("b"))["reason"] == names.WAITING_SLOT
        assert await harness.phase("b") == "Pending"
        assert len(harness.driver.history) == 1
        await harness.until_phase("a", "Succeeded")
        assert await harness.until_phase("b", "Running", within=30) < 15
        assert harness.meters[-1].get(UNOWNED_VMS) == 1
        assert harness.driver.view("packer-build") is not None

    play(scenario, tmp_path, host=TWO_SLOTS)


def test_the_wait_for_a_slot_is_not_part_of_a_pods_run_nor_of_its_boot(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.add_foreign_vm("packer-build")
        harness.guests["a"] = 300.0
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        await harness.add_pod("b")
        bound_at = harness.clock.now()
        await harness.until_phase("a", "Succeeded", within=600)
        await harness.until_phase("b", "Running", within=30)
        pod = await harness.pod("b")
        assert pod is not None
        state = pod["status"]["containerStatuses"][0]["state"]["running"]
        assert from_rfc3339(state["startedAt"]) - bound_at > 200
        assert measured(harness, "tart_kubelet_pod_provision_delay_seconds_count") == 2
        boots = measured(harness, "tart_kubelet_vm_boot_duration_seconds_sum")
        assert boots < 2 * (harness.driver.host.boot_seconds + 10)

    play(scenario, tmp_path, host=TWO_SLOTS)


def test_a_vm_that_waited_for_a_slot_and_vanished_has_not_run(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        for name in ("packer-1", "packer-2"):
            harness.driver.add_foreign_vm(name)
        await harness.add_pod("a")
        await harness.clock.sleep(120)
        assert waiting(await harness.pod("a"))["reason"] == names.WAITING_SLOT
        (ours,) = [vm.name for vm in await harness.driver.list() if vm.owned]
        await harness.driver.delete(ours)
        harness.driver.kill("packer-1")
        await harness.until_phase("a", "Running", within=120)

    play(scenario, tmp_path, host=TWO_SLOTS)


def test_a_pull_of_forty_minutes_is_followed_in_the_status_and_completes(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.add_pod("a")
        await harness.clock.sleep(1200)
        pod = await harness.pod("a")
        assert waiting(pod)["reason"] == names.WAITING_PULL
        assert pod is not None
        stamp = pod["metadata"]["annotations"][names.START_PROGRESS_AT]
        await harness.clock.sleep(120)
        later = await harness.pod("a")
        assert later is not None
        assert later["metadata"]["annotations"][names.START_PROGRESS_AT] > stamp
        await harness.until_phase("a", "Running", within=1500)

    play(scenario, tmp_path, host=Host(bandwidth=25e6, image_bytes=60e9))


def test_a_pull_that_stands_still_leaves_its_reason_in_the_status(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.stall_pulls()
        await harness.add_pod("a")
        await harness.clock.sleep(harness.driver.host.stall_seconds + 1)
        assert waiting(await harness.pod("a"))["reason"] == Fault.PULL_STALLED.camel
        harness.driver.heal()
        await harness.until_phase("a", "Running", within=600)

    play(scenario, tmp_path)


def test_the_status_names_the_digest_that_a_tag_meant(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.tags["registry/runner:1"] = IMAGE
        await harness.add_pod("a", image="registry/runner:1")
        await harness.until_phase("a", "Running")
        pod = await harness.pod("a")
        assert pod is not None
        (status,) = pod["status"]["containerStatuses"]
        assert (status["image"], status["imageID"]) == ("registry/runner:1", IMAGE)
        assert harness.driver.spec(harness.driver.history[0]).image == IMAGE
        labels = (await harness.node())["metadata"]["labels"]
        assert names.golden_label("registry/runner:1") in labels
        assert names.golden_label(IMAGE) in labels

    play(scenario, tmp_path, settings=changed(heartbeat_every=5.0))


def test_the_log_of_a_vm_is_kept_until_its_pod_is_gone(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        (vm,) = harness.driver.history
        harness.driver.write_log(vm, b"hello\n")
        await harness.until_phase("a", "Succeeded")
        await harness.clock.sleep(30)
        assert harness.driver.view(vm) is None, "the VM is deleted"
        assert [piece async for piece in harness.driver.logs(vm)] == [b"hello\n"]
        await harness.delete_pod("a")
        await harness.until_phase("a", "gone")
        await harness.clock.sleep(10)
        assert [piece async for piece in harness.driver.logs(vm)] == []

    play(scenario, tmp_path)


def test_a_clone_that_never_ends_leaves_a_text_in_the_status(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.hang("create")
        await harness.add_pod("a")
        await harness.clock.sleep(harness.settings.deadlines.clone + 32)
        pod = await harness.pod("a")
        assert pod is not None
        assert waiting(pod)["reason"] == Fault.DRIVER_HUNG.camel
        assert "did not end it within" in pod["status"]["message"]
        await harness.until_phase("a", "Running", within=600)

    play(scenario, tmp_path)


@pytest.mark.parametrize("gc", [True, False])
def test_what_drivers_make_from_images_is_collected_except_where_garbage_collection_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gc: bool
) -> None:
    calls: list[tuple[frozenset[str], float]] = []

    async def collect(_: SimDriver, *, used: frozenset[str], idle: float) -> tuple[str, ...]:
        calls.append((used, idle))
        return ("registry/old@sha256:1",)

    monkeypatch.setattr(SimDriver, "collect", collect)

    async def scenario(harness: AgentHarness) -> None:
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        await harness.clock.sleep(harness.settings.gc_every + 30)
        assert bool(calls) is gc
        assert all(idle == harness.settings.image_idle for _, idle in calls)
        assert not calls or IMAGE in calls[0][0]

    play(scenario, tmp_path, settings=changed(gc=gc))


SELECTS = {names.NODE_RUNTIME: names.NODE_RUNTIME_TART}
TAINT = {"key": names.NODE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
NOT_RUNNERS = {
    "a processor that selects and tolerates Mac hosts": (SELECTS, [TAINT], True),
    "one that selects them only": (SELECTS, [], False),
    "one that tolerates them only": ({}, [TAINT], False),
    "a DaemonSet that tolerates everything": (SELECTS, [{"operator": "Exists"}], False),
    "one for hosts of another kind": ({names.NODE_RUNTIME: "process"}, [TAINT], False),
}


@pytest.mark.parametrize(
    ("selector", "tolerations", "runs"), NOT_RUNNERS.values(), ids=list(NOT_RUNNERS)
)
def test_which_pods_that_are_no_runners_become_vms(
    tmp_path: Path, selector: dict[str, str], tolerations: list[dict[str, str]], *, runs: bool
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.add_pod(
            "p", nodeSelector=selector, tolerations=tolerations, labels={"app": "processor"}
        )
        await harness.clock.sleep(120)
        assert bool(harness.driver.history) is runs
        assert await harness.phase("p") in (("Running", "Succeeded") if runs else ("", "Pending"))

    play(scenario, tmp_path)


def test_a_host_without_garbage_collection_still_deletes_the_vms_of_its_pods(
    tmp_path: Path,
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.add_foreign_vm("bake")
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        (vm,) = harness.driver.history
        await harness.delete_pod("a", grace=0)
        await harness.until_phase("a", "gone")
        assert harness.driver.view(vm) is None
        # Also where the Pod vanished while the agent was down.
        await harness.add_pod("b")
        await harness.until_phase("b", "Running")
        harness.agent.crash()
        other = harness.driver.history[-1]
        await harness.kube.patch(
            PODS, "b", {"metadata": {"finalizers": None}}, namespace=names.RUNNERS_NAMESPACE
        )
        await harness.delete_pod("b", grace=0)
        harness.start_agent()
        await harness.clock.sleep(120)
        assert harness.driver.view(other) is None
        assert harness.driver.view("bake") is not None
        assert harness.meters[-1].get(UNOWNED_VMS) == 1

    play(scenario, tmp_path, settings=changed(gc=False))
