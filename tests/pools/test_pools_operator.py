"""The operator against the embedded Kubernetes API."""

import pytest
from tests.pools.pool_builders import NEW, OLD
from tests.pools.pool_harness import NS, Yard, play

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
    async def scenario(yard: Yard) -> None:
        for number in range(5):
            await yard.host(f"host-{number}")
        await yard.pool(4)
        async with yard.working():
            await yard.clock.sleep(40)
            assert len(yard.running()) == 4
            assert sorted(yard.accounts()) == sorted(yard.names())
            assert all(name.startswith("mac-runner-") for name in yard.names())
            assert yard.status()["observedReplicas"] == 4
            await yard.set(replicas=1)
            await yard.clock.sleep(10)
            assert len(yard.names()) == 1
            assert yard.accounts() == yard.names()
            assert len(yard.reports) == 3
            await yard.set(replicas=0)
            await yard.clock.sleep(10)
            assert yard.names() == yard.accounts() == []
            assert yard.status()["observedReplicas"] == 0

    play(scenario, seed=seed)


def test_a_steady_pool_is_left_in_peace() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(120)
            yard.gate.log.clear()
            before = yard.meter.total(catalogue.RUNYARD_RECONCILE_TOTAL)
            await yard.clock.sleep(600)
            assert yard.meter.total(catalogue.RUNYARD_RECONCILE_TOTAL) - before <= 11
            writes = [entry for entry in yard.gate.log if entry[0] != "GET"]
            assert 8 <= len(writes) <= 11, writes  # one sign of life a minute
            assert {method for method, _ in writes} == {"PATCH"}

    play(scenario)


@SEEDS
def test_an_ended_runner_is_reported_replaced_and_removed(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (first,) = yard.running()
            await yard.stamp(first)
            await yard.finish(first)
            await yard.clock.sleep(5)
            (second,) = yard.names()
            assert second != first
            assert yard.reports == [first]
            assert yard.accounts() == [second]

    play(scenario, seed=seed)


@SEEDS
def test_a_stamp_between_plan_and_deletion_saves_the_pod(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (name,) = yard.running()

            async def stamp_first(request: Request) -> None:
                if request.method == "DELETE" and request.path.endswith(f"/pods/{name}"):
                    yard.gate.before = None
                    await yard.stamp(name)

            yard.gate.before = stamp_first
            await yard.set(replicas=0)
            await yard.clock.sleep(300)
            assert yard.gate.before is None
            assert yard.running() == yard.accounts() == [name]
            await yard.finish(name)
            await yard.clock.sleep(5)
            assert yard.names() == yard.accounts() == []
            assert yard.reports == [name, name]  # the first was a mistake, the second is the end

    play(scenario, seed=seed)


def test_a_runner_that_was_saved_is_not_replaced_and_its_real_end_is_reported() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.host("host-1")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (pod,) = yard.pods()
            name = pod["metadata"]["name"]

            async def stamp_first(request: Request) -> None:
                if request.method == "DELETE" and request.path.endswith(f"/pods/{name}"):
                    yard.gate.before = None
                    await yard.stamp(name)

            yard.gate.before = stamp_first
            yard.gate.log.clear()
            await yard.kube.patch(NODES, pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
            await yard.clock.sleep(60)
            assert yard.gate.before is None
            assert yard.names() == [name]
            created = [
                path for method, path in yard.gate.log if method == "POST" and "/pods" in path
            ]
            assert created == []
            assert yard.reports == [name]
            yard.hosts_work = False  # it takes a while to go
            await yard.kube.delete(PODS, name, namespace=NS)
            await yard.clock.sleep(5)
            assert yard.reports == [name, name]
            await yard.clock.sleep(120)
            assert yard.reports == [name, name]

    play(scenario)


def test_an_account_stays_while_its_pod_exists_even_if_the_pod_is_not_seen() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.host("host-1")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (name,) = yard.running()
            body = {"metadata": {"labels": {names.RUNNER: None}}}
            await yard.kube.patch(PODS, name, body, namespace=NS)
            await yard.clock.sleep(600)
            assert len(yard.names()) == 2
            assert sorted(yard.accounts()) == sorted(yard.names())
            await yard.kube.delete(PODS, name, namespace=NS)
            await yard.clock.sleep(120)
            assert len(yard.names()) == 1
            assert yard.accounts() == yard.names()

    play(scenario)


def test_a_pod_whose_newest_version_cannot_be_read_is_left_alone() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (name,) = yard.running()
            yard.gate.garbled = (b'"startTime":"1999-01-01T00:00:00Z"', b'"startTime":7')
            strange = {"status": {"startTime": "1999-01-01T00:00:00Z"}}
            await yard.kube.patch(PODS, name, strange, namespace=NS, subresource="status")
            await yard.clock.sleep(1)
            yard.gate.log.clear()
            await yard.set(replicas=0)
            await yard.clock.sleep(100)
            assert [entry for entry in yard.gate.log if entry[0] == "DELETE"] == []
            assert yard.reports == []
            sane = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
            await yard.kube.patch(PODS, name, sane, namespace=NS, subresource="status")
            await yard.clock.sleep(100)
            assert yard.names() == yard.accounts() == []

    play(scenario)


@SEEDS
def test_a_lagging_watch_does_not_create_twice(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(3):
            await yard.host(f"host-{number}")
        await yard.pool(3)
        deaf = False

        async def hide(request: Request) -> Response | None:
            if deaf and request.method == "GET" and request.path.endswith("/pods"):
                raise NotSent("no route")
            return None

        yard.gate.before = hide
        async with yard.working():
            await yard.clock.sleep(40)
            deaf = True
            yard.core.close_watches()
            for name in yard.running():
                await yard.finish(name)
            await yard.set(replicas=5)
            await yard.clock.sleep(600)
            assert len(yard.names()) == 5
            deaf = False
            await yard.clock.sleep(120)
            assert len(yard.names()) == 5
            assert sorted(yard.accounts()) == sorted(yard.names())

    play(scenario, seed=seed)


@SEEDS
@pytest.mark.parametrize("carried_out", [True, False], ids=["carried-out", "lost"])
def test_a_creation_without_an_answer_counts_until_it_is_looked_up(
    seed: int, carried_out: bool
) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(3):
            await yard.host(f"host-{number}")
        await yard.pool(3)
        left = 2

        async def cut(request: Request) -> Response | None:
            nonlocal left
            if is_create(request, "pods") and left:
                left -= 1
                raise OutcomeUnknown("cut")
            return None

        if carried_out:
            yard.gate.after = cut
        else:
            yard.gate.before = cut
        async with yard.working():
            await yard.clock.sleep(300)
            assert left == 0
            assert len(yard.running()) == 3
            assert sorted(yard.accounts()) == sorted(yard.names())
            created = [
                path for method, path in yard.gate.log if method == "POST" and "/pods" in path
            ]
            assert len(created) == (3 if carried_out else 5)

    play(scenario, seed=seed)


@SEEDS
def test_an_account_that_could_not_be_deleted_is_found_again(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        broken = True

        async def refuse(request: Request) -> Response | None:
            if broken and request.method == "DELETE" and "/serviceaccounts/" in request.path:
                return Response(status=500)
            return None

        yard.gate.before = refuse
        async with yard.working():
            await yard.clock.sleep(40)
            (name,) = yard.running()
            await yard.set(replicas=0)
            await yard.clock.sleep(30)
            assert yard.names() == []
            assert yard.accounts() == [name]
            broken = False
            await yard.clock.sleep(300)
            assert yard.accounts() == []

    play(scenario, seed=seed)


def test_a_refused_creation_leaves_no_account_and_is_not_hammered() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool(50)

        async def refuse(request: Request) -> Response | None:
            return Response(status=403) if is_create(request, "pods") else None

        yard.gate.before = refuse
        async with yard.working():
            await yard.clock.sleep(100)
            assert yard.names() == yard.accounts() == []
            tries = [path for method, path in yard.gate.log if method == "POST"]
            assert len(tries) <= 10

    play(scenario)


@pytest.mark.slow
def test_runners_that_fail_at_once_are_not_replaced_at_once_for_ever() -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(4):
            await yard.host(f"host-{number}")
        await yard.pool(4)
        yard.boot, yard.boots_to = 0.0, "Failed"
        async with yard.working():
            await yard.clock.sleep(3600)
            tries = [path for method, path in yard.gate.log if method == "POST" and "/pods" in path]
            assert 4 * 10 <= len(tries) <= 4 * 25
            yard.boots_to = "Running"
            await yard.clock.sleep(400)
            assert len(yard.running()) == 4

    play(scenario)


@SEEDS
def test_a_roll_keeps_the_pool_serving_and_ends(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(8):
            await yard.host(f"host-{number}")
        await yard.pool(8, image=OLD, rollout={"maxConcurrentPercent": 25})
        async with yard.working():
            await yard.clock.sleep(60)
            await yard.set(image=NEW)
            low = 8
            for _ in range(600):
                await yard.clock.sleep(1)
                low = min(low, len(yard.running()))
                for pod in yard.pods():
                    # The guest's poll is answered with "drain": it exits.
                    labels = pod["metadata"]["labels"]
                    if labels.get(names.DRAIN_ELIGIBLE) and pod["status"]["phase"] == "Running":
                        await yard.finish(pod["metadata"]["name"])
            assert low >= 6
            assert {pod["spec"]["containers"][0]["image"] for pod in yard.pods()} == {NEW}
            assert len(yard.running()) == 8
            gauge = catalogue.TUIST_RUNNERS_POOL_STALE_PODS
            assert yard.meter.get(gauge, pool="mac") == 0
            assert yard.status()["observedImage"] == NEW

    play(scenario, seed=seed)


def test_a_marked_guest_that_never_polls_is_replaced_too() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1, image=OLD)
        async with yard.working():
            await yard.clock.sleep(40)
            await yard.set(image=NEW)
            await yard.clock.sleep(600)
            (pod,) = yard.pods()
            assert pod["spec"]["containers"][0]["image"] == NEW

    play(scenario)


@SEEDS
def test_a_cordoned_host_loses_its_idle_runner_and_keeps_its_busy_one(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(3):
            await yard.host(f"host-{number}")
        await yard.pool(2)
        async with yard.working():
            await yard.clock.sleep(40)
            idle, busy = yard.pods()
            await yard.stamp(busy["metadata"]["name"])
            for pod in (idle, busy):
                body = {"spec": {"unschedulable": True}}
                await yard.kube.patch(NODES, pod["spec"]["nodeName"], body)
            await yard.clock.sleep(60)
            assert idle["metadata"]["name"] not in yard.names()
            assert busy["metadata"]["name"] in yard.running()
            assert len(yard.running()) == 2

    play(scenario, seed=seed)


@pytest.mark.slow
@SEEDS
def test_a_deleted_pool_waits_for_its_job(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(2):
            await yard.host(f"host-{number}")
        await yard.pool(2)
        async with yard.working():
            await yard.clock.sleep(40)
            busy = yard.running()[0]
            await yard.stamp(busy)
            await yard.clock.sleep(1)
            await yard.kube.delete(RUNNER_POOLS, "mac", namespace=NS)
            await yard.clock.sleep(3600)
            assert yard.running() == yard.accounts() == [busy]
            await yard.finish(busy)
            await yard.clock.sleep(60)
            assert yard.names() == yard.accounts() == []
            assert yard.core.objects("runnerpools") == ()
            gauge = catalogue.TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP
            assert yard.meter.get(gauge, pool="mac") is None

    play(scenario, seed=seed)


def test_a_start_that_leads_nowhere_is_given_up_with_its_account() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        yard.boot = 1e9
        async with yard.working():
            await yard.clock.sleep(100)
            (first,) = yard.names()
            await yard.clock.sleep(1700)
            assert yard.names() == [first]
            await yard.clock.sleep(200)
            (second,) = yard.names()
            assert second != first
            assert yard.accounts() == [second]
            counter = catalogue.TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL
            assert yard.meter.get(counter, pool="mac", reason="poller_not_started") == 1
            reasons = [event["reason"] for event in yard.core.objects("events")]
            assert "RunnerPodStartTimedOut" in reasons

    play(scenario)


def test_a_deletion_is_forced_once_its_host_is_gone() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(1)
        async with yard.working():
            await yard.clock.sleep(40)
            (name,) = yard.running()
            body = {"metadata": {"finalizers": [names.VM_FINALIZER, "test/other"]}}
            await yard.kube.patch(PODS, name, body, namespace=NS)
            yard.hosts_work = False
            await yard.set(replicas=0)
            await yard.clock.sleep(900)
            assert yard.names() == [name]
            stuck = {
                "component": "operator",
                "action": "stuck-termination",
                "outcome": "host-still-there",
            }
            assert yard.meter.get(catalogue.RUNYARD_ACTIONS_TOTAL, **stuck) == 1
            await yard.kube.delete(NODES, "host-0")
            await yard.clock.sleep(120)
            (pod,) = yard.pods()
            assert pod["metadata"]["finalizers"] == ["test/other"]  # not ours to strip
            await yard.kube.patch(PODS, name, {"metadata": {"finalizers": []}}, namespace=NS)
            await yard.clock.sleep(120)
            assert yard.names() == yard.accounts() == []

    play(scenario)


def test_before_every_cache_is_filled_nothing_is_done() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.host("host-0")
        await yard.pool(3)
        dark = True

        async def hide(request: Request) -> Response | None:
            if dark and request.path.endswith("/nodes"):
                return Response(status=503)
            return None

        yard.gate.before = hide
        async with yard.working():
            await yard.clock.sleep(300)
            assert [entry for entry in yard.gate.log if entry[0] != "GET"] == []
            dark = False
            await yard.clock.sleep(60)
            assert len(yard.names()) == 3

    play(scenario)


def test_the_operator_writes_only_fields_that_it_owns() -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool(0, autoscaling={"enabled": True, "minWarmPoolFloor": 0})
        before = yard.core.find("runnerpools", NS, "mac")
        async with yard.working():
            await yard.clock.sleep(200)
        after = yard.core.find("runnerpools", NS, "mac")
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

    async def scenario(yard: Yard) -> None:
        for number in range(6):
            await yard.host(f"host-{number}")
        await yard.pool(4)
        async with yard.working():
            await yard.clock.sleep(60)
        yard.operator = yard.new_operator(5)
        for name in yard.running()[:2]:
            await yard.finish(name)
        await yard.set(image=OLD)
        assert await yard.run_until_crash(at, sent=sent) or at > 10
        async with yard.working():
            for _ in range(90):
                await yard.clock.sleep(10)
                for pod in yard.pods():
                    marked = names.DRAIN_ELIGIBLE in pod["metadata"]["labels"]
                    if marked and pod["status"]["phase"] == "Running":
                        await yard.finish(pod["metadata"]["name"])
            assert len(yard.running()) == 4
            assert sorted(yard.accounts()) == sorted(yard.names()) == sorted(yard.running())
            assert {pod["spec"]["containers"][0]["image"] for pod in yard.pods()} == {OLD}

    play(scenario)


@SEEDS
def test_sibling_pools_share_the_places_to_start_and_none_starves(seed: int) -> None:
    async def scenario(yard: Yard) -> None:
        for number in range(3):
            await yard.host(f"host-{number}", slots=10, os="linux")
        await yard.runtime("kata-qemu")
        linux = {"os": "linux", "runtimeClass": "kata-qemu"}
        for name in ("big", "small"):
            await yard.pool(8, name=name, **linux)
        most = 0
        async with yard.working():
            for _ in range(300):
                await yard.clock.sleep(1)
                cold = [p for p in yard.pods() if not p["status"].get("initContainerStatuses")]
                most = max(most, len(cold))
            assert most == 4
            assert len(yard.names()) == 16
            pending = catalogue.TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS
            assert yard.meter.get(pending, pool="big") == 0

    play(scenario, seed=seed)
