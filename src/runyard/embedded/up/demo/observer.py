"""Reads the state of the demo's fleet: Kubernetes, Postgres, the practice GitHub and the disk."""

import asyncio
from pathlib import Path
from typing import Any

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.embedded.up.demo.leaks import FleetSnapshot, processes
from runyard.embedded.up.hosts import vm_home
from runyard.embedded.up.machine import Machine
from runyard.embedded.up.practice import POOL
from runyard.embedded.up.practice_client import PracticeClient
from runyard.kube.kinds import LEASES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.node.records import IMAGES
from runyard.vm.registry import left_outside, opened_before
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

SPACE = names.RUNNERS_NAMESPACE
SQL = load("runyard.embedded.up.demo")
_OVER = ("Succeeded", "Failed")


class Observer:
    """Reads everything and changes nothing."""

    def __init__(
        self,
        machine: Machine,
        *,
        database: Database,
        github: PracticeClient,
        clock: Clock,
        marker: str,
    ) -> None:
        self.machine = machine
        self.github = github
        self._database = database
        self._clock = clock
        self._marker = marker

    async def pods(self) -> list[dict[str, Any]]:
        """Every runner Pod."""
        listing = await self.machine.kube.list(PODS, namespace=SPACE)
        return list(listing.items)

    async def pool(self) -> dict[str, Any]:
        """The pool."""
        return await self.machine.kube.get(RUNNER_POOLS, POOL, namespace=SPACE)

    async def lease_renewed(self, host: str) -> float:
        """When a host's lease was last renewed."""
        lease = await self.machine.kube.get(LEASES, host, namespace=names.NODE_LEASE_NAMESPACE)
        return from_rfc3339(lease["spec"]["renewTime"])

    async def slots(self) -> list[Row]:
        """The slots that are open."""

        async def read(tx: Tx) -> list[Row]:
            return await tx.all(SQL.open_slots)

        return await self._database.transact(read, name="read slots")

    async def at_rest(self) -> bool:
        """Whether the pool is full of idle runners that poll, and nothing else is going on."""
        replicas = int((await self.pool())["spec"]["replicas"])
        pods = await self.pods()
        polling = {slot["pod_uid"] for slot in await self.slots() if slot["state"] == "idle"}
        idle = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and not busy(pod)
            and pod["metadata"]["uid"] in polling
        ]
        return len(pods) == len(idle) == replicas

    async def snapshot(self) -> FleetSnapshot:
        """Reads everything that could leak."""
        machine = self.machine
        pods = await self.pods()
        accounts = await machine.kube.list(SERVICE_ACCOUNTS, namespace=SPACE)
        vms: dict[str, tuple[str, ...]] = {}
        for host in machine.hosts:
            for driver in opened_before(vm_home(machine.layout, host), clock=self._clock):
                ours = [view.name for view in await driver.list() if view.owned]
                vms[host] = (*vms.get(host, ()), *ours)
        registrations = await self.github.runners()
        homes = [vm_home(machine.layout, host) for host in machine.hosts]
        return FleetSnapshot(
            replicas=(await self.pool())["spec"]["replicas"],
            pods={pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods},
            busy=tuple(pod["metadata"]["name"] for pod in pods if busy(pod)),
            accounts=tuple(
                item["metadata"]["name"]
                for item in accounts.items
                if names.RUNNER_POOL in item["metadata"].get("labels", {})
            ),
            vms=vms,
            slots=tuple(await self.slots()),
            registrations=tuple(each.name for each in registrations),
            processes=await asyncio.to_thread(processes, machine.layout.root, self._marker),
            directories={
                host: listed(vm_home(machine.layout, host) / "vms") for host in machine.hosts
            },
            records={
                host: tuple(
                    name.removesuffix(".json")
                    for name in listed(machine.layout.host(host) / "records")
                    if name != IMAGES  # which outlive their Pods
                )
                for host in machine.hosts
            },
            leftovers=await asyncio.to_thread(left_outside, tuple(homes)),
        )


def busy(pod: dict[str, Any]) -> bool:
    """Whether the Pod is stamped, ended, or terminating."""
    meta = pod["metadata"]
    return (
        names.POOL_OWNER in meta.get("labels", {})
        or "deletionTimestamp" in meta
        or pod["status"].get("phase") in _OVER
    )


def listed(folder: Path) -> tuple[str, ...]:
    """The names in a folder; empty if it does not exist."""
    return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()
