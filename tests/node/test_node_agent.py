"""The agent end to end: Pods become VMs, once, and nothing of one Pod holds up another."""

from pathlib import Path

import pytest
from tests.node.agentworld import IMAGE, NODE, QUICK, SETTINGS, SPACE, AgentWorld, changed, play

from runyard.kube.kinds import EVENTS, LEASES, NODES, PODS, SERVICE_ACCOUNTS
from runyard.node.metrics import BOOT_DURATION, GUEST_DISK, PROVISION_DELAY, UNOWNED_VMS
from runyard.node.plans.values import vm_name
from runyard.sim.driver import Host
from runyard.vm.contract import DriverFailed, ImageMissing, VmState
from runyard.wire import names


async def vm_of(world: AgentWorld, name: str) -> str:
    pod = await world.pod(name)
    assert pod is not None
    return vm_name(name, pod["metadata"]["uid"])


def test_a_pod_becomes_a_vm_runs_once_and_is_gone(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 100.0
        await world.add_pod("p")
        vm = await vm_of(world, "p")
        await world.until_phase("p", "Running")
        pod = await world.pod("p")
        assert pod is not None
        status = pod["status"]
        assert pod["metadata"]["finalizers"] == [names.VM_FINALIZER]
        assert status["podIP"].startswith("192.168.") and status["hostIP"] == SETTINGS.node_ip
        assert status["containerStatuses"][0]["containerID"] == f"tart://{vm}"
        assert [c["status"] for c in status["conditions"] if c["type"] == "Ready"] == ["True"]
        spec = world.driver.spec(vm)
        assert dict(spec.env)[names.ENV_POD_UID] == pod["metadata"]["uid"]
        assert (spec.cpu_milli, spec.memory_mb) == (4000, 4096)
        review = await world.kube.review_token(spec.token, audiences=(names.DISPATCH_AUDIENCE,))
        assert review.authenticated and review.pod_uid == pod["metadata"]["uid"]

        await world.until_phase("p", "Succeeded")
        pod = await world.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert pod["status"]["reason"] == names.REASON_RUN_EXITED
        await world.clock.sleep(10)
        assert await world.driver.list() == (), "an ended VM does not hold its disk"

        await world.delete_pod("p")
        await world.until_phase("p", "gone", within=10)
        assert world.records.load() == {}
        events = await world.kube.list(EVENTS, namespace=SPACE)
        assert [e["reason"] for e in events.items].count(names.EVENT_CREATING_VM) == 1
        meter = world.meters[-1]
        assert meter.get(PROVISION_DELAY, pool="a") == meter.get(BOOT_DURATION, pool="a") == 1
        assert world.driver.history == [vm]

    play(scenario, tmp_path)


def test_a_failed_guest_is_a_failed_pod_with_its_code(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.codes["p"] = 42
        await world.add_pod("p")
        await world.until_phase("p", "Failed")
        pod = await world.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (42, "Error")

    play(scenario, tmp_path)


def test_a_deleted_pods_guest_is_asked_and_gets_its_grace(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p", terminationGracePeriodSeconds=60)
        await world.until_phase("p", "Running")
        await world.delete_pod("p")
        took = await world.until_phase("p", "gone", within=30)
        assert world.asked == ["p"]
        assert took >= 3.0, "the guest tidied up for three seconds"
        assert await world.driver.list() == ()

    play(scenario, tmp_path)


OTHERS = {
    "no opt-in": ({"labels": {}}, {}),
    "two containers": ({}, {"containers": [{"name": n, "image": IMAGE} for n in "ab"]}),
    "an init container": ({}, {"initContainers": [{"name": "i", "image": IMAGE}]}),
}


@pytest.mark.parametrize(("meta", "spec"), OTHERS.values(), ids=list(OTHERS))
def test_pods_of_others_are_left_alone(
    tmp_path: Path, meta: dict[str, object], spec: dict[str, object]
) -> None:
    async def scenario(world: AgentWorld) -> None:
        await world.clock.sleep(5)
        containers = [{"name": "c", "image": IMAGE}]
        labels = {names.RUNNER: "true"}
        body = {
            "metadata": {"name": "other", "labels": labels, **meta},
            "spec": {"nodeName": NODE, "containers": containers, **spec},
        }
        await world.kube.create(PODS, body, namespace=SPACE)
        await world.clock.sleep(120)
        assert world.driver.history == []
        pod = await world.pod("other")
        assert pod is not None and "finalizers" not in pod["metadata"]

    play(scenario, tmp_path)


def test_a_pull_that_fails_says_so_and_is_tried_again(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.driver.fail("pull", ImageMissing("401 from the registry"), times=3)
        await world.add_pod("p")

        async def said() -> bool:
            pod = await world.pod("p")
            return pod is not None and "401" in pod["status"].get("message", "")

        await world.until(said, within=20)
        pod = await world.pod("p")
        assert pod is not None and pod["status"]["reason"] == names.REASON_CREATE_FAILED
        await world.until_phase("p", "Running")
        pod = await world.pod("p")
        assert pod is not None and "reason" not in pod["status"]

    play(scenario, tmp_path)


@pytest.mark.parametrize("method", ["create", "start"])
def test_what_cannot_be_created_is_pending_and_retried_with_backoff(
    tmp_path: Path, method: str
) -> None:
    async def scenario(world: AgentWorld) -> None:
        for attempt in range(4):  # words that differ each time must not defeat the backoff
            world.driver.fail(method, DriverFailed(f"VZErrorDomain {attempt}"))
        await world.add_pod("p")
        took = await world.until_phase("p", "Running")
        assert took > 30 + 5 / 2 + 10 / 2 + 20 / 2 + 40 / 2
        assert len(world.driver.history) == 1

    play(scenario, tmp_path)


def test_an_environment_that_cannot_be_resolved_is_named_in_the_status(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        secret = {"secretKeyRef": {"name": "s", "key": "k"}}
        env = [{"name": "PASSWORD", "valueFrom": secret}]
        await world.add_pod("p", containers=[{"name": "c", "image": IMAGE, "env": env}])
        await world.clock.sleep(60)
        pod = await world.pod("p")
        assert pod is not None
        assert "PASSWORD" in pod["status"]["message"] and "secretKeyRef" in pod["status"]["message"]
        await world.delete_pod("p")
        await world.until_phase("p", "gone", within=10)

    play(scenario, tmp_path)


def test_a_deletion_does_not_wait_for_a_pull_and_one_image_is_pulled_once(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["a"] = 1e6
        await world.add_pod("a")
        await world.until_phase("a", "Running")
        await world.add_pod("b", image="registry/slow@sha256:2")
        await world.add_pod("c", image="registry/slow@sha256:2")
        await world.clock.sleep(30)
        await world.delete_pod("a")
        await world.until_phase("a", "gone", within=15)
        await world.delete_pod("b")  # its own pull is under way
        await world.until_phase("b", "gone", within=15)
        assert await world.phase("c") == "Pending"
        took = await world.until_phase("c", "Running", within=3000)
        assert took > 100, "the pull was still going on"

    # 300 GB at 1 GB/s: five minutes.
    play(scenario, tmp_path, host=Host(bandwidth=1e9, image_bytes=300e9, disk=900e9))


def test_slow_probes_and_a_hanging_driver_never_delay_the_lease(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["a"] = 1e6
        await world.add_pod("a")
        await world.until_phase("a", "Running")
        for method in ("disk_usage", "list", "images", "pull"):
            world.driver.hang(method, times=1000)
        renewals: list[str] = []
        for _ in range(60):
            lease = await world.kube.get(LEASES, NODE, namespace=names.NODE_LEASE_NAMESPACE)
            renewals.append(lease["spec"]["renewTime"])
            await world.clock.sleep(10)
        assert len(set(renewals)) >= 58
        ready = condition(await world.node(), "Ready")
        assert (ready["status"], ready["reason"]) == ("Unknown", "DriverSilent")
        world.driver.heal()
        await world.clock.sleep(180)
        assert condition(await world.node(), "Ready")["status"] == "True"
        assert await world.phase("a") == "Running"

    play(scenario, tmp_path)


def condition(node: dict[str, object], type_: str) -> dict[str, str]:
    found: list[dict[str, str]] = node["status"]["conditions"]  # type: ignore[index]  # plain JSON
    return next(item for item in found if item["type"] == type_)


def test_the_node_is_registered_labelled_and_comes_back(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        await world.clock.sleep(60)
        node = await world.node()
        labels = node["metadata"]["labels"]
        assert labels[names.NODE_FLEET] == "macs"
        assert labels[names.NODE_RUNTIME] == names.NODE_RUNTIME_TART
        assert node["spec"]["taints"][0]["key"] == names.NODE_TAINT
        assert node["status"]["allocatable"] == {"cpu": "8", "memory": "16Gi", "pods": "2"}
        assert condition(node, "DiskPressure")["status"] == "False"
        foreign = {"type": "Sunny", "status": "True"}
        others = [*node["status"]["conditions"], foreign]
        await world.kube.patch(
            NODES, NODE, {"status": {"conditions": others}}, subresource="status"
        )
        await world.kube.patch(NODES, NODE, {"metadata": {"labels": {"theirs": "1"}}})
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        await world.clock.sleep(61)
        node = await world.node()
        assert node["metadata"]["labels"][names.golden_label(IMAGE)] == "true"
        assert node["metadata"]["labels"]["theirs"] == "1"
        assert condition(node, "Sunny")["status"] == "True"
        await world.kube.delete(NODES, NODE)
        await world.clock.sleep(35)
        assert condition(await world.node(), "Ready")["status"] == "True"

    play(scenario, tmp_path)


def test_disk_pressure_names_the_guest_and_survives_a_failing_probe(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        vm = await vm_of(world, "p")
        world.driver.disk_percent[vm] = 93.0
        await world.clock.sleep(70)
        pressure = condition(await world.node(), "DiskPressure")
        assert pressure["status"] == "True" and vm in pressure["message"]
        assert world.meters[-1].get(GUEST_DISK, vm=vm) == 93.0
        since = pressure["lastTransitionTime"]
        world.driver.fail("disk_usage", DriverFailed("no agent in the guest"), times=3)
        await world.clock.sleep(90)
        pressure = condition(await world.node(), "DiskPressure")
        assert (pressure["status"], pressure["lastTransitionTime"]) == ("True", since)
        world.agent.crash()
        world.driver.fail("disk_usage", DriverFailed("no agent in the guest"), times=2)
        world.start_agent()
        await world.clock.sleep(35)
        assert condition(await world.node(), "DiskPressure")["status"] == "True"
        world.driver.disk_percent[vm] = 40.0
        await world.clock.sleep(90)
        assert condition(await world.node(), "DiskPressure")["status"] == "False"
        await world.delete_pod("p")
        await world.clock.sleep(60)
        assert world.meters[-1].get(GUEST_DISK, vm=vm) is None

    play(scenario, tmp_path)


def test_a_vm_of_somebody_else_is_reported_and_survives_everything(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.driver.add_foreign_vm("packer-build")
        await world.add_pod("p")
        await world.until_phase("p", "Succeeded")
        await world.delete_pod("p")
        await world.clock.sleep(2000)
        (left,) = await world.driver.list()
        assert (left.name, left.state) == ("packer-build", VmState.RUNNING)
        assert world.meters[-1].get(UNOWNED_VMS) == 1

    play(scenario, tmp_path)


def test_an_orphan_is_stopped_with_proof_and_not_without(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        world.agent.crash()
        # Gone by force while nobody looked, finalizer and all.
        await world.kube.patch(PODS, "p", {"metadata": {"finalizers": []}}, namespace=SPACE)
        await world.delete_pod("p", grace=0)
        assert await world.pod("p") is None
        world.start_agent()
        await world.clock.sleep(120)
        assert await world.driver.list() == ()
        assert world.records.load() == {}

    play(scenario, tmp_path)


def test_a_pod_of_the_same_name_is_another_pod(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        first = await vm_of(world, "p")
        world.agent.crash()
        await world.kube.patch(PODS, "p", {"metadata": {"finalizers": []}}, namespace=SPACE)
        await world.delete_pod("p", grace=0)
        await world.kube.delete(SERVICE_ACCOUNTS, "p", namespace=SPACE)
        await world.add_pod("p")
        world.start_agent()
        await world.until_phase("p", "Running")
        second = await vm_of(world, "p")
        assert world.driver.history == [first, second]

        async def alone() -> bool:
            return [vm.name for vm in await world.driver.list()] == [second]

        await world.until(alone, within=120)

    play(scenario, tmp_path)


def test_a_host_without_power_fails_its_pods_and_runs_nothing_twice(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        world.agent.crash()
        world.driver.power_off_host()
        await world.clock.sleep(600)
        world.start_agent()
        await world.until_phase("p", "Failed", within=60)
        pod = await world.pod("p")
        assert pod is not None
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["reason"] == names.REASON_RUN_FAILED and "power" in ended["message"]
        assert len(world.driver.history) == 1

    play(scenario, tmp_path)


@pytest.mark.slow
def test_an_unused_image_goes_and_a_full_disk_makes_it_go_at_once(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        await world.add_pod("a", image="registry/one@sha256:1")
        await world.until_phase("a", "Succeeded")
        await world.delete_pod("a")
        await world.clock.sleep(600)
        assert await world.driver.images() == ("registry/one@sha256:1",)
        # 60 of 100 GB: the second image only fits if the first one goes.
        await world.add_pod("b", image="registry/two@sha256:2")
        await world.until_phase("b", "Succeeded")
        assert await world.driver.images() == ("registry/two@sha256:2",)
        await world.delete_pod("b")
        await world.clock.sleep(7300)
        assert await world.driver.images() == ()

    host = Host(bandwidth=1e9, image_bytes=60e9, disk=100e9, boot_seconds=5.0)
    play(scenario, tmp_path, host=host, settings=changed(image_idle=7200.0 - 400.0))


def test_an_unreadable_record_does_not_stop_the_agent_nor_run_a_pod_twice(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        world.agent.crash()
        (path,) = tmp_path.glob("*.json")
        path.write_bytes(b"\x00garbage")
        vm = await vm_of(world, "p")
        await world.driver.stop(vm, grace=10)
        await world.driver.delete(vm)
        world.start_agent()
        await world.until_phase("p", "Failed", within=60)
        assert world.driver.history == [vm]
        await world.delete_pod("p")
        await world.until_phase("p", "gone", within=30)
        assert list(tmp_path.iterdir()) == []

    play(scenario, tmp_path)


def test_a_quiet_host_asks_little(tmp_path: Path) -> None:
    async def scenario(world: AgentWorld) -> None:
        world.guests["p"] = 1e6
        await world.add_pod("p")
        await world.until_phase("p", "Running")
        before = world.agent.effects
        await world.clock.sleep(3600)
        # 360 leases, 120 heartbeats of two requests, a few watches and lists.
        assert world.agent.effects - before < 360 + 2 * 120 + 60

    play(scenario, tmp_path, host=QUICK)
