"""Node lifecycle: silence, taints, eviction, and Pods whose node is gone."""

from typing import Any

from tests.embedded.kube.coresupport import NODE_LEASES, NODES, PODS, Harness, node, play, pod

from runyard.wire.instants import to_rfc3339, to_rfc3339_micro

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady"}]}}


def ready(harness: Harness, name: str = "n1") -> str:
    found = harness.core.find("nodes", "", name)
    assert found is not None
    return next(item["status"] for item in found["status"]["conditions"] if item["type"] == "Ready")


def taints(harness: Harness, name: str = "n1") -> list[tuple[str, str]]:
    found = harness.core.find("nodes", "", name)
    assert found is not None
    return [(item["key"], item["effect"]) for item in found["spec"].get("taints", [])]


def find(harness: Harness, name: str) -> dict[str, Any] | None:
    return harness.core.find("pods", "default", name)


def deleting(harness: Harness, name: str) -> bool:
    found = find(harness, name)
    return found is not None and "deletionTimestamp" in found["metadata"]


async def join(harness: Harness, name: str = "n1") -> None:
    await harness.ok("POST", NODES, node(name, pods="10"))
    await harness.ok(
        "POST", NODE_LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
    )


async def renew(harness: Harness, name: str = "n1", *, skew: float = 0.0) -> None:
    spec = {"renewTime": to_rfc3339_micro(harness.clock.now() + skew)}
    await harness.merge(f"{NODE_LEASES}/{name}", {"spec": spec})


async def stay_alive(harness: Harness, seconds: int, *, skew: float = 0.0) -> None:
    for _ in range(seconds // 10):
        await renew(harness, skew=skew)
        await harness.pass_time(10)


async def silence(harness: Harness, seconds: int) -> None:
    """Advances time with heartbeats of one unschedulable node only, so the server does not suspect its own network."""
    if harness.core.find("nodes", "", "witness") is None:
        await harness.ok("POST", NODES, node("witness", spec={"unschedulable": True}))
        lease = {"metadata": {"name": "witness"}, "spec": {"holderIdentity": "witness"}}
        await harness.ok("POST", NODE_LEASES, lease)
    for _ in range(seconds // 5):
        await renew(harness, "witness")
        await harness.pass_time(5)


def test_a_silent_node_is_unknown_and_only_its_own_status_makes_it_ready_again() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await stay_alive(harness, 120)
        assert ready(harness) == "True" and taints(harness) == []
        await silence(harness, 45)
        assert ready(harness) == "Unknown"
        assert taints(harness) == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        await harness.ok("DELETE", f"{NODES}/witness")
        await harness.pass_time(5)
        quiet = harness.core.version
        await harness.pass_time(60)
        assert harness.core.version == quiet
        await renew(harness)
        await harness.pass_time(5)
        assert ready(harness) == "Unknown"
        await harness.merge(f"{NODES}/n1/status", READY)
        assert ready(harness) == "True" and taints(harness) == []
        await stay_alive(harness, 60)
        assert ready(harness) == "True"

    play(scenario)


def test_another_clients_write_to_a_lease_is_no_heartbeat() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        for index in range(6):
            await harness.merge(f"{NODE_LEASES}/n1", {"metadata": {"labels": {"x": str(index)}}})
            await harness.pass_time(10)
        assert ready(harness) == "Unknown"

    play(scenario)


def test_a_host_with_a_wrong_clock_is_not_marked_unknown() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await stay_alive(harness, 120, skew=-86400)
        assert ready(harness) == "True"

    play(scenario)


def test_another_clients_write_to_a_node_is_no_heartbeat() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        for number in range(10):
            condition = {"type": "Strange", "status": "True", "message": str(number)}
            conditions = [{"type": "Ready", "status": "True"}, condition]
            await harness.merge(f"{NODES}/n1/status", {"status": {"conditions": conditions}})
            await harness.pass_time(10)
        assert ready(harness) == "Unknown"

    play(scenario)


def test_a_status_is_the_heartbeat_of_a_node_without_a_lease() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        for _ in range(10):
            now = to_rfc3339(harness.clock.now())
            conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]
            await harness.merge(f"{NODES}/n1/status", {"status": {"conditions": conditions}})
            await harness.pass_time(30)
        assert ready(harness) == "True"
        await harness.pass_time(15)
        assert ready(harness) == "Unknown"

    play(scenario)


def test_an_unhealthy_node_is_tainted_and_other_taints_stay() -> None:
    async def scenario(harness: Harness) -> None:
        own = {"key": "example.com/own", "effect": "NoSchedule"}
        await harness.ok("POST", NODES, node(spec={"taints": [own]}))
        bad = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await harness.merge(f"{NODES}/n1/status", bad)
        first = [("example.com/own", "NoSchedule"), (NOT_READY, "NoSchedule")]
        assert taints(harness) == first
        await silence(harness, 5)
        assert taints(harness) == [*first, (NOT_READY, "NoExecute")]
        await harness.merge(f"{NODES}/n1/status", READY)
        assert taints(harness) == [("example.com/own", "NoSchedule")]

    play(scenario)


def test_pods_of_a_lost_node_are_evicted_and_wait_for_their_agent() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        patient = [
            {
                "key": UNREACHABLE,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 600,
            }
        ]
        loyal = [{"operator": "Exists"}]
        await harness.ok("POST", PODS, pod("plain"))
        await harness.ok("POST", PODS, pod("patient", tolerations=patient))
        await harness.ok("POST", PODS, pod("loyal", tolerations=loyal))
        await silence(harness, 45 + 290)
        assert not deleting(harness, "plain")
        await silence(harness, 15)
        assert [deleting(harness, name) for name in ("plain", "patient", "loyal")] == [
            True,
            False,
            False,
        ]
        await silence(harness, 300)
        assert [deleting(harness, name) for name in ("plain", "patient", "loyal")] == [
            True,
            True,
            False,
        ]
        await silence(harness, 3600)
        assert find(harness, "plain") is not None
        await harness.ok("DELETE", f"{PODS}/plain", {"gracePeriodSeconds": 0})
        assert find(harness, "plain") is None

    play(scenario)


def test_a_node_that_returns_in_time_keeps_its_pods() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await harness.ok("POST", PODS, pod("a"))
        await harness.pass_time(200)
        await renew(harness)
        await harness.merge(f"{NODES}/n1/status", READY)
        await stay_alive(harness, 300)
        assert not deleting(harness, "a")

    play(scenario)


def test_pods_of_a_long_lost_node_are_removed_if_configured() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await harness.ok("POST", PODS, pod("a"))
        await harness.ok("POST", PODS, pod("held", meta={"finalizers": ["example.com/hold"]}))
        await harness.pass_time(45 + 605)
        assert find(harness, "a") is None
        assert deleting(harness, "held")

    play(scenario, pod_gc_after=600.0)


def test_pods_whose_node_object_is_gone_are_removed_after_a_quarantine() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await harness.ok("POST", PODS, pod("a"))
        await harness.ok("DELETE", f"{NODES}/n1")
        await harness.pass_time(30)
        assert find(harness, "a") is not None
        await harness.pass_time(15)
        assert find(harness, "a") is None

    play(scenario)


def test_a_node_that_registers_again_keeps_its_pods() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        await harness.ok("POST", PODS, pod("a"))
        await harness.ok("DELETE", f"{NODES}/n1")
        await harness.pass_time(30)
        await harness.ok("POST", NODES, node(pods="10"))
        await harness.pass_time(30)
        assert find(harness, "a") is not None

    play(scenario)


def test_run_controllers_ticks() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness)
        try:
            async with harness.clock.timeout(50):
                await harness.core.run_controllers()
        except TimeoutError:
            pass
        assert ready(harness) == "Unknown"

    play(scenario)
