"""Applies the actions of the Pod plan: one method per action, each with a deadline, each safe to repeat.

An action on a VM records how many lists of VMs had begun by then, so that the next plan waits for a newer one. "Does
not exist" and "not running" are success wherever something is torn down. An event is written once for each Pod: a host
may create events, and changing one would be refused. The Pod that a patch returns is handed back, so that the next plan
does not wait for the watch.
"""

from runyard.kube.errors import Conflict, NotFound
from runyard.kube.events import Recorder
from runyard.kube.kinds import PODS
from runyard.kube.objects import Reader
from runyard.node.deadlines import hung, within
from runyard.node.deps import Deps
from runyard.node.environment import with_plain_values
from runyard.node.facts import (
    HostPod,
    account_of,
    created_at,
    polls_itself,
    status_patch,
    vm_spec,
)
from runyard.node.images import ImageStore
from runyard.node.metrics import BOOT_DURATION, PROVISION_DELAY
from runyard.node.plans import actions as do
from runyard.node.plans.values import Phase, Record
from runyard.node.records import Ledger
from runyard.node.vms import Vms
from runyard.vm.contract import ImageMissing, NoSpace
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

_reader: Reader[HostPod] = Reader(HostPod)


class Effects:
    """Applies single actions."""

    def __init__(
        self, deps: Deps, *, ledger: Ledger, vms: Vms, images: ImageStore, recorder: Recorder
    ) -> None:
        self._deps = deps
        self._ledger = ledger
        self._vms = vms
        self._images = images
        self._recorder = recorder
        self._touched: dict[str, int] = {}  # uid → lists begun before our last effect on its VM
        self._warned: set[str] = set()  # uids with an event that must not be repeated

    def listed(self, uid: str) -> bool:
        """Whether the newest list of VMs is newer than our last effect on this one."""
        return self._vms.seen > self._touched.get(uid, 0)

    async def refresh_vms(self, uid: str) -> None:
        """Wait for a list of VMs that is newer than our last effect on this one."""
        await self._vms.newer_than(self._touched.get(uid, 0))

    async def gone(self, action: do.VerifyPod) -> bool:
        """Return whether the API server has no Pod with this uid."""
        try:
            raw = await self._deps.kube.get(PODS, action.name, namespace=action.namespace)
        except NotFound:
            return True
        return _reader.of(raw).metadata.uid != action.uid

    async def fetch(self, key: str) -> HostPod | None:
        """Read the Pod under this key from the API server."""
        namespace, _, name = key.partition("/")
        try:
            return _reader.of(await self._deps.kube.get(PODS, name, namespace=namespace))
        except NotFound:
            return None

    async def add_finalizer(self, pod: HostPod, action: do.AddFinalizer) -> HostPod:
        """Add our finalizer to the others."""
        wanted = [*pod.metadata.finalizers, names.VM_FINALIZER]
        return await self._patch_finalizers(pod, wanted, action.resource_version)

    async def remove_finalizer(self, pod: HostPod, action: do.RemoveFinalizer) -> HostPod | None:
        """Remove our finalizer; None if the Pod is gone."""
        wanted = [name for name in pod.metadata.finalizers if name != names.VM_FINALIZER]
        try:
            return await self._patch_finalizers(pod, wanted, action.resource_version)
        except NotFound:
            return None

    async def delete_pod(self, pod: HostPod) -> None:
        """Confirm the deletion, as a Pod's node has to; a Pod with another uid is left alone."""
        meta = pod.metadata
        try:
            await self._deps.kube.delete(
                PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace=0
            )
        except (NotFound, Conflict):
            return

    async def publish(self, pod: HostPod, record: Record, report: do.Report) -> HostPod:
        """Patch the status of the Pod with this uid."""
        deps, meta = self._deps, pod.metadata
        body = status_patch(pod, record, report, deps.settings, deps.clock.now())
        raw = await deps.kube.patch(
            PODS, meta.name, body, namespace=meta.namespace, subresource="status", uid=meta.uid
        )
        return _reader.of(raw)

    async def save(self, pod: HostPod | None, record: Record) -> None:
        """Write the record; the first record emits an event, the first boot is measured."""
        before = self._ledger.get(record.uid)
        self._ledger.save(record)
        if pod is None:
            return
        if before is None and record.phase is Phase.INTENDED:
            await self._emit_creating(pod, record)
        elif before is not None:
            self._measure_boot(before, record)

    async def create(self, pod: HostPod, record: Record) -> None:
        """Get the guest's token, resolve its environment, clone the image."""
        deps = self._deps
        token = await self._token(pod) if pod.spec.automount_service_account_token else ""
        plain = await with_plain_values(deps.kube, pod, node=deps.settings.node_name)
        spec = vm_spec(plain, record, deps.settings, token=token)
        if polls_itself(spec, deps.settings) and record.uid not in self._warned:
            self._warned.add(record.uid)
            await self._emit_polls_itself(pod)
        try:
            seconds = deps.settings.deadlines.clone
            async with within(deps.clock, seconds, hung(f"clone of {spec.name}", seconds)):
                await deps.driver.create(spec)
        except ImageMissing:
            self._images.missing(record.source)
            raise
        except NoSpace:
            await self._images.reclaim()
            raise
        finally:
            self._touch(record.uid)

    async def start(self, pod: HostPod, record: Record, action: do.StartVm) -> None:
        """Start the VM; what it took to come so far is measured once, when that has succeeded."""
        try:
            seconds = self._deps.settings.deadlines.start
            limit = hung(f"start of {action.vm}", seconds)
            async with within(self._deps.clock, seconds, limit):
                await self._deps.driver.start(action.vm)
        finally:
            self._touch(action.uid)
        self._measure_start(pod, record)

    async def stop(self, action: do.StopVm) -> None:
        """Request a shutdown from the guest, wait, power off."""
        limit = action.grace + self._deps.settings.deadlines.stop_margin
        try:
            async with self._deps.clock.timeout(limit):
                await self._deps.driver.stop(action.vm, grace=action.grace)
        finally:
            self._touch(action.uid)

    async def remove(self, action: do.DeleteVm) -> None:
        """Delete the VM."""
        try:
            async with self._deps.clock.timeout(self._deps.settings.deadlines.delete):
                await self._deps.driver.delete(action.vm)
        finally:
            self._touch(action.uid)

    async def stamp(self, pod: HostPod, action: do.StampProgress) -> HostPod:
        """Note when the Pod's start last moved on."""
        raw = await self._deps.kube.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"annotations": {names.START_PROGRESS_AT: to_rfc3339(action.at)}}},
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            resource_version=action.resource_version,
        )
        return _reader.of(raw)

    async def forget(self, uid: str) -> None:
        """Delete the VM's log, then the record. Our last effect on the VM is remembered until the Pod is gone."""
        record = self._ledger.get(uid)
        if record is not None:
            async with self._deps.clock.timeout(self._deps.settings.deadlines.delete):
                await self._deps.driver.forget(record.vm)
        self._ledger.forget(uid)

    def drop(self, uid: str) -> None:
        """Discard what is kept about a Pod that is gone."""
        self._touched.pop(uid, None)
        self._warned.discard(uid)

    def _touch(self, uid: str) -> None:
        self._touched[uid] = self._vms.begun

    async def _patch_finalizers(self, pod: HostPod, wanted: list[str], version: str) -> HostPod:
        meta = pod.metadata
        raw = await self._deps.kube.patch(
            PODS,
            meta.name,
            {"metadata": {"finalizers": wanted}},
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=version,
        )
        return _reader.of(raw)

    async def _token(self, pod: HostPod) -> str:
        meta = pod.metadata
        return await self._deps.kube.create_token(
            account_of(pod),
            namespace=meta.namespace,
            audience=names.DISPATCH_AUDIENCE,
            seconds=names.GUEST_TOKEN_SECONDS,
            pod_name=meta.name,
            pod_uid=meta.uid,
        )

    async def _emit_creating(self, pod: HostPod, record: Record) -> None:
        await self._recorder.event(
            PODS,
            pod.metadata,
            type="Normal",
            reason=names.EVENT_CREATING_VM,
            message=f"creating VM {record.vm}",
        )

    async def _emit_polls_itself(self, pod: HostPod) -> None:
        await self._recorder.event(
            PODS,
            pod.metadata,
            type="Warning",
            reason=names.EVENT_POLLS_ITSELF,
            message=f"{names.ENV_DISPATCH_URL} is on loopback, which in a VM is the guest itself: it will get no job",
        )

    def _measure_boot(self, before: Record, after: Record) -> None:
        if before.booted_at is None and after.booted_at is not None:
            started = after.started_at if after.started_at is not None else after.booted_at
            seconds = max(0.0, after.booted_at - started)
            self._deps.meter.observe(BOOT_DURATION, seconds, pool=after.pool)

    def _measure_start(self, pod: HostPod, record: Record) -> None:
        created = created_at(pod)
        if created is not None and record.started_at is not None:
            delay = max(0.0, record.started_at - created)
            self._deps.meter.observe(PROVISION_DELAY, delay, pool=record.pool)
