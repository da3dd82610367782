"""Tests the agent end to end: each Pod becomes a VM once, and no Pod delays another."""

from pathlib import Path

import lawtree
import pytest
import yaml
from tests.node.agent_harness import (
    IMAGE,
    NODE,
    QUICK,
    SETTINGS,
    SPACE,
    AgentHarness,
    changed,
    play,
)

from runyard.http.messages import Request, Response, Stream
from runyard.kube.kinds import EVENTS, LEASES, NODES, PODS, SERVICE_ACCOUNTS
from runyard.node.metrics import (
    BOOT_DURATION,
    GUEST_DISK,
    GUEST_DISK_AGE,
    PROVISION_DELAY,
    UNOWNED_VMS,
)
from runyard.node.plans.values import vm_name
from runyard.sim.driver import Host
from runyard.vm.contract import DriverFailed, ImageMissing, VmState
from runyard.wire import names


async def vm_of(harness: AgentHarness, name: str) -> str:
    pod = await harness.pod(name)
    assert pod is not None
    return vm_name(name, pod["metadata"]["uid"])


def test_a_pod_becomes_a_vm_that_runs_once_and_is_deleted(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 100.0
        await harness.add_pod("p")
        vm = await vm_of(harness, "p")
        await harness.until_phase("p", "Running")
        pod = await harness.pod("p")
        assert pod is not None
        status = pod["status"]
        assert pod["metadata"]["finalizers"] == [names.VM_FINALIZER]
        assert status["podIP"].startswith("192.168.") and status["hostIP"] == SETTINGS.node_ip
        assert status["containerStatuses"][0]["containerID"] == f"tart://{vm}"
        assert [c["status"] for c in status["conditions"] if c["type"] == "Ready"] == ["True"]
        spec = harness.driver.spec(vm)
        assert dict(spec.env)[names.ENV_POD_UID] == pod["metadata"]["uid"]
        assert (spec.cpu_milli, spec.memory_mb) == (4000, 4096)
        review = await harness.kube.review_token(spec.token, audiences=(names.DISPATCH_AUDIENCE,))
        assert review.authenticated and review.pod_uid == pod["metadata"]["uid"]

        await harness.until_phase("p", "Succeeded")
        pod = await harness.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert pod["status"]["reason"] == names.REASON_RUN_EXITED
        await harness.clock.sleep(10)
        assert await harness.driver.list() == (), "an ended VM does not hold its disk"

        await harness.delete_pod("p")
        await harness.until_phase("p", "gone", within=10)
        assert harness.records.load() == {}
        events = await harness.kube.list(EVENTS, namespace=SPACE)
        assert [e["reason"] for e in events.items].count(names.EVENT_CREATING_VM) == 1
        meter = harness.meters[-1]
        assert meter.get(PROVISION_DELAY, pool="a") == meter.get(BOOT_DURATION, pool="a") == 1
        assert harness.driver.history == [vm]

    play(scenario, tmp_path)


def test_a_failed_guest_makes_the_pod_failed_with_its_exit_code(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.codes["p"] = 42
        await harness.add_pod("p")
        await harness.until_phase("p", "Failed")
        pod = await harness.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (42, "Error")

    play(scenario, tmp_path)


def test_the_guest_of_a_deleted_pod_gets_a_shutdown_request_and_its_grace_period(
    tmp_path: Path,
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p", terminationGracePeriodSeconds=60)
        await harness.until_phase("p", "Running")
        await harness.delete_pod("p")
        took = await harness.until_phase("p", "gone", within=30)
        assert harness.shut_down == ["p"]
        assert took >= 3.0, "the guest cleaned up for three seconds"
        assert await harness.driver.list() == ()

    play(scenario, tmp_path)


OTHERS = {
    "no opt-in": ({"labels": {}}, {}),
    "two containers": ({}, {"containers": [{"name": n, "image": IMAGE} for n in "ab"]}),
    "an init container": ({}, {"initContainers": [{"name": "i", "image": IMAGE}]}),
}


@pytest.mark.parametrize(("meta", "spec"), OTHERS.values(), ids=list(OTHERS))
def test_pods_that_did_not_opt_in_are_ignored(
    tmp_path: Path, meta: dict[str, object], spec: dict[str, object]
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.clock.sleep(5)
        containers = [{"name": "c", "image": IMAGE}]
        labels = {names.RUNNER: "true"}
        body = {
            "metadata": {"name": "other", "labels": labels, **meta},
            "spec": {"nodeName": NODE, "containers": containers, **spec},
        }
        await harness.kube.create(PODS, body, namespace=SPACE)
        await harness.clock.sleep(120)
        assert harness.driver.history == []
        pod = await harness.pod("other")
        assert pod is not None and "finalizers" not in pod["metadata"]

    play(scenario, tmp_path)


def test_a_failed_pull_is_published_and_retried(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.fail("pull", ImageMissing("401 from the registry"), times=3)
        await harness.add_pod("p")

        async def published() -> bool:
            pod = await harness.pod("p")
            return pod is not None and "401" in pod["status"].get("message", "")

        await harness.until(published, within=20)
        pod = await harness.pod("p")
        assert pod is not None and pod["status"]["reason"] == names.REASON_CREATE_FAILED
        await harness.until_phase("p", "Running")
        pod = await harness.pod("p")
        assert pod is not None and "reason" not in pod["status"]

    play(scenario, tmp_path)


@pytest.mark.parametrize("method", ["create", "start"])
def test_a_vm_that_cannot_be_created_leaves_the_pod_pending_and_is_retried_with_backoff(
    tmp_path: Path, method: str
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        for attempt in range(4):  # messages that differ each time must not reset the backoff
            harness.driver.fail(method, DriverFailed(f"VZErrorDomain {attempt}"))
        await harness.add_pod("p")
        took = await harness.until_phase("p", "Running")
        assert took > 30 + 5 / 2 + 10 / 2 + 20 / 2 + 40 / 2
        assert len(harness.driver.history) == 1

    play(scenario, tmp_path)


def test_a_repeated_failure_asks_for_nothing_that_the_role_of_hosts_refuses(tmp_path: Path) -> None:
    rules = yaml.safe_load_all((lawtree.ROOT / "deploy" / "roles" / "host.yaml").read_text())
    (verbs,) = [
        rule["verbs"] for role in rules for rule in role["rules"] if rule["resources"] == ["events"]
    ]

    async def scenario(harness: AgentHarness) -> None:
        asked: list[str] = []
        core = harness.core.handle

        async def recorded(request: Request) -> Response | Stream:
            if "/events" in request.path:
                asked.append({"POST": "create"}.get(request.method, request.method.lower()))
            return await core(request)

        harness.core.handle = recorded  # type: ignore[method-assign]  # every later agent uses it
        harness.agent.crash()
        harness.start_agent()
        harness.driver.fail("create", DriverFailed("tart clone failed"), times=3)
        env = [
            {"name": names.ENV_POD_NAME, "value": "p"},
            {"name": names.ENV_DISPATCH_URL, "value": "http://127.0.0.1:4000"},
        ]
        await harness.add_pod("p", containers=[{"name": "runner", "image": IMAGE, "env": env}])
        await harness.until_phase("p", "Running")
        assert asked and not set(asked) - set(verbs), asked

    play(scenario, tmp_path, settings=changed(refuse_loopback=False))


def test_an_environment_that_cannot_be_resolved_is_named_in_the_status(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        secret = {"secretKeyRef": {"name": "s", "key": "k"}}
        env = [{"name": "PASSWORD", "valueFrom": secret}]
        await harness.add_pod("p", containers=[{"name": "c", "image": IMAGE, "env": env}])
        await harness.clock.sleep(60)
        pod = await harness.pod("p")
        assert pod is not None
        assert "Secret s" in pod["status"]["message"], pod["status"]["message"]
        await harness.delete_pod("p")
        await harness.until_phase("p", "gone", within=10)

    play(scenario, tmp_path)


def test_a_deletion_does_not_wait_for_a_pull_and_one_image_is_pulled_once(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["a"] = 1e6
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        await harness.add_pod("b", image="registry/slow@sha256:2")
        await harness.add_pod("c", image="registry/slow@sha256:2")
        await harness.clock.sleep(30)
        await harness.delete_pod("a")
        await harness.until_phase("a", "gone", within=15)
        await harness.delete_pod("b")  # its own pull is under way
        await harness.until_phase("b", "gone", within=15)
        assert await harness.phase("c") == "Pending"
        took = await harness.until_phase("c", "Running", within=3000)
        assert took > 100, "the pull was still going on"

    # 300 GB at 1 GB/s: five minutes.
    play(scenario, tmp_path, host=Host(bandwidth=1e9, image_bytes=300e9, disk=900e9))


def test_slow_probes_and_a_hanging_driver_never_delay_the_lease(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["a"] = 1e6
        await harness.add_pod("a")
        await harness.until_phase("a", "Running")
        for method in ("disk_usage", "list", "images", "pull"):
            harness.driver.hang(method, times=1000)
        renewals: list[str] = []
        for _ in range(60):
            lease = await harness.kube.get(LEASES, NODE, namespace=names.NODE_LEASE_NAMESPACE)
            renewals.append(lease["spec"]["renewTime"])
            await harness.clock.sleep(10)
        assert len(set(renewals)) >= 58
        ready = condition(await harness.node(), "Ready")
        assert (ready["status"], ready["reason"]) == ("Unknown", "DriverSilent")
        harness.driver.heal()
        await harness.clock.sleep(180)
        assert condition(await harness.node(), "Ready")["status"] == "True"
        assert await harness.phase("a") == "Running"

    play(scenario, tmp_path)


def condition(node: dict[str, object], type_: str) -> dict[str, str]:
    found: list[dict[str, str]] = node["status"]["conditions"]  # type: ignore[index]  # plain JSON
    return next(item for item in found if item["type"] == type_)


def test_the_node_is_registered_and_labelled_and_registered_again_after_its_deletion(
    tmp_path: Path,
) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.clock.sleep(60)
        node = await harness.node()
        labels = node["metadata"]["labels"]
        assert labels[names.NODE_FLEET] == "macs"
        assert labels[names.NODE_RUNTIME] == names.NODE_RUNTIME_TART
        assert node["spec"]["taints"][0]["key"] == names.NODE_TAINT
        assert node["status"]["allocatable"] == {"cpu": "8", "memory": "16Gi", "pods": "2"}
        assert condition(node, "DiskPressure")["status"] == "False"
        foreign = {"type": "Sunny", "status": "True"}
        others = [*node["status"]["conditions"], foreign]
        await harness.kube.patch(
            NODES, NODE, {"status": {"conditions": others}}, subresource="status"
        )
        await harness.kube.patch(NODES, NODE, {"metadata": {"labels": {"theirs": "1"}}})
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        await harness.clock.sleep(61)
        node = await harness.node()
        assert node["metadata"]["labels"][names.golden_label(IMAGE)] == "true"
        assert node["metadata"]["labels"]["theirs"] == "1"
        assert condition(node, "Sunny")["status"] == "True"
        await harness.kube.delete(NODES, NODE)
        await harness.clock.sleep(35)
        assert condition(await harness.node(), "Ready")["status"] == "True"

    play(scenario, tmp_path)


def test_disk_pressure_names_the_guest_and_survives_a_failing_probe(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        vm = await vm_of(harness, "p")
        harness.driver.disk_percent[vm] = 93.0
        await harness.clock.sleep(70)
        pressure = condition(await harness.node(), "DiskPressure")
        assert pressure["status"] == "True" and vm in pressure["message"]
        assert harness.meters[-1].get(GUEST_DISK, vm=vm) == 93.0
        assert harness.meters[-1].get(GUEST_DISK_AGE, vm=vm) == 0.0
        since = pressure["lastTransitionTime"]
        harness.driver.fail("disk_usage", DriverFailed("no agent in the guest"), times=3)
        await harness.clock.sleep(90)
        pressure = condition(await harness.node(), "DiskPressure")
        assert (pressure["status"], pressure["lastTransitionTime"]) == ("True", since)
        assert (harness.meters[-1].get(GUEST_DISK_AGE, vm=vm) or 0.0) > 60.0
        harness.agent.crash()
        harness.driver.fail("disk_usage", DriverFailed("no agent in the guest"), times=2)
        harness.start_agent()
        await harness.clock.sleep(35)
        assert condition(await harness.node(), "DiskPressure")["status"] == "True"
        harness.driver.disk_percent[vm] = 40.0
        await harness.clock.sleep(90)
        assert condition(await harness.node(), "DiskPressure")["status"] == "False"
        await harness.delete_pod("p")
        await harness.clock.sleep(60)
        for metric in (GUEST_DISK, GUEST_DISK_AGE):
            assert harness.meters[-1].get(metric, vm=vm) is None

    play(scenario, tmp_path)


def test_a_vm_without_a_record_is_reported_and_never_touched(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.driver.add_foreign_vm("packer-build")
        await harness.add_pod("p")
        await harness.until_phase("p", "Succeeded")
        await harness.delete_pod("p")
        await harness.clock.sleep(2000)
        (left,) = await harness.driver.list()
        assert (left.name, left.state) == ("packer-build", VmState.RUNNING)
        assert harness.meters[-1].get(UNOWNED_VMS) == 1

    play(scenario, tmp_path)


def test_a_vm_whose_pod_is_proven_gone_is_stopped(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        harness.agent.crash()
        # Deleted by force while no agent runs, with its finalizer.
        await harness.kube.patch(PODS, "p", {"metadata": {"finalizers": []}}, namespace=SPACE)
        await harness.delete_pod("p", grace=0)
        assert await harness.pod("p") is None
        harness.start_agent()
        await harness.clock.sleep(120)
        assert await harness.driver.list() == ()
        assert harness.records.load() == {}

    play(scenario, tmp_path)


def test_a_pod_of_the_same_name_is_another_pod(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        first = await vm_of(harness, "p")
        harness.agent.crash()
        await harness.kube.patch(PODS, "p", {"metadata": {"finalizers": []}}, namespace=SPACE)
        await harness.delete_pod("p", grace=0)
        await harness.kube.delete(SERVICE_ACCOUNTS, "p", namespace=SPACE)
        await harness.add_pod("p")
        harness.start_agent()
        await harness.until_phase("p", "Running")
        second = await vm_of(harness, "p")
        assert harness.driver.history == [first, second]

        async def alone() -> bool:
            return [vm.name for vm in await harness.driver.list()] == [second]

        await harness.until(alone, within=120)

    play(scenario, tmp_path)


def test_a_host_that_lost_power_fails_its_pods_and_runs_none_twice(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        harness.agent.crash()
        harness.driver.power_off_host()
        await harness.clock.sleep(600)
        harness.start_agent()
        await harness.until_phase("p", "Failed", within=60)
        pod = await harness.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["reason"] == names.REASON_RUN_FAILED and "power" in ended["message"]
        assert len(harness.driver.history) == 1

    play(scenario, tmp_path)


@pytest.mark.slow
def test_an_unused_image_is_removed_later_and_at_once_when_the_disk_is_full(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        await harness.add_pod("a", image="registry/one@sha256:1")
        await harness.until_phase("a", "Succeeded")
        await harness.delete_pod("a")
        await harness.clock.sleep(600)
        assert harness.driver.has("registry/one@sha256:1")
        # 60 of 100 GB: the second image only fits if the first one is removed.
        await harness.add_pod("b", image="registry/two@sha256:2")
        await harness.until_phase("b", "Succeeded")
        assert [view.reference for view in await harness.driver.images()] == [
            "registry/two@sha256:2"
        ]
        await harness.delete_pod("b")
        await harness.clock.sleep(7300)
        assert await harness.driver.images() == ()

    host = Host(bandwidth=1e9, image_bytes=60e9, disk=100e9, boot_seconds=5.0)
    play(scenario, tmp_path, host=host, settings=changed(image_idle=7200.0 - 400.0))


def test_an_unreadable_record_does_not_stop_the_agent_nor_run_a_pod_twice(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        harness.agent.crash()
        (path,) = tmp_path.glob("*.json")
        path.write_bytes(b"\x00garbage")
        vm = await vm_of(harness, "p")
        await harness.driver.stop(vm, grace=10)
        await harness.driver.delete(vm)
        harness.start_agent()
        await harness.until_phase("p", "Failed", within=60)
        assert harness.driver.history == [vm]
        await harness.delete_pod("p")
        await harness.until_phase("p", "gone", within=30)
        assert [path for path in tmp_path.iterdir() if path.is_file()] == []

    play(scenario, tmp_path)


def test_an_idle_agent_sends_few_requests(tmp_path: Path) -> None:
    async def scenario(harness: AgentHarness) -> None:
        harness.guests["p"] = 1e6
        await harness.add_pod("p")
        await harness.until_phase("p", "Running")
        before = harness.agent.effects
        await harness.clock.sleep(3600)
        # 360 leases, 120 heartbeats of two requests, a few watches and lists.
        assert harness.agent.effects - before < 360 + 2 * 120 + 60

    play(scenario, tmp_path, host=QUICK)
