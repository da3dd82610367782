"""Nodes for a script: Ready, with leases that are renewed while it runs, and deleted afterwards.

Scripts about scheduling assert messages about all Nodes, so a fleet starts without other Nodes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.conformance.kube.kit import MERGE, STRATEGIC, Api, Json, node, pod

from runyard.clock import RealClock
from runyard.wire.instants import to_rfc3339, to_rfc3339_micro

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PREFIX = "node.kubernetes.io/"
BEAT = 2.0


class Fleet:
    """The Nodes of one script."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._beating: dict[str, None] = {}

    async def add(self, name: str, **more: Any) -> str:
        """Adds a Node and waits until it is Ready and the scheduler may use it."""
        full = self.api.own(name)
        labels = {"kubernetes.io/hostname": full, "run": self.api.space} | more.pop("labels", {})
        body = node(full, labels=labels, pods=more.pop("pods", "10"), **more)
        now = to_rfc3339(RealClock().now())
        for item in body["status"]["conditions"]:
            item |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.api.create(NODES, body)
        await self.api.create(LEASES, {"metadata": {"name": full}, "spec": _lease_body(full)})
        self._beating[full] = None
        await self.until_taints(full, absent="not-ready")
        return full

    def silence(self, name: str) -> None:
        """Stops the heartbeats of that Node."""
        self._beating.pop(name)

    async def read(self, name: str) -> Json:
        return await self.api.get(f"{NODES}/{name}")

    async def post_conditions(self, name: str, *conditions: tuple[str, str]) -> None:
        """Posts conditions of that Node."""
        now = to_rfc3339(RealClock().now())
        given = [
            {
                "type": kind,
                "status": status,
                "reason": "Said",
                "message": "",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status in conditions
        ]
        body = {"status": {"conditions": given}}
        await self.api.patch(f"{NODES}/{name}/status", body, kind=STRATEGIC)

    async def taint(self, name: str, *taints: Json) -> None:
        """Sets the taints of a Node to exactly these."""
        await self.api.patch(f"{NODES}/{name}", {"spec": {"taints": list(taints) or None}})

    async def taints(self, name: str) -> list[tuple[str, str]]:
        """The keys, without their usual prefix, and the effects."""
        found = (await self.read(name))["spec"].get("taints", ())
        return [(item["key"].removeprefix(PREFIX), item["effect"]) for item in found]

    async def until_taints(self, name: str, *, has: str = "", absent: str = "") -> None:
        """Wait until a Node has a taint of the one key, or none of the other."""

        async def check() -> bool | None:
            keys = [key for key, _ in await self.taints(name)]
            return ((not has or has in keys) and (not absent or absent not in keys)) or None

        await self.api.eventually(check)

    async def renew_leases(self) -> None:
        """Renews the leases until cancelled."""
        while True:
            await RealClock().sleep(BEAT)
            for name in tuple(self._beating):
                body = {"spec": _lease_body(name)}
                await self.api.call("PATCH", f"{LEASES}/{name}", body, kind=MERGE)

    async def end(self) -> None:
        """Deletes every Node."""
        for path in (NODES, LEASES):
            for name in await self.api.names(path):
                await self.api.call("DELETE", f"{path}/{name}")

    # ---- Pods

    async def run(self, name: str = "p", **spec: Any) -> Json:
        """A Pod for this fleet's Nodes."""
        selector = {"run": self.api.space} | spec.pop("nodeSelector", {})
        given = {"schedulerName": "default-scheduler", "nodeSelector": selector} | spec
        return await self.api.create(self.api.pods(), pod(name, **given))

    async def placed(self, name: str = "p") -> str:
        """The Node of a Pod, once it has one."""

        async def check() -> str | None:
            return (await self.api.get(self.api.pods(name)))["spec"].get("nodeName")

        return await self.api.eventually(check)

    async def condition(self, name: str = "p", kind: str = "PodScheduled") -> Json:
        """A condition of a Pod, once it has it."""

        async def check() -> Json | None:
            found = await self.api.get(self.api.pods(name))
            answer = found["status"].get("conditions", ())
            return next((item for item in answer if item["type"] == kind), None)

        return await self.api.eventually(check)

    async def is_deleting(self, name: str = "p") -> bool:
        """Whether a Pod is being deleted."""
        return "deletionTimestamp" in (await self.api.get(self.api.pods(name)))["metadata"]

    async def until_deleting(self, name: str = "p") -> None:
        """Waits until a Pod is being deleted."""

        async def check() -> bool | None:
            return await self.is_deleting(name) or None

        await self.api.eventually(check)

    async def event(self, name: str, reason: str) -> Json:
        """An Event about something in this script's namespace."""

        async def check() -> Json | None:
            query = f"involvedObject.name={name},reason={reason}"
            listed = await self.api.get(self.api.path("events"), fieldSelector=query)
            return listed["items"][0] if listed["items"] else None

        return await self.api.eventually(check)


@contextlib.asynccontextmanager
async def fleet(api: Api) -> AsyncIterator[Fleet]:
    """A fleet without Nodes; those that are added live as long as the script."""
    made = Fleet(api)
    await made.end()
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.renew_leases())
        try:
            yield made
        except BaseException as error:  # noqa: BLE001  raised again, as it is and not in a group
            failure = error
        task.cancel()
    await made.end()
    if failure is not None:
        raise failure


def _lease_body(name: str) -> Json:
    now = to_rfc3339_micro(RealClock().now())
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
