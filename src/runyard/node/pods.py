"""Reconciles the Pods of this node into VMs: one key per Pod name, many workers.

A reconcile covers everything under one namespace and name: the present Pod, and the records of earlier Pods of that
name. For each it plans, applies, and plans again until the plan is empty. Pulls, which may serve several Pods, run
elsewhere.
"""

import asyncio

from runyard.http.errors import TransportError
from runyard.kube.controller import Capacity, Controller, Result
from runyard.kube.errors import Conflict, KubeError, NotFound
from runyard.kube.kinds import PODS
from runyard.kube.reflector import Reflector, Scope, WatchDeps
from runyard.kube.workqueue import WorkQueue
from runyard.node.deps import Deps
from runyard.node.effects import Effects
from runyard.node.facts import HostPod, facts_of
from runyard.node.images import ImageStore, backoff
from runyard.node.metrics import count_action
from runyard.node.plans import actions as do
from runyard.node.plans.pod import Snapshot, create_failed, differs, not_started, plan_pod
from runyard.node.plans.reasons import Why
from runyard.node.plans.spec import UnsupportedSpec
from runyard.node.plans.values import Record, vm_name
from runyard.node.records import Ledger
from runyard.node.vms import Vms
from runyard.telemetry.names import Loop, error_slug
from runyard.vm.contract import SlotsFull, VmError

_MOST_STEPS = 40  # a Pod's life has a dozen; more means that two decisions undo each other


class NoProgress(Exception):
    """The plan never becomes empty; the reconcile fails and is retried later."""


class _Target:
    """One Pod's uid during one reconcile, with what was read since the reconcile began."""

    def __init__(self, uid: str, key: str, pod: HostPod | None) -> None:
        self.uid = uid
        self.key = key
        self.pod = pod
        self.proven_gone = False
        self.wait: float | None = None


class PodLoop:
    """Watches this node's Pods and reconciles each."""

    def __init__(
        self,
        deps: Deps,
        *,
        queue: WorkQueue,
        ledger: Ledger,
        vms: Vms,
        images: ImageStore,
        effects: Effects,
    ) -> None:
        self._deps = deps
        self._queue = queue
        self._ledger = ledger
        self._vms = vms
        self._images = images
        self._effects = effects
        # key → the Pod that a patch returned, newer than the watch
        self._latest: dict[str, HostPod] = {}
        self._holds: dict[str, tuple[int, float]] = {}  # uid → failures, not before (monotonic)
        self.reflector: Reflector[HostPod] = Reflector(
            WatchDeps(kube=deps.kube, clock=deps.clock, rng=deps.rng, meter=deps.meter),
            PODS,
            HostPod,
            scope=Scope(fields=f"spec.nodeName={deps.settings.node_name}"),
            on_change=self._changed,
        )

    async def run(self) -> None:
        """Watch and reconcile forever."""
        settings = self._deps.settings
        controller = Controller(
            Loop.POD_CONTROLLER,
            self.reconcile,
            queue=self._queue,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            capacity=Capacity(
                workers=settings.pod_workers,
                deadline=settings.max_grace + settings.deadlines.delete + settings.deadlines.clone,
            ),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reflector.run())
            # Before the first list it is unknown which Pods exist, and a missing one would count as deleted.
            await self.reflector.synced.wait()
            for key in dict.fromkeys(record.key for record in self._ledger.values()):
                self._queue.add(key)
            tasks.create_task(controller.run())

    async def reconcile(self, key: str) -> Result:
        """Reconcile the Pod and the records under one key."""
        pod = await self._present(key)
        waits: list[float | None] = []
        for record in self._ledger.of_key(key):
            if pod is None or record.uid != pod.metadata.uid:
                waits.append(await self._settle(_Target(record.uid, key, None)))
        if pod is not None:
            waits.append(await self._settle(_Target(pod.metadata.uid, key, pod)))
        return Result(requeue_after=min((w for w in waits if w is not None), default=None))

    def _changed(self, key: str, old: HostPod | None, new: HostPod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._latest.pop(key, None)
            self._holds.pop(old.metadata.uid, None)
            self._effects.drop(old.metadata.uid)
        self._queue.add(key)

    async def _present(self, key: str) -> HostPod | None:
        """Return the newest known version of the Pod; one that is only in a record is read from the API."""
        pod = self.reflector.store.get(key)
        patched = self._latest.get(key)
        if pod is None:
            self._latest.pop(key, None)
            if not self._ledger.of_key(key):
                return None
            pod = await self._effects.fetch(key)
            mine = pod is not None and pod.spec.node_name == self._deps.settings.node_name
            return pod if mine else None
        if patched is not None and _is_newer(patched, pod):
            return patched
        self._latest.pop(key, None)
        return pod

    async def _settle(self, target: _Target) -> float | None:
        """Plan and apply until the plan is empty; returns when to reconcile again, None for never."""
        for _ in range(_MOST_STEPS):
            deps = self._deps
            plan = plan_pod(self._snapshot(target), deps.settings, deps.clock.now())
            if not plan:
                return deps.settings.recheck_every
            if isinstance(plan[0], do.Ignore):
                count_action(deps.meter, plan[0], "ok")
                return None
            if await self._apply_all(target, plan):
                return deps.settings.recheck_every if target.wait is None else target.wait
        raise NoProgress(
            f"Pod {target.key} ({target.uid}): the plan is not empty after {_MOST_STEPS} steps"
        )

    def _snapshot(self, target: _Target) -> Snapshot:
        deps, uid = self._deps, target.uid
        record = self._ledger.get(uid)
        facts = (
            None if target.pod is None else facts_of(target.pod, deps.settings, deps.clock.now())
        )
        name = record.vm if record is not None else vm_name(target.key.partition("/")[2], uid)
        image = record.source if record is not None else ""
        _, not_before = self._holds.get(uid, (0, 0.0))
        return Snapshot(
            uid=uid,
            pod=facts,
            proven_gone=target.proven_gone,
            record=record,
            suspect=self._ledger.suspect(uid),
            listed=self._effects.listed(uid),
            vm=self._vms.get(name),
            image=self._images.facts(image, target.key),
            hold=max(0.0, not_before - deps.clock.monotonic()),
        )

    async def _apply_all(self, target: _Target, plan: tuple[do.Action, ...]) -> bool:
        """Apply the actions in order; True ends the reconcile."""
        for action in plan:
            try:
                over = await self._apply(target, action)
            except Conflict:
                # The Pod has changed since it was read, or is another one: read and plan again.
                count_action(self._deps.meter, action, "conflict")
                await self._refetch(target)
                return target.pod is None
            except Exception as error:
                count_action(self._deps.meter, action, error_slug(error))
                raise
            count_action(self._deps.meter, action, "ok")
            if over:
                return True
        return False

    async def _refetch(self, target: _Target) -> None:
        pod = await self._effects.fetch(target.key)
        if pod is not None and pod.metadata.uid != target.uid:
            pod = None
        self._set_pod(target, pod)
        if pod is None:
            self._queue.add(target.key)

    async def _apply(self, target: _Target, action: do.Action) -> bool:
        """Apply one action; True ends the reconcile."""
        match action:
            case do.RefreshVms():
                await self._effects.refresh_vms(target.uid)
            case do.SaveRecord():
                await self._effects.save(target.pod, action.record)
            case do.StopVm():
                await self._effects.stop(action)
            case do.DeleteVm():
                await self._effects.remove(action)
            case do.DeleteRecord():
                await self._effects.forget(target.uid)
            case do.VerifyPod():
                target.proven_gone = await self._effects.gone(action)
                return not target.proven_gone
            case do.Wait():
                target.wait = action.seconds
                return True
            case do.PullImage():
                self._images.request(action.image, target.key)
            case do.CreateVm() | do.StartVm():
                return await self._provision(target, action)
            case _:
                return await self._apply_to_pod(target, action)
        return False

    async def _apply_to_pod(self, target: _Target, action: do.Action) -> bool:
        pod = target.pod
        if pod is None:
            return True
        match action:
            case do.AddFinalizer():
                self._set_pod(target, await self._effects.add_finalizer(pod, action))
            case do.StampProgress():
                self._set_pod(target, await self._effects.stamp(pod, action))
            case do.PublishStatus():
                record = self._ledger.get(target.uid)
                assert record is not None, "the plan publishes only what a record says"
                try:
                    self._set_pod(target, await self._effects.publish(pod, record, action.report))
                except NotFound:
                    self._set_pod(target, None)
                    self._queue.add(target.key)
                    return True
            case do.RemoveFinalizer():
                self._set_pod(target, await self._effects.remove_finalizer(pod, action))
            case do.DeletePod():
                await self._effects.delete_pod(pod)
                return True
            case _:
                raise TypeError(f"no effect for {action!r}")
        return False

    async def _provision(self, target: _Target, action: do.CreateVm | do.StartVm) -> bool:
        """Create or start the VM; a failure is published and retried later, not raised."""
        pod, record = target.pod, self._ledger.get(target.uid)
        assert pod is not None and record is not None, "the plan provisions for a Pod with a record"
        try:
            if isinstance(action, do.CreateVm):
                await self._effects.create(pod, record)
            else:
                await self._effects.start(pod, record, action)
                self._holds.pop(target.uid, None)
        except (VmError, UnsupportedSpec, OSError, KubeError, TransportError) as error:
            report = await self._failed(target, record, action, error)
            if differs(facts_of(pod, self._deps.settings, self._deps.clock.now()), report):
                await self._apply_to_pod(
                    target,
                    do.PublishStatus(uid=target.uid, report=report, reason=Why.CREATE_FAILED),
                )
            return True
        return False

    async def _failed(
        self, target: _Target, record: Record, action: do.Action, error: Exception
    ) -> do.Report:
        """Count a failure, decide when to try again, and return what the Pod's status says about it."""
        deps, text = self._deps, str(error) or type(error).__name__
        count_action(deps.meter, action, error_slug(error))
        failures, _ = self._holds.get(target.uid, (0, 0.0))
        if isinstance(error, SlotsFull):
            # The start was refused before anything of the VM ran.
            if isinstance(action, do.StartVm):
                await self._effects.save(target.pod, not_started(record))
            # No failure: it waits for another VM's end, and tries again at once after it.
            target.wait = deps.settings.slots_full_every
            deps.log.info("waiting for a VM slot", pod=target.key, vm=record.vm, detail=str(error))
        else:
            failures += 1
            target.wait = backoff(deps, failures)
            deps.log.warning(
                "VM could not be provisioned", pod=target.key, vm=record.vm, error=text
            )
        self._holds[target.uid] = (failures, deps.clock.monotonic() + target.wait)
        return create_failed(text, error.fault if isinstance(error, VmError) else None)

    def _set_pod(self, target: _Target, pod: HostPod | None) -> None:
        target.pod = pod
        if pod is None:
            self._latest.pop(target.key, None)
        else:
            self._latest[target.key] = pod


def _is_newer(patched: HostPod, watched: HostPod) -> bool:
    ours, seen = patched.metadata, watched.metadata
    if ours.uid != seen.uid:
        return False
    try:
        return int(ours.resource_version) > int(seen.resource_version)
    except ValueError:
        return False  # not comparable: use the watch's version
