"""Node lifecycle: silence, taints, eviction, and Pods whose node is gone."""

from typing import Any

from tests.embedded.kube.coresupport import NODE_LEASES, NODES, PODS, World, node, play, pod

from runyard.wire.instants import to_rfc3339, to_rfc3339_micro

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady"}]}}


def ready(world: World, name: str = "n1") -> str:
    found = world.core.find("nodes", "", name)
    assert found is not None
    return next(item["status"] for item in found["status"]["conditions"] if item["type"] == "Ready")


def taints(world: World, name: str = "n1") -> list[tuple[str, str]]:
    found = world.core.find("nodes", "", name)
    assert found is not None
    return [(item["key"], item["effect"]) for item in found["spec"].get("taints", [])]


def find(world: World, name: str) -> dict[str, Any] | None:
    return world.core.find("pods", "default", name)


def deleting(world: World, name: str) -> bool:
    found = find(world, name)
    return found is not None and "deletionTimestamp" in found["metadata"]


async def join(world: World, name: str = "n1") -> None:
    await world.ok("POST", NODES, node(name, pods="10"))
    await world.ok(
        "POST", NODE_LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
    )


async def renew(world: World, name: str = "n1", *, skew: float = 0.0) -> None:
    spec = {"renewTime": to_rfc3339_micro(world.clock.now() + skew)}
    await world.merge(f"{NODE_LEASES}/{name}", {"spec": spec})


async def stay_alive(world: World, seconds: int, *, skew: float = 0.0) -> None:
    for _ in range(seconds // 10):
        await renew(world, skew=skew)
        await world.pass_time(10)


async def silence(world: World, seconds: int) -> None:
    """Advances time with heartbeats of one unschedulable node only, so the server does not suspect its own network."""
    if world.core.find("nodes", "", "witness") is None:
        await world.ok("POST", NODES, node("witness", spec={"unschedulable": True}))
        lease = {"metadata": {"name": "witness"}, "spec": {"holderIdentity": "witness"}}
        await world.ok("POST", NODE_LEASES, lease)
    for _ in range(seconds // 5):
        await renew(world, "witness")
        await world.pass_time(5)


def test_a_silent_node_is_unknown_and_only_its_own_status_makes_it_ready_again() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await stay_alive(world, 120)
        assert ready(world) == "True" and taints(world) == []
        await silence(world, 45)
        assert ready(world) == "Unknown"
        assert taints(world) == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        await world.ok("DELETE", f"{NODES}/witness")
        await world.pass_time(5)
        quiet = world.core.version
        await world.pass_time(60)
        assert world.core.version == quiet
        await renew(world)
        await world.pass_time(5)
        assert ready(world) == "Unknown"
        await world.merge(f"{NODES}/n1/status", READY)
        assert ready(world) == "True" and taints(world) == []
        await stay_alive(world, 60)
        assert ready(world) == "True"

    play(scenario)


def test_another_clients_write_to_a_lease_is_no_heartbeat() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        for index in range(6):
            await world.merge(f"{NODE_LEASES}/n1", {"metadata": {"labels": {"x": str(index)}}})
            await world.pass_time(10)
        assert ready(world) == "Unknown"

    play(scenario)


def test_a_host_with_a_wrong_clock_is_not_marked_unknown() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await stay_alive(world, 120, skew=-86400)
        assert ready(world) == "True"

    play(scenario)


def test_another_clients_write_to_a_node_is_no_heartbeat() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, node())
        for number in range(10):
            told = {"type": "Strange", "status": "True", "message": str(number)}
            conditions = [{"type": "Ready", "status": "True"}, told]
            await world.merge(f"{NODES}/n1/status", {"status": {"conditions": conditions}})
            await world.pass_time(10)
        assert ready(world) == "Unknown"

    play(scenario)


def test_a_status_is_the_heartbeat_of_a_node_without_a_lease() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, node())
        for _ in range(10):
            now = to_rfc3339(world.clock.now())
            conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]
            await world.merge(f"{NODES}/n1/status", {"status": {"conditions": conditions}})
            await world.pass_time(30)
        assert ready(world) == "True"
        await world.pass_time(15)
        assert ready(world) == "Unknown"

    play(scenario)


def test_an_unhealthy_node_is_tainted_and_other_taints_stay() -> None:
    async def scenario(world: World) -> None:
        own = {"key": "example.com/own", "effect": "NoSchedule"}
        await world.ok("POST", NODES, node(spec={"taints": [own]}))
        bad = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await world.merge(f"{NODES}/n1/status", bad)
        first = [("example.com/own", "NoSchedule"), (NOT_READY, "NoSchedule")]
        assert taints(world) == first
        await silence(world, 5)
        assert taints(world) == [*first, (NOT_READY, "NoExecute")]
        await world.merge(f"{NODES}/n1/status", READY)
        assert taints(world) == [("example.com/own", "NoSchedule")]

    play(scenario)


def test_pods_of_a_lost_node_are_evicted_and_wait_for_their_agent() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        patient = [
            {
                "key": UNREACHABLE,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 600,
            }
        ]
        loyal = [{"operator": "Exists"}]
        await world.ok("POST", PODS, pod("plain"))
        await world.ok("POST", PODS, pod("patient", tolerations=patient))
        await world.ok("POST", PODS, pod("loyal", tolerations=loyal))
        await silence(world, 45 + 290)
        assert not deleting(world, "plain")
        await silence(world, 15)
        assert [deleting(world, name) for name in ("plain", "patient", "loyal")] == [
            True,
            False,
            False,
        ]
        await silence(world, 300)
        assert [deleting(world, name) for name in ("plain", "patient", "loyal")] == [
            True,
            True,
            False,
        ]
        await silence(world, 3600)
        assert find(world, "plain") is not None
        await world.ok("DELETE", f"{PODS}/plain", {"gracePeriodSeconds": 0})
        assert find(world, "plain") is None

    play(scenario)


def test_a_node_that_returns_in_time_keeps_its_pods() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await world.ok("POST", PODS, pod("a"))
        await world.pass_time(200)
        await renew(world)
        await world.merge(f"{NODES}/n1/status", READY)
        await stay_alive(world, 300)
        assert not deleting(world, "a")

    play(scenario)


def test_pods_of_a_long_lost_node_are_removed_if_configured() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await world.ok("POST", PODS, pod("a"))
        await world.ok("POST", PODS, pod("held", meta={"finalizers": ["example.com/hold"]}))
        await world.pass_time(45 + 605)
        assert find(world, "a") is None
        assert deleting(world, "held")

    play(scenario, pod_gc_after=600.0)


def test_pods_whose_node_object_is_gone_are_removed_after_a_quarantine() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await world.ok("POST", PODS, pod("a"))
        await world.ok("DELETE", f"{NODES}/n1")
        await world.pass_time(30)
        assert find(world, "a") is not None
        await world.pass_time(15)
        assert find(world, "a") is None

    play(scenario)


def test_a_node_that_registers_again_keeps_its_pods() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        await world.ok("POST", PODS, pod("a"))
        await world.ok("DELETE", f"{NODES}/n1")
        await world.pass_time(30)
        await world.ok("POST", NODES, node(pods="10"))
        await world.pass_time(30)
        assert find(world, "a") is not None

    play(scenario)


def test_run_controllers_ticks() -> None:
    async def scenario(world: World) -> None:
        await join(world)
        try:
            async with world.clock.timeout(50):
                await world.core.run_controllers()
        except TimeoutError:
            pass
        assert ready(world) == "Unknown"

    play(scenario)
