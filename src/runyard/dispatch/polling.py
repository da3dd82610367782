"""The poll: a Pod asks for work and is held until there is some, or for a while.

The order of checks: who is it; does a person want it gone; has it had its job; is it stale and its turn to be replaced
(a failed look means no: draining is opportunistic); then its slot. A poll never claims anything itself: the matcher
does, and wakes the poll. A runner that is being made, or is made, is not drained for its image: a job is meant for it.

Never said here, though pollers understand it: 403; 404 `account not configured`, for a tenant cannot vanish while it
has jobs; 502 `jit mint failed`, for mints run beside the polls, and one that fails makes its Pod wait on.

Invariant: polls wait for their turn at the database among themselves (`poll_parallel`), so that any number of them
leaves connections to webhooks, claims and mints.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

from runyard.clock import Clock
from runyard.db.contract import Unavailable
from runyard.dispatch.callers import Callers, Guest
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Polled
from runyard.dispatch.machine.transition import Tell, answer_poll
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.pools import Pools
from runyard.dispatch.seal import Seal
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import Store
from runyard.dispatch.waiting import Waiters
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, json_response
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.telemetry.catalogue import (
    RUNYARD_POLL_WAKES_TOTAL,
    TUIST_RUNNERS_DISPATCH_REQUEST_COUNT,
    TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS,
)
from runyard.telemetry.meter import Meter
from runyard.wire.bodies import Dispatched, Drain
from runyard.wire.names import DRAIN_ELIGIBLE, OPERATOR_DRAIN

_TURN_WITHIN = 8.0  # a classic poller hangs up after 10 s
_LOOK_AGAIN = 1.0  # while the mint runs, perhaps at another replica


class _Held:
    """How long a poll was kept waiting because there was no work for it."""

    seconds = 0.0


class _Wish(Enum):
    """What people and the operator want of a Pod."""

    STAY = "stay"
    GO = "go"
    GO_UNLESS_NEEDED = "go unless needed"


class Polls:
    """Answers polls."""

    def __init__(
        self,
        *,
        kube: Kube,
        callers: Callers,
        store: Store,
        pools: Pools,
        waiters: Waiters,
        seal: Seal,
        clock: Clock,
        meter: Meter,
        settings: Settings,
        guards: Guards = SHIPPED,
    ) -> None:
        self._guards = guards
        self._kube = kube
        self._callers = callers
        self._store = store
        self._pools = pools
        self._waiters = waiters
        self._seal = seal
        self._clock = clock
        self._meter = meter
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.poll_parallel)

    async def answer(self, request: Request) -> Response:
        """Answer one poll; what it raises is for the table's boundary (`api`)."""
        began, held = self._clock.monotonic(), _Held()
        guest = await self._callers.guest(request.header("authorization"))
        outcome, response = await self._serve(guest, self._patience(request), held)
        took = self._clock.monotonic() - began - held.seconds
        fleet = guest.pool
        self._meter.inc(TUIST_RUNNERS_DISPATCH_REQUEST_COUNT, fleet=fleet, outcome=outcome)
        self._meter.observe(
            TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS,
            max(0.0, took) * 1000,
            fleet=fleet,
            outcome=outcome,
        )
        return response

    async def _serve(self, guest: Guest, patience: float, held: _Held) -> tuple[str, Response]:
        wish = await self._wish(guest)
        if wish is _Wish.GO:
            return "drain", json_response(410, Drain(reason="operator drain"))
        if wish is _Wish.GO_UNLESS_NEEDED and await self._unneeded(guest):
            return "drain", json_response(410, Drain(reason="image stale"))
        slot = await self._wait(guest, patience, held)
        told = answer_poll(slot)
        if told.tell is Tell.DRAIN:
            return "pod_committed", json_response(410, Drain(reason=told.reason))
        if told.tell is Tell.RUN and told.jit is not None:
            body = Dispatched(
                encoded_jit_config=self._seal.open(told.jit, pod_uid=slot.pod_uid),
                owner=slot.tenant,
                workflow_job_id=slot.intended_job or 0,
            )
            return "served", json_response(200, body)
        return "empty", Response(status=204)

    async def _wait(self, guest: Guest, patience: float, held: _Held) -> Slot:
        """Hold the poll while its slot has nothing to tell."""
        until = self._clock.monotonic() + patience
        event = Polled(pod_uid=guest.pod_uid, pod_name=guest.pod_name, pool=guest.pool)
        with self._waiters.registered(guest.pod_uid) as bell:
            while True:
                bell.clear()
                async with self._turn():
                    slot = await self._store.poll(event)
                left = until - self._clock.monotonic()
                if answer_poll(slot).tell is not Tell.WAIT or left <= 0:
                    return slot
                if slot.state is SlotState.IDLE:
                    if self._waiters.over:
                        return slot
                    self._waiters.free(guest.pod_uid, guest.pool)
                else:
                    left = min(left, _LOOK_AGAIN)
                since = self._clock.monotonic()
                try:
                    async with self._clock.timeout(left):
                        await bell.wait()
                    if not self._waiters.over:
                        self._meter.inc(RUNYARD_POLL_WAKES_TOTAL, pool=guest.pool)
                except TimeoutError:
                    pass
                finally:
                    if slot.state is SlotState.IDLE:
                        held.seconds += self._clock.monotonic() - since
                if self._waiters.over and self._waiters.is_free(guest.pod_uid):
                    return slot

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One poll's turn at the database."""
        try:
            async with self._clock.timeout(_TURN_WITHIN):
                await self._turns.acquire()
        except TimeoutError:
            raise Unavailable("too many polls wait for the database") from None
        try:
            yield
        finally:
            self._turns.release()

    async def _unneeded(self, guest: Guest) -> bool:
        """Is nobody about to give it a job, and has it not had one?"""
        async with self._turn():
            slot = await self._store.look(guest.pod_uid)
        return slot is None or slot.state is SlotState.IDLE

    async def _wish(self, guest: Guest) -> "_Wish":
        """What people and the operator want of this Pod."""
        if not self._guards.drain_first:
            return _Wish.STAY
        try:
            pod = await self._kube.get_as(
                PODS, guest.pod_name, Pod, namespace=self._settings.namespace
            )
        except (KubeError, TransportError):
            return _Wish.STAY
        if pod.metadata.uid != guest.pod_uid:
            return _Wish.STAY  # these are the labels of another incarnation
        labels = pod.metadata.labels
        if labels.get(OPERATOR_DRAIN) == "true":
            return _Wish.GO
        pool = self._pools.by_name(guest.pool)
        stale = (
            pool is not None
            and bool(pod.spec.containers)
            and pod.spec.containers[0].image != pool.image
        )
        turn = stale and labels.get(DRAIN_ELIGIBLE) == "true"
        return _Wish.GO_UNLESS_NEEDED if turn else _Wish.STAY

    def _patience(self, request: Request) -> float:
        """How long the client says that it will wait; a classic poller says nothing."""
        for wish in request.header("prefer").lower().split(","):
            name, _, value = wish.partition(";")[0].partition("=")
            if name.strip() == "wait":
                with contextlib.suppress(ValueError):
                    seconds = float(value.strip().strip('"'))
                    return min(max(0.0, seconds), self._settings.poll_wait_max)
        return self._settings.poll_wait_default
