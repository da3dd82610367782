"""Answers polls: a runner Pod asks for work and the response is delayed until there is some, or for a limited time.

The order of checks: authentication; a drain that was requested by hand; whether the slot already had its job; whether
its image is stale and the operator marked it for replacement (if the Pod cannot be read: no, because draining can
wait); then its slot. A poll never claims: the matcher does, and wakes the poll. A runner that is offered or armed is
not drained for its image, because a job is intended for it.

Pollers also understand responses that this server never sends: 403; 404 `account not configured`, because a tenant is
not deleted while it has jobs; 502 `jit mint failed`, because mints run outside of polls and after a failed one the Pod
continues to wait.

A poll that is cancelled was cut off by its client, or by the network: until it polls again, its Pod asks for nothing
(`dropped_polls`).

Invariant: at most `poll_parallel` polls use the database at once, so that any number of polls leaves connections for
webhooks, claims and mints.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

from runyard.db.contract import Unavailable
from runyard.dispatch.authentication import Authenticator, RunnerIdentity
from runyard.dispatch.deps import Deps
from runyard.dispatch.dropped_polls import DroppedPolls
from runyard.dispatch.machine.events import Polled
from runyard.dispatch.machine.transition import PollVerdict, answer_poll
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.pools import Pools
from runyard.dispatch.seal import Seal
from runyard.dispatch.store import Store
from runyard.dispatch.waiters import Waiters
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, json_response
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.telemetry.catalogue import (
    RUNYARD_POLL_WAKES_TOTAL,
    TUIST_RUNNERS_DISPATCH_REQUEST_COUNT,
    TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS,
)
from runyard.wire.bodies import Dispatched, Drain, DrainReason
from runyard.wire.names import DRAIN_ELIGIBLE, OPERATOR_DRAIN

_PERMIT_TIMEOUT = 8.0  # a poller that sends no `Prefer: wait` closes the connection after 10 s
_RECHECK = 1.0  # while the mint runs, perhaps at another replica


class _Waited:
    """What one poll has done so far."""

    idle = 0.0  # seconds in which there was no work for it; not counted in the request duration
    beat: float | None = None  # when the database answered its last beat, monotonic


class _DrainRequest(Enum):
    """Whether an administrator or the operator asked to drain a Pod."""

    NONE = "none"
    NOW = "now"
    IF_IDLE = "if-idle"


class Polls:
    """Answers polls."""

    def __init__(
        self,
        deps: Deps,
        *,
        authenticator: Authenticator,
        store: Store,
        pools: Pools,
        waiters: Waiters,
        dropped: DroppedPolls,
        seal: Seal,
    ) -> None:
        self._guards = deps.guards
        self._kube = deps.kube
        self._authenticator = authenticator
        self._store = store
        self._pools = pools
        self._waiters = waiters
        self._dropped = dropped
        self._seal = seal
        self._clock = deps.clock
        self._meter = deps.meter
        self._settings = deps.settings
        self._permits = asyncio.Semaphore(deps.settings.poll_parallel)

    async def answer(self, request: Request) -> Response:
        """Answer one poll. Errors are mapped to responses by `routes`."""
        began, waited = self._clock.monotonic(), _Waited()
        runner = await self._authenticator.runner(request.header("authorization"))
        try:
            outcome, response = await self._serve(runner, self._patience(request), waited)
        except asyncio.CancelledError:
            if waited.beat is not None:
                self._dropped.add(runner.pod_uid, beat=waited.beat)
            raise
        took = self._clock.monotonic() - began - waited.idle
        fleet = runner.pool
        self._meter.inc(TUIST_RUNNERS_DISPATCH_REQUEST_COUNT, fleet=fleet, outcome=outcome)
        self._meter.observe(
            TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS,
            max(0.0, took) * 1000,
            fleet=fleet,
            outcome=outcome,
        )
        return response

    async def _serve(
        self, runner: RunnerIdentity, patience: float, waited: _Waited
    ) -> tuple[str, Response]:
        drain = await self._drain_request(runner)
        if drain is _DrainRequest.NOW:
            return "drain", json_response(410, Drain(reason=DrainReason.OPERATOR))
        if drain is _DrainRequest.IF_IDLE and await self._is_idle(runner):
            return "drain", json_response(410, Drain(reason=DrainReason.IMAGE_STALE))
        slot = await self._wait(runner, patience, waited)
        answer = answer_poll(slot)
        if answer.verdict is PollVerdict.DRAIN:
            return "pod_committed", json_response(410, Drain(reason=DrainReason.COMMITTED))
        if answer.verdict is PollVerdict.RUN and answer.jit is not None:
            body = Dispatched(
                encoded_jit_config=self._seal.open(answer.jit, pod_uid=slot.pod_uid),
                owner=slot.tenant,
                workflow_job_id=slot.intended_job or 0,
            )
            return "served", json_response(200, body)
        return "empty", Response(status=204)

    async def _wait(self, runner: RunnerIdentity, patience: float, waited: _Waited) -> Slot:
        """Wait until the slot has an answer for the poll, or the time is over."""
        until = self._clock.monotonic() + patience
        event = Polled(pod_uid=runner.pod_uid, pod_name=runner.pod_name, pool=runner.pool)
        with self._waiters.registered(runner.pod_uid) as wakeup:
            while True:
                wakeup.clear()
                slot = self._waiters.armed(runner.pod_uid) or await self._read(event, waited)
                left = until - self._clock.monotonic()
                if answer_poll(slot).verdict is not PollVerdict.WAIT or left <= 0:
                    return slot
                if slot.state is SlotState.IDLE:
                    if self._waiters.stopping:
                        return slot
                    self._waiters.mark_idle(runner.pod_uid, runner.pool)
                else:
                    left = min(left, _RECHECK)
                since = self._clock.monotonic()
                try:
                    async with self._clock.timeout(left):
                        await wakeup.wait()
                    if not self._waiters.stopping:
                        self._meter.inc(RUNYARD_POLL_WAKES_TOTAL, pool=runner.pool)
                except TimeoutError:
                    pass
                finally:
                    if slot.state is SlotState.IDLE:
                        waited.idle += self._clock.monotonic() - since
                if self._waiters.stopping and self._waiters.is_idle(runner.pod_uid):
                    return slot

    async def _read(self, event: Polled, waited: _Waited) -> Slot:
        async with self._database_permit():
            slot = await self._store.poll(event)
        waited.beat = self._clock.monotonic()
        return slot

    @contextlib.asynccontextmanager
    async def _database_permit(self) -> AsyncIterator[None]:
        """Limit how many polls use the database at once."""
        try:
            async with self._clock.timeout(_PERMIT_TIMEOUT):
                await self._permits.acquire()
        except TimeoutError:
            raise Unavailable(
                "too many polls wait for the database; the runner polls again"
            ) from None
        try:
            yield
        finally:
            self._permits.release()

    async def _is_idle(self, runner: RunnerIdentity) -> bool:
        """Whether no job is intended for this Pod and it has had none."""
        async with self._database_permit():
            slot = await self._store.read_slot(runner.pod_uid)
        return slot is None or slot.state is SlotState.IDLE

    async def _drain_request(self, runner: RunnerIdentity) -> "_DrainRequest":
        """Read from the Pod's labels whether it should be drained."""
        if not self._guards.drain_first:
            return _DrainRequest.NONE
        try:
            pod = await self._kube.get_as(
                PODS, runner.pod_name, Pod, namespace=self._settings.namespace
            )
        except (KubeError, TransportError):
            return _DrainRequest.NONE
        if pod.metadata.uid != runner.pod_uid:
            return _DrainRequest.NONE  # the labels belong to another Pod of the same name
        labels = pod.metadata.labels
        if labels.get(OPERATOR_DRAIN) == "true":
            return _DrainRequest.NOW
        pool = self._pools.by_name(runner.pool)
        stale = (
            pool is not None
            and bool(pod.spec.containers)
            and pod.spec.containers[0].image != pool.image
        )
        eligible = stale and labels.get(DRAIN_ELIGIBLE) == "true"
        return _DrainRequest.IF_IDLE if eligible else _DrainRequest.NONE

    def _patience(self, request: Request) -> float:
        """How long the client is willing to wait, from `Prefer: wait`; older pollers send none."""
        for preference in request.header("prefer").lower().split(","):
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip() == "wait":
                with contextlib.suppress(ValueError):
                    seconds = float(value.strip().strip('"'))
                    return min(max(0.0, seconds), self._settings.poll_wait_max)
        return self._settings.poll_wait_default
