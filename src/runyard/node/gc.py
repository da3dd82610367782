"""Runs garbage collection: finds records without Pods, unused images, and what drivers have made from images."""

from collections.abc import Callable

from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.images import ImageStore
from runyard.node.metrics import count_action
from runyard.node.plans.gc import RemoveImage, RequeuePod, Snapshot, plan_gc
from runyard.node.pods import PodLoop
from runyard.node.records import Ledger
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop


class GcLoop:
    """Plans and applies one collection every few minutes."""

    def __init__(
        self,
        deps: Deps,
        *,
        ledger: Ledger,
        images: ImageStore,
        pods: PodLoop,
        wake: Callable[[str], None],
    ) -> None:
        self._deps = deps
        self._ledger = ledger
        self._images = images
        self._pods = pods
        self._wake = wake

    async def run(self) -> None:
        """Collect forever, once the Pods are listed."""
        await self._pods.reflector.synced.wait()
        settings = self._deps.settings
        await run_loop(
            Loop.GARBAGE_COLLECTION,
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=settings.gc_every,
            deadline=settings.deadlines.list + 4 * settings.deadlines.delete,
            expected=DEPENDENCY_ERRORS,
            freshness=self._deps.freshness,
        )

    async def step(self) -> None:
        """Do one pass."""
        # Records first: one that appears later has its Pod in the store already.
        records = self._ledger.values()
        pods = self._pods.reflector.store.values()
        snapshot = Snapshot(
            records=records,
            pod_uids=tuple(pod.metadata.uid for pod in pods),
            images=self._images.snapshot(),
        )
        for action in plan_gc(snapshot, self._deps.settings):
            match action:
                case RequeuePod():
                    self._wake(action.key)
                case RemoveImage():
                    await self._images.remove(action.image)
            count_action(self._deps.meter, action, "ok")
        await self._images.collect(idle=self._deps.settings.image_idle)
