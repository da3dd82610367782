"""The components' client against this core: both interpret requests alike."""

import asyncio
import random

import pytest
from tests.embedded.kube.coresupport import Harness, node, play, pod, pool

from runyard.http.loopback import Loopback
from runyard.kube import errors
from runyard.kube.client import Kube
from runyard.kube.kinds import CONFIG_MAPS, NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.kube.objects import Pod, RunnerPool
from runyard.kube.reflector import Reflector, Scope, WatchDeps
from runyard.telemetry.meter import Meter

SPACE = "tuist-runners"


def client(harness: Harness) -> Kube:
    return Kube(Loopback(harness.core.handle))


def test_objects_round_trip_through_the_client() -> None:
    async def scenario(harness: Harness) -> None:
        kube = client(harness)
        await kube.create(NODES, node())
        await kube.create(RUNNER_POOLS, pool(), namespace=SPACE)
        await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "r"}}, namespace=SPACE)
        await kube.create(PODS, pod("r", serviceAccountName="r"), namespace=SPACE)
        seen = await kube.get_as(PODS, "r", Pod, namespace=SPACE)
        assert seen.spec.node_name == "n1" and seen.status.phase == "Pending"
        found = await kube.get_as(RUNNER_POOLS, "mac", RunnerPool, namespace=SPACE)
        assert found.spec.os == "darwin"
        uid = seen.metadata.uid
        token = await kube.create_token(
            "r", namespace=SPACE, audience="x", seconds=600, pod_name="r", pod_uid=uid
        )
        review = await kube.review_token(token, audiences=("x",))
        assert (review.authenticated, review.pod_name, review.pod_uid) == (True, "r", uid)
        await kube.apply(
            PODS, "r", {"metadata": {"labels": {"a": "b"}}}, manager="m", namespace=SPACE
        )
        await kube.delete(PODS, "r", namespace=SPACE, uid=uid, grace=0)
        with pytest.raises(errors.NotFound):
            await kube.get(PODS, "r", namespace=SPACE)

    play(scenario)


def test_refusals_arrive_as_their_own_errors() -> None:
    async def scenario(harness: Harness) -> None:
        kube = client(harness)
        made = await kube.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace=SPACE)
        with pytest.raises(errors.AlreadyExists):
            await kube.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace=SPACE)
        with pytest.raises(errors.Invalid):
            await kube.create(CONFIG_MAPS, {"metadata": {"name": "A"}}, namespace=SPACE)
        with pytest.raises(errors.Conflict):
            await kube.patch(CONFIG_MAPS, "a", {"data": {}}, namespace=SPACE, uid="another")
        with pytest.raises(errors.Conflict):
            await kube.delete(CONFIG_MAPS, "a", namespace=SPACE, resource_version="1")
        same = await kube.get(CONFIG_MAPS, "a", namespace=SPACE)
        assert same["metadata"]["uid"] == made["metadata"]["uid"]

    play(scenario)


def test_a_reflector_follows_through_compaction_and_restarts() -> None:
    async def scenario(harness: Harness) -> None:
        kube = client(harness)
        mirror = Reflector(
            WatchDeps(kube=kube, clock=harness.clock, rng=random.Random(3), meter=Meter()),
            PODS,
            Pod,
            scope=Scope(namespace="default"),
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(mirror.run())
            await mirror.synced.wait()
            for index in range(30):
                await kube.create(PODS, pod(f"p{index}"), namespace="default")
                if index % 5 == 0:
                    harness.core.close_watches()
                if index % 7 == 0:
                    harness.core.compact()
                    harness.core.expire_watches()
                if index % 3 == 0:
                    await kube.delete(PODS, f"p{index}", namespace="default")
                await harness.clock.sleep(random.Random(index).uniform(0, 2))
            await harness.clock.sleep(120)
            names = sorted(item["metadata"]["name"] for item in harness.core.objects("pods"))
            assert sorted(seen.metadata.name for seen in mirror.store.values()) == names
            running.cancel()

    play(scenario)
