"""Wires and runs the loops of one host's agent.

    lease      10 s   the Node's heartbeat; independent of the driver
    status     30 s   the Node object, from what the other loops found
    vms         5 s   one list of VMs for all loops
    probes     30 s   guests' disks
    images            pulls, one per image, beside everything else
    pods              one worker per Pod
    gc          5 min records without Pods, unused images; not on hosts that disable it

They start and end together: a loop that dies ends the agent. The VMs keep running; the next agent reads the records,
the list of VMs and the Pods, and continues.
"""

import asyncio
from typing import Protocol

from runyard.kube.events import Recorder
from runyard.kube.workqueue import WorkQueue
from runyard.node.deps import Deps
from runyard.node.effects import Effects
from runyard.node.gc import GcLoop
from runyard.node.images import ImageStore
from runyard.node.lease import LeaseLoop
from runyard.node.metrics import FAILURES, UNOWNED_VMS
from runyard.node.plans.gc import unowned
from runyard.node.plans.reasons import Why
from runyard.node.pods import PodLoop
from runyard.node.probes import ProbeLoop
from runyard.node.records import Ledger
from runyard.node.status import StatusLoop
from runyard.node.vms import Vms
from runyard.telemetry.names import Loop
from runyard.vm.contract import VmView
from runyard.wire import names

_ENDED = ("Succeeded", "Failed")


class _Runs(Protocol):
    async def run(self) -> None: ...


class Agent:
    """One host's agent. An instance can be run once."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._ledger = Ledger(deps.records)
        self._unowned: tuple[str, ...] = ()

    async def run(self) -> None:
        """Serve this host until cancelled."""
        deps, ledger = self._deps, self._ledger
        self._load()
        queue = WorkQueue(clock=deps.clock, rng=deps.rng, base=1.0, cap=deps.settings.recheck_every)
        vms = Vms(deps, on_change=lambda name: self._wake_vm(queue, name), on_list=self._count)
        images = ImageStore(
            deps,
            in_use=lambda: self._images_in_use(pods),
            wake=queue.add,
            owned=deps.records.images,
        )
        for record in ledger.values():
            images.pins.remember(record.image, record.pinned)
        recorder = Recorder(deps.kube, component=names.NODE_AGENT, clock=deps.clock, rng=deps.rng)
        effects = Effects(deps, ledger=ledger, vms=vms, images=images, recorder=recorder)
        pods = PodLoop(deps, queue=queue, ledger=ledger, vms=vms, images=images, effects=effects)
        probes = ProbeLoop(deps, ledger=ledger, vms=vms)
        loops: list[_Runs] = [
            LeaseLoop(deps),
            StatusLoop(deps, vms=vms, images=images, probes=probes),
            vms,
            probes,
            images,
            pods,
        ]
        if deps.settings.gc:
            loops.append(GcLoop(deps, ledger=ledger, images=images, pods=pods, wake=queue.add))
        pods.reflector.track_freshness(deps.freshness)
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run(), name=type(loop).__name__)

    def _load(self) -> None:
        self._deps.meter.set(UNOWNED_VMS, 0)
        self._deps.records.images.load()
        for uid in self._ledger.load():
            self._deps.meter.inc(FAILURES, loop=Loop.VM_RECORDS, error="unreadable")
            self._deps.log.error("record cannot be read; renamed and kept", pod_uid=uid)

    def _count(self, views: tuple[VmView, ...]) -> None:
        """Publish how many VMs are not ours, also on hosts without garbage collection."""
        found = unowned(views, self._ledger.values())
        if found != self._unowned:
            detail = {"reason": Why.NO_RECORD.value, "vms": ", ".join(found)}
            self._deps.log.info("VMs of others on this host are left alone", **detail)
        self._unowned = found
        self._deps.meter.set(UNOWNED_VMS, len(found))

    def _wake_vm(self, queue: WorkQueue, name: str) -> None:
        for record in self._ledger.values():
            if record.vm == name:
                queue.add(record.key)

    def _images_in_use(self, pods: PodLoop) -> frozenset[str]:
        """Return the images of VMs without a result, and of Pods that have not ended."""
        recorded = [record.source for record in self._ledger.values() if record.result is None]
        bound = [
            container.image
            for pod in pods.reflector.store.values()
            if pod.status.phase not in _ENDED
            for container in pod.spec.containers
        ]
        return frozenset((*recorded, *bound))
