"""Tests the operator against the embedded Kubernetes API."""

import pytest
from tests.pools.pool_builders import NEW, OLD
from tests.pools.pool_harness import NS, PoolHarness, play

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS
from runyard.telemetry import catalogue
from runyard.wire import names

SEEDS = pytest.mark.parametrize("seed", range(5))


def is_create(request: Request, plural: str) -> bool:
    return request.method == "POST" and request.path.endswith(f"/{plural}")


@SEEDS
def test_a_pool_is_filled_shrunk_and_leaves_no_account_behind(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(5):
            await harness.host(f"host-{number}")
        await harness.pool(4)
        async with harness.working():
            await harness.clock.sleep(40)
            assert len(harness.running()) == 4
            assert sorted(harness.accounts()) == sorted(harness.names())
            assert all(name.startswith("mac-runner-") for name in harness.names())
            assert harness.status()["observedReplicas"] == 4
            await harness.set(replicas=1)
            await harness.clock.sleep(10)
            assert len(harness.names()) == 1
            assert harness.accounts() == harness.names()
            assert len(harness.reports) == 3
            await harness.set(replicas=0)
            await harness.clock.sleep(10)
            assert harness.names() == harness.accounts() == []
            assert harness.status()["observedReplicas"] == 0

    play(scenario, seed=seed)


def test_a_steady_pool_causes_few_writes() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(120)
            harness.gate.log.clear()
            before = harness.meter.total(catalogue.RUNYARD_RECONCILE_TOTAL)
            await harness.clock.sleep(600)
            assert harness.meter.total(catalogue.RUNYARD_RECONCILE_TOTAL) - before <= 11
            writes = [entry for entry in harness.gate.log if entry[0] != "GET"]
            assert 8 <= len(writes) <= 11, writes  # one heartbeat a minute
            assert {method for method, _ in writes} == {"PATCH"}

    play(scenario)


@SEEDS
def test_an_ended_runner_is_reported_replaced_and_removed(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (first,) = harness.running()
            await harness.stamp(first)
            await harness.finish(first)
            await harness.clock.sleep(5)
            (second,) = harness.names()
            assert second != first
            assert harness.reports == [first]
            assert harness.accounts() == [second]

    play(scenario, seed=seed)


@SEEDS
def test_a_stamp_between_plan_and_deletion_prevents_the_deletion(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (name,) = harness.running()

            async def stamp_first(request: Request) -> None:
                if request.method == "DELETE" and request.path.endswith(f"/pods/{name}"):
                    harness.gate.before = None
                    await harness.stamp(name)

            harness.gate.before = stamp_first
            await harness.set(replicas=0)
            await harness.clock.sleep(300)
            assert harness.gate.before is None
            assert harness.running() == harness.accounts() == [name]
            await harness.finish(name)
            await harness.clock.sleep(5)
            assert harness.names() == harness.accounts() == []
            assert harness.reports == [
                name,
                name,
            ]  # the first deletion was refused, the second is the end

    play(scenario, seed=seed)


def test_a_runner_whose_deletion_was_refused_is_not_replaced_and_its_real_end_is_reported() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.host("host-1")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (pod,) = harness.pods()
            name = pod["metadata"]["name"]

            async def stamp_first(request: Request) -> None:
                if request.method == "DELETE" and request.path.endswith(f"/pods/{name}"):
                    harness.gate.before = None
                    await harness.stamp(name)

            harness.gate.before = stamp_first
            harness.gate.log.clear()
            await harness.kube.patch(
                NODES, pod["spec"]["nodeName"], {"spec": {"unschedulable": True}}
            )
            await harness.clock.sleep(60)
            assert harness.gate.before is None
            assert harness.names() == [name]
            created = [
                path for method, path in harness.gate.log if method == "POST" and "/pods" in path
            ]
            assert created == []
            assert harness.reports == [name]
            harness.hosts_work = False  # its deletion takes a while
            await harness.kube.delete(PODS, name, namespace=NS)
            await harness.clock.sleep(5)
            assert harness.reports == [name, name]
            await harness.clock.sleep(120)
            assert harness.reports == [name, name]

    play(scenario)


def test_an_account_stays_while_its_pod_exists_even_if_the_pod_is_not_seen() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.host("host-1")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (name,) = harness.running()
            body = {"metadata": {"labels": {names.RUNNER: None}}}
            await harness.kube.patch(PODS, name, body, namespace=NS)
            await harness.clock.sleep(600)
            assert len(harness.names()) == 2
            assert sorted(harness.accounts()) == sorted(harness.names())
            await harness.kube.delete(PODS, name, namespace=NS)
            await harness.clock.sleep(120)
            assert len(harness.names()) == 1
            assert harness.accounts() == harness.names()

    play(scenario)


def test_a_pod_whose_newest_version_cannot_be_read_is_not_deleted() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (name,) = harness.running()
            harness.gate.garbled = (b'"startTime":"1999-01-01T00:00:00Z"', b'"startTime":7')
            strange = {"status": {"startTime": "1999-01-01T00:00:00Z"}}
            await harness.kube.patch(PODS, name, strange, namespace=NS, subresource="status")
            await harness.clock.sleep(1)
            harness.gate.log.clear()
            await harness.set(replicas=0)
            await harness.clock.sleep(100)
            assert [entry for entry in harness.gate.log if entry[0] == "DELETE"] == []
            assert harness.reports == []
            sane = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
            await harness.kube.patch(PODS, name, sane, namespace=NS, subresource="status")
            await harness.clock.sleep(100)
            assert harness.names() == harness.accounts() == []

    play(scenario)


@SEEDS
def test_a_lagging_watch_does_not_create_twice(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(3)
        hidden = False

        async def hide(request: Request) -> Response | None:
            if hidden and request.method == "GET" and request.path.endswith("/pods"):
                raise NotSent("no route")
            return None

        harness.gate.before = hide
        async with harness.working():
            await harness.clock.sleep(40)
            hidden = True
            harness.core.close_watches()
            for name in harness.running():
                await harness.finish(name)
            await harness.set(replicas=5)
            await harness.clock.sleep(600)
            assert len(harness.names()) == 5
            hidden = False
            await harness.clock.sleep(120)
            assert len(harness.names()) == 5
            assert sorted(harness.accounts()) == sorted(harness.names())

    play(scenario, seed=seed)


@SEEDS
@pytest.mark.parametrize("carried_out", [True, False], ids=["carried-out", "lost"])
def test_a_creation_without_a_response_counts_until_it_is_read(
    seed: int, carried_out: bool
) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(3)
        left = 2

        async def cut(request: Request) -> Response | None:
            nonlocal left
            if is_create(request, "pods") and left:
                left -= 1
                raise OutcomeUnknown("cut")
            return None

        if carried_out:
            harness.gate.after = cut
        else:
            harness.gate.before = cut
        async with harness.working():
            await harness.clock.sleep(300)
            assert left == 0
            assert len(harness.running()) == 3
            assert sorted(harness.accounts()) == sorted(harness.names())
            created = [
                path for method, path in harness.gate.log if method == "POST" and "/pods" in path
            ]
            assert len(created) == (3 if carried_out else 5)

    play(scenario, seed=seed)


@SEEDS
def test_an_account_that_could_not_be_deleted_is_deleted_later(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        broken = True

        async def refuse(request: Request) -> Response | None:
            if broken and request.method == "DELETE" and "/serviceaccounts/" in request.path:
                return Response(status=500)
            return None

        harness.gate.before = refuse
        async with harness.working():
            await harness.clock.sleep(40)
            (name,) = harness.running()
            await harness.set(replicas=0)
            await harness.clock.sleep(30)
            assert harness.names() == []
            assert harness.accounts() == [name]
            broken = False
            await harness.clock.sleep(300)
            assert harness.accounts() == []

    play(scenario, seed=seed)


def test_a_refused_creation_leaves_no_account_and_backs_off() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.pool(50)

        async def refuse(request: Request) -> Response | None:
            return Response(status=403) if is_create(request, "pods") else None

        harness.gate.before = refuse
        async with harness.working():
            await harness.clock.sleep(100)
            assert harness.names() == harness.accounts() == []
            tries = [path for method, path in harness.gate.log if method == "POST"]
            assert len(tries) <= 10

    play(scenario)


@pytest.mark.slow
def test_runners_that_fail_at_once_are_replaced_with_backoff() -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(4):
            await harness.host(f"host-{number}")
        await harness.pool(4)
        harness.boot, harness.boots_to = 0.0, "Failed"
        async with harness.working():
            await harness.clock.sleep(3600)
            tries = [
                path for method, path in harness.gate.log if method == "POST" and "/pods" in path
            ]
            assert 4 * 10 <= len(tries) <= 4 * 25
            harness.boots_to = "Running"
            await harness.clock.sleep(400)
            assert len(harness.running()) == 4

    play(scenario)


@SEEDS
def test_a_roll_keeps_the_pool_serving_and_ends(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(8):
            await harness.host(f"host-{number}")
        await harness.pool(8, image=OLD, rollout={"maxConcurrentPercent": 25})
        async with harness.working():
            await harness.clock.sleep(60)
            await harness.set(image=NEW)
            low = 8
            for _ in range(600):
                await harness.clock.sleep(1)
                low = min(low, len(harness.running()))
                for pod in harness.pods():
                    # The guest's poll is answered with "drain": it exits.
                    labels = pod["metadata"]["labels"]
                    if labels.get(names.DRAIN_ELIGIBLE) and pod["status"]["phase"] == "Running":
                        await harness.finish(pod["metadata"]["name"])
            assert low >= 6
            assert {pod["spec"]["containers"][0]["image"] for pod in harness.pods()} == {NEW}
            assert len(harness.running()) == 8
            gauge = catalogue.TUIST_RUNNERS_POOL_STALE_PODS
            assert harness.meter.get(gauge, pool="mac") == 0
            assert harness.status()["observedImage"] == NEW

    play(scenario, seed=seed)


def test_a_marked_runner_that_never_polls_is_replaced() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1, image=OLD)
        async with harness.working():
            await harness.clock.sleep(40)
            await harness.set(image=NEW)
            await harness.clock.sleep(600)
            (pod,) = harness.pods()
            assert pod["spec"]["containers"][0]["image"] == NEW

    play(scenario)


@SEEDS
def test_a_cordoned_host_loses_its_idle_runner_and_keeps_its_busy_one(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(2)
        async with harness.working():
            await harness.clock.sleep(40)
            idle, busy = harness.pods()
            await harness.stamp(busy["metadata"]["name"])
            for pod in (idle, busy):
                body = {"spec": {"unschedulable": True}}
                await harness.kube.patch(NODES, pod["spec"]["nodeName"], body)
            await harness.clock.sleep(60)
            assert idle["metadata"]["name"] not in harness.names()
            assert busy["metadata"]["name"] in harness.running()
            assert len(harness.running()) == 2

    play(scenario, seed=seed)


@pytest.mark.slow
@SEEDS
def test_a_deleted_pool_waits_for_its_job(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(2):
            await harness.host(f"host-{number}")
        await harness.pool(2)
        async with harness.working():
            await harness.clock.sleep(40)
            busy = harness.running()[0]
            await harness.stamp(busy)
            await harness.clock.sleep(1)
            await harness.kube.delete(RUNNER_POOLS, "mac", namespace=NS)
            await harness.clock.sleep(3600)
            assert harness.running() == harness.accounts() == [busy]
            await harness.finish(busy)
            await harness.clock.sleep(60)
            assert harness.names() == harness.accounts() == []
            assert harness.core.objects("runnerpools") == ()
            gauge = catalogue.TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP
            assert harness.meter.get(gauge, pool="mac") is None

    play(scenario, seed=seed)


def test_a_runner_that_does_not_start_in_time_is_deleted_with_its_account() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        harness.boot = 1e9
        async with harness.working():
            await harness.clock.sleep(100)
            (first,) = harness.names()
            await harness.clock.sleep(1700)
            assert harness.names() == [first]
            await harness.clock.sleep(200)
            (second,) = harness.names()
            assert second != first
            assert harness.accounts() == [second]
            counter = catalogue.TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL
            assert harness.meter.get(counter, pool="mac", reason="poller_not_started") == 1
            reasons = [event["reason"] for event in harness.core.objects("events")]
            assert "RunnerPodStartTimedOut" in reasons

    play(scenario)


def test_a_deletion_is_forced_once_its_host_is_gone() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(40)
            (name,) = harness.running()
            body = {"metadata": {"finalizers": [names.VM_FINALIZER, "test/other"]}}
            await harness.kube.patch(PODS, name, body, namespace=NS)
            harness.hosts_work = False
            await harness.set(replicas=0)
            await harness.clock.sleep(900)
            assert harness.names() == [name]
            stuck = {
                "component": "operator",
                "action": "stuck-termination",
                "outcome": "host-still-there",
            }
            assert harness.meter.get(catalogue.RUNYARD_ACTIONS_TOTAL, **stuck) == 1
            await harness.kube.delete(NODES, "host-0")
            await harness.clock.sleep(120)
            (pod,) = harness.pods()
            assert pod["metadata"]["finalizers"] == [
                "test/other"
            ]  # other controllers' finalizers stay
            await harness.kube.patch(PODS, name, {"metadata": {"finalizers": []}}, namespace=NS)
            await harness.clock.sleep(120)
            assert harness.names() == harness.accounts() == []

    play(scenario)


def test_nothing_is_written_before_every_cache_is_filled() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(3)
        hidden = True

        async def hide(request: Request) -> Response | None:
            if hidden and request.path.endswith("/nodes"):
                return Response(status=503)
            return None

        harness.gate.before = hide
        async with harness.working():
            await harness.clock.sleep(300)
            assert [entry for entry in harness.gate.log if entry[0] != "GET"] == []
            hidden = False
            await harness.clock.sleep(60)
            assert len(harness.names()) == 3

    play(scenario)


def test_the_operator_writes_only_fields_that_it_owns() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.pool(0, autoscaling={"enabled": True, "minWarmPoolFloor": 0})
        before = harness.core.find("runnerpools", NS, "mac")
        async with harness.working():
            await harness.clock.sleep(200)
        after = harness.core.find("runnerpools", NS, "mac")
        assert before is not None and after is not None
        assert after["spec"] == before["spec"]
        assert after["metadata"]["finalizers"] == [names.POOL_DRAIN_FINALIZER]
        assert set(after["status"]) == {
            "conditions",
            "observedReplicas",
            "observedImage",
            "imageRolledAt",
            "lastReconcile",
        }

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("at", range(1, 14))
def test_a_crash_at_any_write_leaves_nothing_behind(at: int, sent: bool) -> None:
    """The first operator fills a pool from which half of the runners have just ended."""

    async def scenario(harness: PoolHarness) -> None:
        for number in range(6):
            await harness.host(f"host-{number}")
        await harness.pool(4)
        async with harness.working():
            await harness.clock.sleep(60)
        harness.operator = harness.new_operator(5)
        for name in harness.running()[:2]:
            await harness.finish(name)
        await harness.set(image=OLD)
        assert await harness.run_until_crash(at, sent=sent) or at > 10
        async with harness.working():
            for _ in range(90):
                await harness.clock.sleep(10)
                for pod in harness.pods():
                    marked = names.DRAIN_ELIGIBLE in pod["metadata"]["labels"]
                    if marked and pod["status"]["phase"] == "Running":
                        await harness.finish(pod["metadata"]["name"])
            assert len(harness.running()) == 4
            assert (
                sorted(harness.accounts()) == sorted(harness.names()) == sorted(harness.running())
            )
            assert {pod["spec"]["containers"][0]["image"] for pod in harness.pods()} == {OLD}

    play(scenario)


@SEEDS
def test_sibling_pools_share_the_provisioning_ceiling_and_none_starves(seed: int) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}", slots=10, os="linux")
        await harness.runtime("kata-qemu")
        linux = {"os": "linux", "runtimeClass": "kata-qemu"}
        for name in ("big", "small"):
            await harness.pool(8, name=name, **linux)
        most = 0
        async with harness.working():
            for _ in range(300):
                await harness.clock.sleep(1)
                cold = [p for p in harness.pods() if not p["status"].get("initContainerStatuses")]
                most = max(most, len(cold))
            assert most == 4
            assert len(harness.names()) == 16
            pending = catalogue.TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS
            assert harness.meter.get(pending, pool="big") == 0

    play(scenario, seed=seed)
