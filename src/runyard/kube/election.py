"""Elects one leader among replicas by a `coordination.k8s.io/v1` Lease, as Kubernetes' own components do.

    follow: read the Lease ─▶ decide (pure) ─▶ wait, or write it ─▶ lead: renew it ─▶ lost: follow again

`plans/election.py` decides, this module reads and writes, `leadership.py` refuses the writes of a replica that does
not lead. The work is started again for each term, so that it begins with fresh lists and no state of an earlier term.

Invariants:
- A write of the Lease names the resourceVersion that it was decided from; it cannot undo another replica's write.
- Only an acknowledged write makes a leader, counted from before it was sent. One with an unknown outcome makes none.
- A leader whose renewals fail ends its term before the Lease expires for others. So does one that finds another's name.
- In an orderly end the Lease is given up only after the work has ended and the outcome of every write is known.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from runyard.kube.kinds import LEASES
from runyard.kube.leadership import Leadership
from runyard.kube.objects import Lease
from runyard.kube.plans import election
from runyard.kube.plans.election import Observation, Record, Timing, Wait, Write
from runyard.telemetry.catalogue import (
    LEADER_ELECTION_MASTER_STATUS,
    RUNYARD_LOOP_FAILURES_TOTAL,
)
from runyard.telemetry.freshness import Freshness, due_within
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop, error_slug
from runyard.wire.instants import to_rfc3339_micro

LOOP = Loop.LEADER_ELECTION
DEPENDENCY_ERRORS = (KubeError, TransportError, TimeoutError)
_ATTEMPT = 5.0  # seconds for one request: two attempts fit into a term that nothing renews
_SETTLE = 3.0
_RELEASE = 2.0
_JITTER = 0.5  # of the retry period: replicas drift apart


class ElectionDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What an election needs. `kube` must not pass through a `LeaderTransport`: it makes the leader."""

    kube: Kube
    name: str
    namespace: str
    identity: str
    """Different for every process; two may share it only if the first has certainly ended when the second starts."""
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    freshness: Freshness | None = None
    timing: Timing = Timing()


class Election:
    """One replica's side of the election. `run` it once."""

    def __init__(self, deps: ElectionDeps, leadership: Leadership) -> None:
        self._deps = deps
        self._leadership = leadership
        self._seen: Observation | None = None
        self._settled = True
        self._logged_holder = ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Follow and lead in turns until cancelled; `lead` is cancelled when a term ends."""
        deps = self._deps
        deps.meter.set(LEADER_ELECTION_MASTER_STATUS, 0, name=deps.name)
        if deps.freshness is not None:
            within = due_within(every=deps.timing.retry_period, deadline=_ATTEMPT)
            deps.freshness.expect(LOOP, within)
        try:
            while True:
                await self._follow()
                await self._term(lead)
        finally:
            await self._release()

    # ── following ───────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        """Return once this replica leads."""
        deps = self._deps
        while not self._leadership.leads:
            try:
                async with deps.clock.timeout(_ATTEMPT):
                    await self._read()
                await self._attempt(_ATTEMPT)
            except (Conflict, AlreadyExists):
                pass  # another replica was faster; the next read shows which
            except DEPENDENCY_ERRORS as error:
                self._failed("the leader's lease could not be read or taken", error)
            if not self._leadership.leads:
                pause = deps.timing.retry_period * (1.0 + _JITTER * deps.rng.random())
                await deps.clock.sleep(pause)

    async def _read(self) -> None:
        deps = self._deps
        try:
            lease = await deps.kube.get_as(LEASES, deps.name, Lease, namespace=deps.namespace)
        except NotFound:
            self._seen = election.missing(self._seen, now=deps.clock.monotonic())
        else:
            self._observe(lease)
        self._succeeded()

    def _observe(self, lease: Lease) -> None:
        self._seen = election.observe(
            self._seen,
            _record(lease),
            resource_version=lease.metadata.resource_version,
            now=self._deps.clock.monotonic(),
        )

    # ── leading ─────────────────────────────────────────────────────────────────────────────────

    async def _term(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Lead until the lease is lost or this replica ends."""
        deps, leadership = self._deps, self._leadership
        self._settled = False  # until every write is known to have ended; a cancel may prevent that
        leadership.reopen()
        deps.meter.set(LEADER_ELECTION_MASTER_STATUS, 1, name=deps.name)
        deps.log.info("leading", lease=deps.name, identity=deps.identity)
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(_work(lead), name="term")
                try:
                    await self._hold()  # until the lease is lost; abandons what is under way
                except asyncio.CancelledError:
                    self._settled = await leadership.settle(within=_SETTLE)
                    raise
                finally:
                    work.cancel()
        finally:
            deps.meter.set(LEADER_ELECTION_MASTER_STATUS, 0, name=deps.name)
            deps.log.warning("not leading any more", lease=deps.name, identity=deps.identity)

    async def _hold(self) -> None:
        """Renew the lease; return when it is lost."""
        deps, leadership = self._deps, self._leadership
        while leadership.leads:
            await deps.clock.sleep(min(deps.timing.retry_period, max(0.0, leadership.left)))
            within = min(_ATTEMPT, leadership.left)
            if within <= 0:
                break
            try:
                await self._attempt(within)
                self._succeeded()
            except (Conflict, AlreadyExists, NotFound):
                await self._reread()
            except DEPENDENCY_ERRORS as error:
                self._failed("the leader's lease could not be renewed", error)
        leadership.lost()

    async def _reread(self) -> None:
        """Read the Lease after a conflict, and end the term if another replica holds it."""
        try:
            async with self._deps.clock.timeout(max(0.0, min(_ATTEMPT, self._leadership.left))):
                await self._read()
        except DEPENDENCY_ERRORS as error:
            self._failed("the leader's lease could not be read", error)
            return
        if self._seen is None or self._seen.record.holder != self._deps.identity:
            self._leadership.lost()

    async def _attempt(self, within: float) -> None:
        """Decide, and write the Lease if that was decided."""
        deps, clock, seen = self._deps, self._deps.clock, self._seen
        if seen is None:
            raise RuntimeError("the lease must be read before a decision")
        decision = election.decide(
            seen,
            identity=deps.identity,
            timing=deps.timing,
            now=clock.monotonic(),
            stamp=to_rfc3339_micro(clock.now()),
        )
        if isinstance(decision, Wait):
            self._log_holder(decision.holder)
            return
        sent = self._leadership.sent_now()
        async with clock.timeout(within):
            await self._write(decision)
        self._leadership.renewed(sent)
        self._logged_holder = ""

    async def _write(self, decision: Write) -> None:
        deps = self._deps
        spec = _spec(decision.record)
        if decision.resource_version:
            body = await deps.kube.patch(
                LEASES,
                deps.name,
                {"spec": spec},
                namespace=deps.namespace,
                resource_version=decision.resource_version,
            )
        else:
            fresh = {"metadata": {"name": deps.name}, "spec": spec}
            body = await deps.kube.create(LEASES, fresh, namespace=deps.namespace)
        self._observe(deps.kube.reader(Lease).of(body))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    async def _release(self) -> None:
        """Give the lease up if this replica leads and the outcome of all its writes is known."""
        deps, seen = self._deps, self._seen
        leads = self._leadership.leads
        self._leadership.lost()
        if not leads or not self._settled or seen is None:
            return
        record = election.released(seen.record, stamp=to_rfc3339_micro(deps.clock.now()))
        try:
            async with deps.clock.timeout(_RELEASE):
                await self._write(
                    Write(
                        reason=election.Reason.RELEASED,
                        resource_version=seen.resource_version,
                        record=record,
                    )
                )
        except DEPENDENCY_ERRORS as error:
            self._failed("the leader's lease was not given up; it expires by itself", error)

    def _log_holder(self, holder: str) -> None:
        if holder != self._logged_holder:
            self._deps.log.info("another replica leads", lease=self._deps.name, holder=holder)
        self._logged_holder = holder

    def _succeeded(self) -> None:
        if self._deps.freshness is not None:
            self._deps.freshness.succeeded(LOOP)

    def _failed(self, what: str, error: Exception) -> None:
        kind = error_slug(error)
        self._deps.meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop=LOOP, error=kind)
        self._deps.log.warning(what, lease=self._deps.name, error=str(error) or kind)


async def _work(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()
    raise RuntimeError("a leader's work ended although its term did not")


def _record(lease: Lease) -> Record:
    spec = lease.spec
    return Record(
        holder=spec.holder_identity,
        duration=float(spec.lease_duration_seconds),
        acquire_time=spec.acquire_time,
        renew_time=spec.renew_time,
        transitions=spec.lease_transitions,
    )


def _spec(record: Record) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": int(record.duration),
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.transitions,
    }
