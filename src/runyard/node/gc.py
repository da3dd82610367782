"""The collector's loop: what the Pods' own turns and the image store cannot see by themselves."""

from collections.abc import Callable

from runyard.node.deps import OUTSIDE, Deps
from runyard.node.images import ImageStore
from runyard.node.metrics import UNOWNED_VMS, count_action
from runyard.node.plans.gc import Recheck, RemoveImage, Snapshot, Strangers, plan_gc
from runyard.node.pods import PodLoop
from runyard.node.records import Ledger
from runyard.node.vms import Vms
from runyard.telemetry.loops import run_loop


class GcLoop:
    """Every few minutes: orphans to the Pod plan, unused images away, strangers counted."""

    def __init__(
        self,
        deps: Deps,
        *,
        ledger: Ledger,
        vms: Vms,
        images: ImageStore,
        pods: PodLoop,
        wake: Callable[[str], None],
    ) -> None:
        self._deps = deps
        self._ledger = ledger
        self._vms = vms
        self._images = images
        self._pods = pods
        self._wake = wake

    async def run(self) -> None:
        """Collect for ever, once the Pods are known."""
        await self._pods.reflector.synced.wait()
        settings = self._deps.settings
        await run_loop(
            "gc",
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=settings.gc_every,
            deadline=settings.deadlines.list + 4 * settings.deadlines.delete,
            expected=OUTSIDE,
            freshness=self._deps.freshness,
        )

    async def step(self) -> None:
        """One pass; a list of VMs that fails ends it before anything was done."""
        await self._vms.newer_than(0)
        # Records first: one that appears later has its Pod in the store already.
        records = self._ledger.values()
        pods = self._pods.reflector.store.values()
        snapshot = Snapshot(
            records=records,
            pod_uids=tuple(pod.metadata.uid for pod in pods),
            vms=self._vms.values(),
            images=self._images.snapshot(),
        )
        for action in plan_gc(snapshot, self._deps.settings):
            match action:
                case Recheck():
                    self._wake(action.key)
                case RemoveImage():
                    await self._images.remove(action.image)
                case Strangers():
                    self._deps.meter.set(UNOWNED_VMS, len(action.vms))
            count_action(self._deps.meter, action, "ok")
