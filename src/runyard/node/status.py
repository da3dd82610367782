"""Writes this host's Node object: registration, labels, capacity, conditions.

It uses what the other loops have found and never waits for the driver. A Node that was deleted is registered again at
the next heartbeat.
"""

from typing import Any

from runyard.kube.errors import AlreadyExists, Conflict, NotFound
from runyard.kube.kinds import NODES
from runyard.kube.objects import Node
from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.images import ImageStore
from runyard.node.metrics import count_action
from runyard.node.plans.node import (
    Condition,
    CreateNode,
    PatchNode,
    PatchStatus,
    Snapshot,
    plan_node,
)
from runyard.node.probes import ProbeLoop
from runyard.node.settings import Settings
from runyard.node.vms import Vms
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

_ATTEMPTS = 4


class StatusLoop:
    """Writes this host's Node."""

    def __init__(self, deps: Deps, *, vms: Vms, images: ImageStore, probes: ProbeLoop) -> None:
        self._deps = deps
        self._vms = vms
        self._images = images
        self._probes = probes

    async def run(self) -> None:
        """Write forever."""
        every = self._deps.settings.heartbeat_every
        await run_loop(
            Loop.NODE_STATUS,
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=every,
            deadline=2 * every,
            expected=DEPENDENCY_ERRORS,
            freshness=self._deps.freshness,
            max_backoff=every,
        )

    async def step(self) -> None:
        """Read, plan, write; retry after a concurrent write."""
        for attempt in range(_ATTEMPTS):
            try:
                if await self._beat():
                    return
            except (Conflict, AlreadyExists, NotFound):
                if attempt + 1 == _ATTEMPTS:
                    raise

    async def _beat(self) -> bool:
        raw = await self._read()
        node = None if raw is None else self._deps.kube.reader(Node).of(raw)
        snapshot = Snapshot(
            node=node,
            driver_silent_for=self._vms.silent_for,
            disks=self._probes.disks,
            images=self._images.held,
        )
        done = False
        for action in plan_node(snapshot, self._deps.settings):
            match action:
                case CreateNode():
                    await self._create(action)
                case PatchNode():
                    raw = await self._patch(raw or {}, action)
                case PatchStatus():
                    await self._patch_status(raw or {}, action)
                    done = True
            count_action(self._deps.meter, action, "ok")
        return done

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._deps.kube.get(NODES, self._deps.settings.node_name)
        except NotFound:
            return None

    async def _create(self, action: CreateNode) -> None:
        spec: dict[str, Any] = {"taints": [_taint()]}
        if action.provider_id:
            spec["providerID"] = action.provider_id
        name = self._deps.settings.node_name
        body = {"metadata": {"name": name, "labels": dict(action.labels)}, "spec": spec}
        await self._deps.kube.create(NODES, body)

    async def _patch(self, raw: dict[str, Any], action: PatchNode) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        if action.add_taint:
            spec["taints"] = [*(raw.get("spec", {}).get("taints") or []), _taint()]
        if action.provider_id:
            spec["providerID"] = action.provider_id
        body: dict[str, Any] = {"metadata": {"labels": dict(action.labels)}}
        if spec:
            body["spec"] = spec
        name = self._deps.settings.node_name
        return await self._deps.kube.patch(
            NODES, name, body, resource_version=action.resource_version
        )

    async def _patch_status(self, raw: dict[str, Any], action: PatchStatus) -> None:
        settings = self._deps.settings
        size = dict(action.capacity)
        status: dict[str, Any] = {
            "capacity": size,
            "allocatable": size,
            "conditions": _merged(raw, action.conditions, self._deps.clock.now()),
            "nodeInfo": _node_info(settings),
        }
        if settings.node_ip:
            status["addresses"] = [
                {"type": "InternalIP", "address": settings.node_ip},
                {"type": "Hostname", "address": settings.node_name},
            ]
        await self._deps.kube.patch(
            NODES,
            settings.node_name,
            {"status": status},
            subresource="status",
            # A merge patch replaces the whole list of conditions, so it is valid for the version that was read.
            resource_version=raw["metadata"]["resourceVersion"],
        )


def _taint() -> dict[str, str]:
    return {"key": names.NODE_TAINT, "value": "true", "effect": "NoSchedule"}


def _node_info(settings: Settings) -> dict[str, str]:
    return {
        "operatingSystem": settings.os,
        "architecture": settings.arch,
        "kubeletVersion": f"{names.NODE_AGENT}-v0",
        "containerRuntimeVersion": settings.runtime,
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), ""),
        "kubeProxyVersion": "",
    }


def _merged(raw: dict[str, Any], ours: tuple[Condition, ...], now: float) -> list[dict[str, Any]]:
    """Return the Node's conditions with ours replaced."""
    instant = to_rfc3339(now)
    listed = raw.get("status", {}).get("conditions") or []
    merged = {str(condition.get("type")): condition for condition in listed}
    for condition in ours:
        since = None if condition.changed else merged[condition.type].get("lastTransitionTime")
        merged[condition.type] = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.camel,
            "message": condition.message,
            "lastHeartbeatTime": instant,
            "lastTransitionTime": since or instant,
        }
    return list(merged.values())
