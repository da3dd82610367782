"""Applies a plan's actions one by one.

Every write is recorded in `memory` before it is sent, and its outcome is classified by what it proves:

    done       the write was made
    gone       the object to remove does not exist any more, or another one has its name
    conflict   the plan was outdated; nothing was written, and the next plan sees the new version
    refused    the API refused it; nothing was written
    not-sent   the request was not sent; nothing was written
    unknown    it may have been written

A runner's account is created before its Pod and removed after it, so a Pod always has its account. An account that
was left over is found by the plan's orphan rule.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from runyard.http.errors import NotSent, TransportError
from runyard.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, ServerFailed
from runyard.kube.events import Recorder
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.kube.objects import Meta, Pod, ServiceAccount
from runyard.pools import metrics
from runyard.pools.client import StopReports
from runyard.pools.deps import Deps
from runyard.pools.events import PoolEvents
from runyard.pools.memory import Memory
from runyard.pools.plans import template
from runyard.pools.plans.actions import (
    Action,
    CreateRunner,
    FinalizerChange,
    ForceDelete,
    MarkDrainEligible,
    ReapAccount,
    ReapRunner,
    ReportStopped,
    StatusPatch,
)
from runyard.pools.plans.conditions import conditions
from runyard.pools.plans.events import acted, refused
from runyard.pools.plans.reasons import EventReason, Why
from runyard.pools.plans.views import PoolView
from runyard.wire import names
from runyard.wire.instants import to_rfc3339
from runyard.wire.reasons import render

HARMLESS = ("done", "gone", "conflict")
EXPECTED = (KubeError, TransportError, TimeoutError)
_EVENTS = {
    Why.START_TIMEOUT: ("Warning", EventReason.RUNNER_POD_START_TIMED_OUT),
    Why.UNSCHEDULABLE: ("Warning", EventReason.RUNNER_POD_UNSCHEDULABLE),
    Why.NODE_LEAVING: ("Normal", EventReason.RUNNER_POD_RETIRED_FOR_NODE_DRAIN),
}


def outcome_of(error: Exception) -> str:
    """Return the outcome that a failed request proves."""
    if isinstance(error, NotFound):
        return "gone"
    if isinstance(error, Conflict | AlreadyExists):
        return "conflict"
    if isinstance(error, NotSent):
        return "not-sent"
    if isinstance(error, KubeError) and not isinstance(error, ServerFailed):
        return "refused"
    return "unknown"


class Effects:
    """Applies actions. Failures of dependencies do not raise; every outcome is counted."""

    def __init__(
        self,
        deps: Deps,
        *,
        reports: StopReports,
        recorder: Recorder,
        events: PoolEvents,
        memory: Memory,
        pod: Callable[[str], Pod | None],
    ) -> None:
        self._kube = deps.kube
        self._reports = reports
        self._recorder = recorder
        self._events = events
        self._memory = memory
        self._clock = deps.clock
        self._rng = deps.rng
        self._meter = deps.meter
        self._log = deps.log
        self._settings = deps.settings
        self._pod = pod

    async def apply(self, pool: PoolView, action: Action) -> str:
        """Carry out one action, within its deadline."""
        kind = type(action).__name__
        name = self._new_name(pool) if isinstance(action, CreateRunner) else action.name
        try:
            async with self._clock.timeout(self._settings.action_seconds):
                result = await self._do(pool, action, name)
            if result == "done":
                self._events.add(pool, acted(action, name))
        except EXPECTED as error:
            result = outcome_of(error)
            if result == "refused":
                self._events.add(pool, refused(kind, str(error)))
            self._log.warning(
                "action failed", pool=pool.name, action=kind, runner=name, error=str(error)
            )
        metrics.outcome(self._meter, kind, result)
        self._log.info(
            "action", pool=pool.name, action=kind, runner=name, reason=action.reason, outcome=result
        )
        return result

    async def finalize(self, pool: PoolView, change: FinalizerChange) -> str:
        """Write the pool's list of finalizers."""
        body = {"metadata": {"finalizers": list(change.finalizers)}}
        return await self._patch_pool(
            pool, body, action="FinalizerChange", resource_version=change.resource_version
        )

    async def publish(self, pool: PoolView, patch: StatusPatch, *, observed: int) -> str:
        """Write the status if it changed, or if a heartbeat is due."""
        same = observed == patch.written and patch.image == patch.written_image
        if same and not patch.changed and not patch.due:
            return "done"
        now = to_rfc3339(self._clock.now())
        status = {
            "conditions": conditions(patch.conditions, pool.status.conditions, now=now),
            "observedReplicas": observed,
            "observedImage": patch.image,
            "imageRolledAt": patch.image_rolled_at,
            "lastReconcile": now,
        }
        body = {"status": {name: value for name, value in status.items() if value != ""}}
        return await self._patch_pool(pool, body, action="StatusPatch", subresource="status")

    async def _do(self, pool: PoolView, action: Action, name: str) -> str:
        match action:
            case CreateRunner():
                return await self._create(pool, name)
            case ReapRunner():
                return await self._reap(pool, action)
            case ReapAccount():
                return await self._reap_account(pool, action)
            case MarkDrainEligible():
                return await self._mark(pool, action)
            case ForceDelete():
                return await self._force(pool, action)
            case ReportStopped():
                return await self._report(action)

    def _new_name(self, pool: PoolView) -> str:
        return f"{pool.name}-runner-{self._rng.getrandbits(32):08x}"

    async def _create(self, pool: PoolView, name: str) -> str:
        key = f"{pool.namespace}/{name}"
        if self._pod(key) is not None:
            return "conflict"  # that name is in use: the next plan creates another one
        account = template.service_account(pool, name)
        with contextlib.suppress(AlreadyExists):
            await self._kube.create(SERVICE_ACCOUNTS, account, namespace=pool.namespace)
        self._memory.creating(key, pool=f"{pool.namespace}/{pool.name}", at=self._clock.monotonic())
        try:
            body = template.pod(pool, name, self._settings)
            await self._kube.create(PODS, body, namespace=pool.namespace)
        except AlreadyExists:
            pass
        except (KubeError, TransportError) as error:
            if outcome_of(error) != "unknown":
                self._memory.settled(key)
                await self._delete_account(pool, name)
            raise
        return "done"

    async def _reap(self, pool: PoolView, action: ReapRunner) -> str:
        await self._emit_retired(pool, action)
        if await self._reports.stopped(action.name, ended_at=action.ended_at):
            self._memory.reported(action.uid)
        self._memory.touching(
            action.uid,
            resource_version=action.resource_version,
            effect="deleted",
            at=self._clock.monotonic(),
        )
        result = "done"
        try:
            await self._kube.delete(
                PODS,
                action.name,
                namespace=pool.namespace,
                uid=action.uid,
                resource_version=action.resource_version,
            )
        except NotFound:
            result = "gone"
        except (KubeError, TransportError) as error:
            if outcome_of(error) != "unknown":
                self._memory.untouched(action.uid)
                self._memory.unreported(action.uid)
            raise
        self._memory.touched(action.uid)
        metrics.start_timed_out(self._meter, pool.name, action.reason)
        await self._delete_account(pool, action.name)
        return result

    async def _emit_retired(self, pool: PoolView, action: ReapRunner) -> None:
        pod = self._pod(f"{pool.namespace}/{action.name}")
        if action.reason in _EVENTS and pod is not None:
            type_, reason = _EVENTS[action.reason]
            why = f"{action.reason.template} ({action.detail})"
            message = render(reason.because(why=why))
            await self._recorder.event(
                PODS, pod.metadata, type=type_, reason=reason.camel, message=message
            )

    async def _delete_account(self, pool: PoolView, name: str) -> None:
        """Delete a runner's account, best effort: the plan's orphan rule finds one that is left over."""
        try:
            meta = await self._account(pool, name)
            if meta is not None:
                await self._kube.delete(
                    SERVICE_ACCOUNTS,
                    name,
                    namespace=pool.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                )
        except NotFound:
            return
        except (KubeError, TransportError) as error:
            metrics.outcome(self._meter, "DeleteAccount", outcome_of(error))
            self._log.warning(
                "ServiceAccount could not be deleted",
                pool=pool.name,
                runner=name,
                error=str(error),
            )

    async def _account(self, pool: PoolView, name: str) -> Meta | None:
        """The runner's account as it is now, if there is one and it is this pool's."""
        account = await self._kube.get_as(
            SERVICE_ACCOUNTS, name, ServiceAccount, namespace=pool.namespace
        )
        meta = account.metadata
        ours = meta.labels.get(names.RUNNER_POOL) == pool.name
        return meta if ours and not meta.deletion_timestamp else None

    async def _reap_account(self, pool: PoolView, action: ReapAccount) -> str:
        # The cache may lag or may not have been able to read the Pod: only a 404 proves it gone. A
        # Pod that is being deleted does not need its account any more.
        try:
            pod = await self._kube.get(PODS, action.name, namespace=pool.namespace)
        except NotFound:
            pod = {}
        if pod and not pod.get("metadata", {}).get("deletionTimestamp"):
            return "conflict"
        await self._kube.delete(
            SERVICE_ACCOUNTS,
            action.name,
            namespace=pool.namespace,
            uid=action.uid,
            resource_version=action.resource_version,
        )
        return "done"

    async def _mark(self, pool: PoolView, action: MarkDrainEligible) -> str:
        self._memory.touching(
            action.uid,
            resource_version=action.resource_version,
            effect="marked",
            at=self._clock.monotonic(),
        )
        metadata = {
            "labels": {names.DRAIN_ELIGIBLE: "true"},
            "annotations": {names.DRAIN_ELIGIBLE_AT: to_rfc3339(self._clock.now())},
        }
        try:
            await self._kube.patch(
                PODS,
                action.name,
                {"metadata": metadata},
                namespace=pool.namespace,
                uid=action.uid,
                resource_version=action.resource_version,
            )
        except (KubeError, TransportError) as error:
            if outcome_of(error) != "unknown":
                self._memory.untouched(action.uid)
            raise
        self._memory.touched(action.uid)
        return "done"

    async def _force(self, pool: PoolView, action: ForceDelete) -> str:
        pod = await self._kube.get_as(PODS, action.name, Pod, namespace=pool.namespace)
        meta = pod.metadata
        if (meta.uid, meta.resource_version) != (action.uid, action.resource_version):
            return "conflict"
        version = meta.resource_version
        if names.VM_FINALIZER in meta.finalizers:
            # Its host would remove this finalizer, but the host is gone. Finalizers of other controllers stay.
            rest = [name for name in meta.finalizers if name != names.VM_FINALIZER]
            body = {"metadata": {"finalizers": rest}}
            patched = await self._kube.patch(
                PODS,
                action.name,
                body,
                namespace=pool.namespace,
                uid=meta.uid,
                resource_version=version,
            )
            version = str(patched.get("metadata", {}).get("resourceVersion", ""))
        await self._kube.delete(
            PODS,
            action.name,
            namespace=pool.namespace,
            uid=meta.uid,
            resource_version=version,
            grace=0,
        )
        await self._delete_account(pool, action.name)
        return "done"

    async def _report(self, action: ReportStopped) -> str:
        if not await self._reports.stopped(action.name, ended_at=action.ended_at):
            return "unknown"
        self._memory.reported(action.uid)
        return "done"

    async def _patch_pool(
        self,
        pool: PoolView,
        body: dict[str, Any],
        *,
        action: str,
        subresource: str = "",
        resource_version: str = "",
    ) -> str:
        try:
            async with self._clock.timeout(self._settings.action_seconds):
                await self._kube.patch(
                    RUNNER_POOLS,
                    pool.name,
                    body,
                    namespace=pool.namespace,
                    subresource=subresource,
                    uid=pool.uid,
                    resource_version=resource_version,
                )
            result = "done"
        except EXPECTED as error:
            result = outcome_of(error)
            if result == "refused":
                self._events.add(pool, refused(action, str(error)))
        metrics.outcome(self._meter, action, result)
        return result
