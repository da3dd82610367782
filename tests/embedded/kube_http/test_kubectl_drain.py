"""`kubectl drain` empties a host, and after `uncordon` it takes Pods again."""

import asyncio

from tests.embedded.kube_http.kubectlsupport import PODS, SPACE, Play, Served, pod

ALL = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")


def is_deleting(served: Served, name: str) -> bool:
    found = served.core.find("pods", SPACE, name)
    return found is not None and "deletionTimestamp" in found["metadata"]


async def agent(served: Served, name: str) -> None:
    """Acts as the agent: stops that Pod once it is deleted."""
    while not is_deleting(served, name):
        await asyncio.sleep(0)
    await served.write("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_a_drained_host_is_empty_and_takes_pods_again(play: Play) -> None:
    async def scenario(served: Served) -> None:
        assert (served.core.find("pods", SPACE, "mac-1") or {})["spec"]["nodeName"] == "mini-1"
        process = await served.start("drain", "mini-1", *ALL)
        await agent(served, "mac-1")
        out, err = await process.communicate()
        assert process.returncode == 0, (err, served.request_log)
        assert b"evicting pod tuist-runners/mac-1" in out + err
        assert f"POST {PODS}/mac-1/eviction 201" in served.request_log
        assert served.core.find("pods", SPACE, "mac-1") is None
        assert "SchedulingDisabled" in await served.kubectl("get", "nodes")
        waiting = served.core.find("pods", SPACE, "mac-2") or {}
        assert "nodeName" not in waiting["spec"]
        assert "FailedScheduling" in await served.kubectl("describe", "pod", "mac-2")
        await served.kubectl("uncordon", "mini-1")
        placed = served.core.find("pods", SPACE, "mac-2") or {}
        assert placed["spec"]["nodeName"] == "mini-1"

    play(scenario)


def test_a_pod_without_a_controller_is_not_drained_without_force(play: Play) -> None:
    async def scenario(served: Served) -> None:
        code, _, error = await served.run("drain", "mini-1", "--ignore-daemonsets")
        assert code == 1 and "declare no controller" in error
        assert not is_deleting(served, "mac-1")

    play(scenario)


def test_a_pod_of_a_pool_is_drained_without_force(play: Play) -> None:
    async def scenario(served: Served) -> None:
        await served.write("DELETE", f"{PODS}/mac-1", {"gracePeriodSeconds": 0})
        await served.write("DELETE", f"{PODS}/mac-2", {"gracePeriodSeconds": 0})
        pool = served.core.find("runnerpools", SPACE, "mac") or {}
        owner = {
            "apiVersion": pool["apiVersion"],
            "kind": pool["kind"],
            "name": "mac",
            "uid": pool["metadata"]["uid"],
            "controller": True,
        }
        made = pod("owned")
        made["metadata"]["ownerReferences"] = [owner]
        made["spec"]["volumes"] = [{"name": "work", "emptyDir": {}}]
        await served.write("POST", PODS, made)
        code, _, error = await served.run("drain", "mini-1")
        assert code == 1 and "local storage" in error
        process = await served.start("drain", "mini-1", "--delete-emptydir-data")
        await agent(served, "owned")
        _, err = await process.communicate()
        assert process.returncode == 0, err

    play(scenario)


def test_a_drain_dry_run_evicts_nothing(play: Play) -> None:
    async def scenario(served: Served) -> None:
        before = served.core.version
        await served.kubectl("drain", "mini-1", *ALL, "--dry-run=server")
        assert served.core.version == before

    play(scenario)
