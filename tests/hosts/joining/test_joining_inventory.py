"""Tests that hosts are listed as they are, drained without harm, and removed whole."""

import asyncio
from typing import Any

import pytest
from tests.hosts.joining.joinsupport import Main, on_main

from runyard.cli.hostrun import _row
from runyard.hosts.joining import inventory
from runyard.hosts.joining.inventory import HostOfMain, Load, UnknownHost
from runyard.kube.errors import NotFound
from runyard.kube.kinds import (
    LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from runyard.kube.lease import renew_lease
from runyard.wire import names, rights

SPACE = names.RUNNERS_NAMESPACE


async def node(main: Main, name: str, *, runtime: str = "process") -> None:
    labels = {names.NODE_RUNTIME: runtime} if runtime else {}
    await main.kube.create(NODES, {"metadata": {"name": name, "labels": labels}})
    status: dict[str, Any] = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "TartKubeletReady"}],
        "allocatable": {"pods": "2"},
        "nodeInfo": {"kubeletVersion": "tart-kubelet-v0"},
    }
    await main.kube.patch(NODES, name, {"status": status}, subresource="status")
    await renew_lease(
        main.kube,
        name=name,
        namespace=names.NODE_LEASE_NAMESPACE,
        holder=name,
        duration=40,
        now=1000.0,
    )


async def pod(main: Main, name: str, host: str, *, busy: bool = False, phase: str = "") -> None:
    labels = {names.POOL_OWNER: "acme"} if busy else {}
    containers = [{"name": "runner", "image": "i"}]
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": host, "containers": containers},
    }
    await main.kube.create(PODS, body, namespace=SPACE)
    if phase:
        await main.kube.patch(
            PODS, name, {"status": {"phase": phase}}, namespace=SPACE, subresource="status"
        )


def test_a_host_is_listed_with_what_runs_on_it() -> None:
    async def test(main: Main) -> None:
        await main.join(name="mini-2")
        await node(main, "mini-2")
        await node(main, "host-1")
        await pod(main, "idle", "mini-2")
        await pod(main, "busy", "mini-2", busy=True)
        await pod(main, "ended", "mini-2", busy=True, phase="Succeeded")
        await inventory.cordon(main.kube, "host-1", cordoned=True)
        own, joined = await inventory.hosts(main.kube)
        assert (own.name, own.cordoned, own.joined, own.used) == ("host-1", True, False, 0)
        assert (joined.name, joined.joined, joined.cordoned) == ("mini-2", True, False)
        assert (joined.used, joined.busy, joined.slots) == (2, 1, 2)
        assert (joined.ready, joined.driver, joined.version) == (
            "True",
            "process",
            "tart-kubelet-v0",
        )
        assert joined.heartbeat == 1000.0

    on_main(test)


def test_a_credential_whose_agent_never_started_is_shown_and_can_be_removed() -> None:
    async def test(main: Main) -> None:
        given = await main.join(name="mini-2")
        await node(main, "host-1")
        own, quiet = await inventory.hosts(main.kube)
        assert (own.name, own.seen) == ("host-1", True)
        assert (quiet.name, quiet.joined, quiet.seen, quiet.heartbeat) == (
            "mini-2",
            True,
            False,
            None,
        )
        assert "no: never seen" in _row(quiet, 0.0)
        assert await inventory.remove(main.kube, "mini-2")
        assert [each.name for each in await inventory.hosts(main.kube)] == ["host-1"]
        assert (await main.renew(given.token)).status == 401

    on_main(test)


def test_cordoning_twice_changes_nothing_and_an_unknown_host_is_an_error() -> None:
    async def test(main: Main) -> None:
        await node(main, "mini-2")
        changed = [
            await inventory.cordon(main.kube, "mini-2", cordoned=each)
            for each in (True, True, False, False)
        ]
        assert changed == [True, False, True, False]
        with pytest.raises(UnknownHost):
            await inventory.cordon(main.kube, "mini-9", cordoned=True)

    on_main(test)


def test_a_drain_waits_until_the_last_pod_has_ended() -> None:
    async def test(main: Main) -> None:
        await node(main, "mini-2")
        await pod(main, "idle", "mini-2")
        await pod(main, "busy", "mini-2", busy=True)
        seen: list[Load] = []
        real = main.clock.sleep

        async def quick(seconds: float) -> None:
            left = ("idle", "busy")[len(seen) - 1]
            body = {"status": {"phase": "Succeeded"}}
            await main.kube.patch(PODS, left, body, namespace=SPACE, subresource="status")
            await real(0)

        main.clock.sleep = quick  # type: ignore[method-assign]  # each wait of the drain ends a Pod
        async for load in inventory.emptying(main.kube, "mini-2", clock=main.clock):
            seen.append(load)
        assert seen == [Load(2, 1), Load(1, 1), Load(0, 0)]

    asyncio.run(asyncio.wait_for(_prepared(test), 30))


async def _prepared(test: Any) -> None:
    main = Main()
    await main.prepare()
    await test(main)


def test_removing_a_host_leaves_nothing_of_it_and_can_be_repeated() -> None:
    async def test(main: Main) -> None:
        await main.join(name="mini-2")
        await node(main, "mini-2")
        assert await inventory.remove(main.kube, "mini-2")
        account = rights.host_account("mini-2")
        for kind, name, space in (
            (NODES, "mini-2", ""),
            (LEASES, "mini-2", names.NODE_LEASE_NAMESPACE),
            (SERVICE_ACCOUNTS, account, names.CONTROLLER_NAMESPACE),
            (ROLE_BINDINGS, account, SPACE),
        ):
            with pytest.raises(NotFound):
                await main.kube.get(kind, name, namespace=space)
        assert not await inventory.remove(main.kube, "mini-2")

    on_main(test)


def test_a_removed_host_is_nothing_to_remove_although_its_pods_are_still_ending() -> None:
    async def test(main: Main) -> None:
        await main.join(name="mini-2")
        await node(main, "mini-2")
        await pod(main, "idle", "mini-2")
        assert await inventory.check_removable(main.kube, "mini-2")
        await inventory.remove(main.kube, "mini-2")
        assert await inventory.load(main.kube, "mini-2") == Load(1, 0)
        assert not await inventory.check_removable(main.kube, "mini-2")

    on_main(test)


def test_a_removal_that_was_interrupted_is_completed() -> None:
    async def test(main: Main) -> None:
        await node(main, "mini-2")  # its account is gone already
        assert await inventory.remove(main.kube, "mini-2")
        assert await inventory.hosts(main.kube) == ()

    on_main(test)


@pytest.mark.parametrize("runtime", ["", "kvm"], ids=["no label", "another runtime"])
def test_a_node_that_is_no_host_of_ours_is_not_deleted(runtime: str) -> None:
    async def test(main: Main) -> None:
        await node(main, "worker-7", runtime=runtime)
        with pytest.raises(HostOfMain):
            await inventory.remove(main.kube, "worker-7")
        assert len(await inventory.hosts(main.kube)) == 1

    on_main(test)


def test_a_host_of_the_main_machine_is_not_removed_by_mistake() -> None:
    async def test(main: Main) -> None:
        body = {"metadata": {"name": rights.host_account("host-1")}}
        await main.kube.create(SERVICE_ACCOUNTS, body, namespace=names.CONTROLLER_NAMESPACE)
        await node(main, "host-1")
        with pytest.raises(HostOfMain):
            await inventory.remove(main.kube, "host-1")
        assert len(await inventory.hosts(main.kube)) == 1

    on_main(test)
