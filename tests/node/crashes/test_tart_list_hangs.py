"""While `tart list` hangs the host stays alive, sibling Pods end in time, and the Node says what is wrong.

With a real agent and the product's own intervals, which takes minutes: the simulator's tests say the same in CI.
"""

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kube import clusters
from tests.node.tart_host import IMAGE, NODE, SPACE, TartHost, tart_host

from runyard.kube.kinds import LEASES, PODS
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

WORKS = """#!/bin/sh
while :; do sleep 0.1; done
"""
GRACE = 20
RENEWALS = 7
LONGEST_GAP = 15.0  # seconds between two renewals of the lease
STALE = (
    240.0  # seconds until the Node must say that its driver does not answer, and that it does again
)
NODE_GRACE = (
    40.0  # a stock cluster's; a lease that is renewed every 10 s would often be late for less
)
WORKING, SILENT = (
    "TartKubeletReady",
    "DriverSilent",
)  # a cluster's own reason for Unknown is another


async def ready(host: TartHost) -> str:
    """The reason of the Node's Ready condition."""
    node: dict[str, Any] = await host.node() or {}
    found = node.get("status", {}).get("conditions", ())
    return str(next((each["reason"] for each in found if each["type"] == "Ready"), ""))


async def watch(host: TartHost, renewals: list[float], reasons: set[str]) -> None:
    """Collect the instants of all renewals, and what the Node says meanwhile."""
    while True:
        reasons.add(await ready(host))
        lease = await host.kube.get(LEASES, NODE, namespace=names.NODE_LEASE_NAMESPACE)
        at = from_rfc3339(lease["spec"]["renewTime"])
        if not renewals or renewals[-1] != at:
            renewals.append(at)
        await host.clock.sleep(0.5)


async def until_ready_is(host: TartHost, reason: str) -> None:
    async with asyncio.timeout(STALE):
        while await ready(host) != reason:
            await host.clock.sleep(0.5)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hanging_list_costs_neither_the_lease_nor_a_siblings_end() -> None:
    async def scenario(host: TartHost) -> None:
        image = host.tart.image(IMAGE, {"boot": WORKS})
        await host.start()
        for name in ("a", "b"):
            await host.add_pod(name, image=image, grace=GRACE)
            await host.until_phase(name, "Running")
        await until_ready_is(host, WORKING)
        renewals: list[float] = []
        reasons: set[str] = set()
        watching = asyncio.create_task(watch(host, renewals, reasons))
        host.tart.set("hang-list")
        await host.kube.delete(PODS, "b", namespace=SPACE)
        async with asyncio.timeout(GRACE):
            while await host.phase("b") != "gone":
                await host.clock.sleep(0.1)
        await until_ready_is(host, SILENT)
        async with asyncio.timeout(STALE):
            while len(renewals) < RENEWALS:
                await host.clock.sleep(0.5)
        assert await host.phase("a") == "Running"
        host.tart.unset("hang-list")
        await until_ready_is(host, WORKING)
        watching.cancel()
        gaps = [later - earlier for earlier, later in itertools.pairwise(renewals)]
        print(f"{len(gaps)} renewals, the longest gap was {max(gaps):.1f} s")  # noqa: T201 a result
        assert max(gaps) < LONGEST_GAP
        assert reasons == {WORKING, SILENT}, "the cluster never takes the host for lost"
        await host.kube.delete(PODS, "a", namespace=SPACE)
        await host.until_phase("a", "gone")

    async def main(folder: Path) -> None:
        async with (
            clusters.embedded(folder, node_grace=NODE_GRACE) as cluster,
            tart_host(cluster, folder) as host,
        ):
            await scenario(host)

    with tempfile.TemporaryDirectory(prefix="runyard-tart-") as name:
        asyncio.run(main(Path(name).resolve()))
