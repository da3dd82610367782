"""The node agent: the loops of one host, wired together.

    lease      10 s   the control plane's heartbeat; needs nobody
    status     30 s   the Node object, from what the others found
    vms         5 s   one list of VMs for everybody
    probes     30 s   guests' disks
    images            pulls, one per image, beside everything else
    pods              one worker per Pod
    gc          5 min orphans, unused images, strangers

They start and end together: a loop that dies takes the agent down, loudly. The VMs do not notice; the
next agent finds the records, the list of VMs and the Pods, and goes on from there.
"""

import asyncio
import random

from runyard.clock import Clock
from runyard.kube.client import Kube
from runyard.kube.events import Recorder
from runyard.kube.workqueue import WorkQueue
from runyard.node.deps import Deps
from runyard.node.effects import Effects
from runyard.node.gc import GcLoop
from runyard.node.images import ImageStore
from runyard.node.lease import LeaseLoop
from runyard.node.metrics import FAILURES, UNOWNED_VMS
from runyard.node.pods import PodLoop
from runyard.node.probes import ProbeLoop
from runyard.node.records import Ledger, Records
from runyard.node.settings import Settings
from runyard.node.status import StatusLoop
from runyard.node.vms import Vms
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmDriver
from runyard.wire import names

_ENDED = ("Succeeded", "Failed")


class Agent:
    """One host's agent. `run` it once; after it ended, make a new one."""

    def __init__(
        self,
        *,
        kube: Kube,
        driver: VmDriver,
        records: Records,
        clock: Clock,
        rng: random.Random,
        meter: Meter,
        log: Logger,
        settings: Settings,
        freshness: Freshness | None = None,
    ) -> None:
        self._deps = Deps(
            kube=kube,
            driver=driver,
            clock=clock,
            rng=rng,
            meter=meter,
            log=log,
            settings=settings,
            freshness=freshness,
        )
        self._ledger = Ledger(records)

    async def run(self) -> None:
        """Serve this host until cancelled."""
        deps, ledger = self._deps, self._ledger
        self._load()
        queue = WorkQueue(clock=deps.clock, rng=deps.rng, base=1.0, cap=deps.settings.recheck_every)
        vms = Vms(deps, on_change=lambda name: self._wake_vm(queue, name))
        images = ImageStore(deps, in_use=lambda: self._images_in_use(pods), wake=queue.add)
        recorder = Recorder(deps.kube, component=names.NODE_AGENT, clock=deps.clock, rng=deps.rng)
        effects = Effects(deps, ledger=ledger, vms=vms, images=images, recorder=recorder)
        pods = PodLoop(deps, queue=queue, ledger=ledger, vms=vms, images=images, effects=effects)
        probes = ProbeLoop(deps, ledger=ledger, vms=vms)
        gc = GcLoop(deps, ledger=ledger, vms=vms, images=images, pods=pods, wake=queue.add)
        loops = (
            LeaseLoop(deps),
            StatusLoop(deps, vms=vms, images=images, probes=probes),
            vms,
            probes,
            images,
            pods,
            gc,
        )
        if deps.freshness is not None:
            pods.reflector.followed_by(deps.freshness)
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run(), name=type(loop).__name__)

    def _load(self) -> None:
        self._deps.meter.set(UNOWNED_VMS, 0)
        for uid in self._ledger.load():
            self._deps.meter.inc(FAILURES, loop="records", kind="unreadable")
            self._deps.log.error("record set aside: it cannot be read", pod_uid=uid)

    def _wake_vm(self, queue: WorkQueue, name: str) -> None:
        for record in self._ledger.values():
            if record.vm == name:
                queue.add(record.key)

    def _images_in_use(self, pods: PodLoop) -> frozenset[str]:
        """Images of VMs that are not over, and of Pods that may need theirs any moment."""
        recorded = [record.image for record in self._ledger.values() if record.result is None]
        bound = [
            container.image
            for pod in pods.reflector.store.values()
            if pod.status.phase not in _ENDED
            for container in pod.spec.containers
        ]
        return frozenset((*recorded, *bound))
