"""The loop that turns bound Pods into VMs: one key per Pod, many workers, no worker for two tasks at once.

A turn looks at everything that is known under one namespace and name: the present Pod, and the records
of earlier Pods of that name. For each it asks the plan, applies the answer, looks again and asks again
until there is nothing to do. Long work that can concern several Pods (pulls) is not done here.
"""

import asyncio

from runyard.http.errors import TransportError
from runyard.kube.controller import Controller, Result
from runyard.kube.errors import Conflict, KubeError, NotFound
from runyard.kube.kinds import PODS
from runyard.kube.reflector import Reflector
from runyard.kube.workqueue import WorkQueue
from runyard.node.deps import Deps
from runyard.node.effects import Effects
from runyard.node.facts import HostPod, facts_of
from runyard.node.images import ImageStore, backoff
from runyard.node.metrics import count_action
from runyard.node.plans import actions as do
from runyard.node.plans.pod import Snapshot, create_failed, differs, plan_pod
from runyard.node.plans.spec import UnsupportedSpec
from runyard.node.plans.values import vm_name
from runyard.node.records import Ledger
from runyard.node.vms import Vms
from runyard.vm.contract import VmError

_MOST_STEPS = 40  # a life has a dozen; more means that two decisions undo each other


class NoProgress(Exception):
    """The plan does not come to rest. Counted as a failed reconcile; it is looked at again later."""


class _Case:
    """One uid during one turn: what was learned since the turn began."""

    def __init__(self, uid: str, key: str, pod: HostPod | None) -> None:
        self.uid = uid
        self.key = key
        self.pod = pod
        self.proven_gone = False
        self.wait: float | None = None


class PodLoop:
    """Watches this node's Pods and works on each."""

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
        self._latest: dict[str, HostPod] = {}  # key → what a patch answered, ahead of the watch
        self._holds: dict[str, tuple[int, float]] = {}  # uid → failures, not before (monotonic)
        self.reflector: Reflector[HostPod] = Reflector(
            deps.kube,
            PODS,
            HostPod,
            clock=deps.clock,
            rng=deps.rng,
            meter=deps.meter,
            fields=f"spec.nodeName={deps.settings.node_name}",
            on_change=self._changed,
        )

    async def run(self) -> None:
        """Watch and work, for ever."""
        settings = self._deps.settings
        controller = Controller(
            "pods",
            self.reconcile,
            queue=self._queue,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            workers=settings.pod_workers,
            deadline=settings.max_grace + settings.deadlines.delete + settings.deadlines.clone,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reflector.run())
            # Before the first list nobody knows which Pods exist, and a missing Pod would look deleted.
            await self.reflector.synced.wait()
            for key in dict.fromkeys(record.key for record in self._ledger.values()):
                self._queue.add(key)
            tasks.create_task(controller.run())

    async def reconcile(self, key: str) -> Result:
        """Bring everything under one key as far as it can go now."""
        pod = await self._present(key)
        waits: list[float | None] = []
        for record in self._ledger.of_key(key):
            if pod is None or record.uid != pod.metadata.uid:
                waits.append(await self._settle(_Case(record.uid, key, None)))
        if pod is not None:
            waits.append(await self._settle(_Case(pod.metadata.uid, key, pod)))
        return Result(requeue_after=min((w for w in waits if w is not None), default=None))

    def _changed(self, key: str, old: HostPod | None, new: HostPod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._latest.pop(key, None)
            self._holds.pop(old.metadata.uid, None)
            self._effects.drop(old.metadata.uid)
        self._queue.add(key)

    async def _present(self, key: str) -> HostPod | None:
        """The Pod as we know it best; a Pod that only a record knows of is asked for."""
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

    async def _settle(self, case: _Case) -> float | None:
        """Ask, apply, ask again; returns when to look again if nothing happens, None for never."""
        for _ in range(_MOST_STEPS):
            deps = self._deps
            plan = plan_pod(self._snapshot(case), deps.settings, deps.clock.now())
            if not plan:
                return deps.settings.recheck_every
            if isinstance(plan[0], do.Ignore):
                count_action(deps.meter, plan[0], "ok")
                return None
            if await self._apply_all(case, plan):
                return deps.settings.recheck_every if case.wait is None else case.wait
        raise NoProgress(f"{case.key} ({case.uid}) after {_MOST_STEPS} steps")

    def _snapshot(self, case: _Case) -> Snapshot:
        deps, uid = self._deps, case.uid
        record = self._ledger.get(uid)
        facts = None if case.pod is None else facts_of(case.pod, deps.settings, deps.clock.now())
        name = record.vm if record is not None else vm_name(case.key.partition("/")[2], uid)
        image = record.image if record is not None else ""
        _, not_before = self._holds.get(uid, (0, 0.0))
        return Snapshot(
            uid=uid,
            pod=facts,
            proven_gone=case.proven_gone,
            record=record,
            suspect=self._ledger.suspect(uid),
            listed=self._effects.listed(uid),
            vm=self._vms.get(name),
            image=self._images.facts(image, case.key),
            hold=max(0.0, not_before - deps.clock.monotonic()),
        )

    async def _apply_all(self, case: _Case, plan: tuple[do.Action, ...]) -> bool:
        """Apply the actions in order; True if the turn is over."""
        for action in plan:
            try:
                over = await self._apply(case, action)
            except Conflict:
                # The Pod has changed since we read it, or is another one by now: read and ask again.
                count_action(self._deps.meter, action, "conflict")
                await self._refetch(case)
                return case.pod is None
            except Exception as error:
                count_action(self._deps.meter, action, type(error).__name__)
                raise
            count_action(self._deps.meter, action, "ok")
            if over:
                return True
        return False

    async def _refetch(self, case: _Case) -> None:
        pod = await self._effects.fetch(case.key)
        if pod is not None and pod.metadata.uid != case.uid:
            pod = None
        self._learn(case, pod)
        if pod is None:
            self._queue.add(case.key)

    async def _apply(self, case: _Case, action: do.Action) -> bool:
        """Apply one action; True ends the turn."""
        match action:
            case do.Look():
                await self._effects.look(case.uid)
            case do.Save():
                await self._effects.save(case.pod, action.record)
            case do.Stop():
                await self._effects.stop(action)
            case do.Remove():
                await self._effects.remove(action)
            case do.Forget():
                self._effects.forget(case.uid)
            case do.Prove():
                case.proven_gone = await self._effects.gone(action)
                return not case.proven_gone
            case do.Wait():
                case.wait = action.seconds
                return True
            case do.Pull():
                self._images.want(action.image, case.key)
            case do.Create() | do.Start():
                return await self._provision(case, action)
            case _:
                return await self._apply_to_pod(case, action)
        return False

    async def _apply_to_pod(self, case: _Case, action: do.Action) -> bool:
        pod = case.pod
        if pod is None:
            return True
        match action:
            case do.AddFinalizer():
                self._learn(case, await self._effects.add_finalizer(pod, action))
            case do.Publish():
                record = self._ledger.get(case.uid)
                assert record is not None, "the plan publishes only what a record says"
                try:
                    self._learn(case, await self._effects.publish(pod, record, action.report))
                except NotFound:
                    self._learn(case, None)
                    self._queue.add(case.key)
                    return True
            case do.RemoveFinalizer():
                self._learn(case, await self._effects.remove_finalizer(pod, action))
            case do.DeletePod():
                await self._effects.delete_pod(pod)
                return True
            case _:
                raise TypeError(f"no effect for {action!r}")
        return False

    async def _provision(self, case: _Case, action: do.Create | do.Start) -> bool:
        """Create or start; a failure is published and tried again later, not raised."""
        pod, record = case.pod, self._ledger.get(case.uid)
        assert pod is not None and record is not None, "the plan provisions for a Pod with a record"
        try:
            if isinstance(action, do.Create):
                await self._effects.create(pod, record)
            else:
                await self._effects.start(action)
                self._holds.pop(case.uid, None)
        except (VmError, UnsupportedSpec, OSError, KubeError, TransportError) as error:
            failures = self._holds.get(case.uid, (0, 0.0))[0] + 1
            case.wait = backoff(self._deps, failures)
            self._holds[case.uid] = (failures, self._deps.clock.monotonic() + case.wait)
            count_action(self._deps.meter, action, type(error).__name__)
            text = f"{type(error).__name__}: {error}"
            self._deps.log.warning("VM not provisioned", pod=case.key, vm=record.vm, error=text)
            report = create_failed(text)
            if differs(facts_of(pod, self._deps.settings, self._deps.clock.now()), report):
                await self._apply_to_pod(
                    case, do.Publish(uid=case.uid, report=report, reason="not provisioned")
                )
            return True
        return False

    def _learn(self, case: _Case, pod: HostPod | None) -> None:
        case.pod = pod
        if pod is None:
            self._latest.pop(case.key, None)
        else:
            self._latest[case.key] = pod


def _is_newer(patched: HostPod, watched: HostPod) -> bool:
    mine, theirs = patched.metadata, watched.metadata
    if mine.uid != theirs.uid:
        return False
    try:
        return int(mine.resource_version) > int(theirs.resource_version)
    except ValueError:
        return False  # not comparable: the watch is right in the end
