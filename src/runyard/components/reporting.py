"""Turns the responses of a component's dependencies into health conditions.

These classes wrap a transport or a database, report each response and each failure, and change nothing else. So the
conditions show the component's own requests, not those of a separate probe.

A 401 concerns the whole identity: any success clears it. A 403 concerns one request, while everything else succeeds;
so it is kept until that same request is allowed. Otherwise a component that lacks a single permission does nothing
for weeks, unnoticed.

That request may not be repeated for days after the role was corrected. So while requests are denied, `check_denied`
lets the API review them, and forgets those that are allowed.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Tx, Unavailable
from runyard.http.errors import TRANSPORT_ERRORS, TransportError
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.kube.access import Access, access_of, is_allowed
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import RUNYARD_KUBERNETES_FORBIDDEN_TOTAL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Condition, Health
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop

T = TypeVar("T")


FORBIDDEN = 403
TOO_MANY = 429
UNAVAILABLE = (502, 503, 504)  # a proxy responds, the peer behind it is unavailable
_SHOWN = 3
_REVIEW_EVERY, _REVIEW_WITHIN = 30.0, 60.0


class _Denied(msgspec.Struct):
    """A kind of request that was forbidden."""

    access: Access
    summary: str  # of the last one: status, method, path
    times: int = 0
    disputed: bool = False  # the review allowed it, and then it was forbidden again


class ReportingTransport:
    """Reports whether a peer responds, and whether it accepts this component (401; `refusals` may name more)."""

    def __init__(
        self,
        inner: Transport,
        health: Health,
        *,
        unreachable: Condition,
        refused: Condition,
        refusals: tuple[int, ...] = (401,),
        log: Logger | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._inner = inner
        self._health = health
        self._unreachable = unreachable.code
        self._refused = refused.code
        self._refusals = refusals
        self._log = log
        self._meter = meter
        self._denied: dict[str, _Denied] = {}  # by kind of request
        self._reviewed: set[str] = set()  # kinds that were forgotten because a review allowed them

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send, and report."""
        try:
            answer = await self._inner.send(request, timeout=timeout)
        except TransportError as error:
            self._health.fail(self._unreachable, str(error))
            raise
        if answer.status in UNAVAILABLE:
            self._health.fail(self._unreachable, _summary(request, answer))
        else:
            self._health.ok(self._unreachable)
        self._check_access(request, answer)
        return answer

    def _check_access(self, request: Request, answer: Response | Stream) -> None:
        status = answer.status
        summary = _summary(request, answer)
        if status in self._refusals and status != FORBIDDEN:
            self._health.fail(self._refused, summary)
            return
        if status == FORBIDDEN and status in self._refusals:
            self._deny(request, answer, summary)
        elif (self._denied or self._reviewed) and _was_permitted(status):
            kind = kind_of(request)
            self._denied.pop(kind, None)
            self._reviewed.discard(kind)
        self._report(accepted=status < 400)

    def _report(self, *, accepted: bool) -> None:
        if self._denied:
            summaries = [denied.summary for denied in self._denied.values()]
            self._health.fail(self._refused, ", ".join(summaries[-_SHOWN:]))
        elif accepted:
            self._health.ok(self._refused)

    def _deny(self, request: Request, answer: Response | Stream, summary: str) -> None:
        kind, access = kind_of(request), access_of(request)
        if self._meter is not None:
            self._meter.inc(
                RUNYARD_KUBERNETES_FORBIDDEN_TOTAL, verb=access.verb, resource=access.full_resource
            )
        denied = self._denied.get(kind)
        if denied is None:
            if self._log is not None:
                self._log.error("forbidden", request=summary, error=_message(answer))
            denied = _Denied(access, summary, disputed=kind in self._reviewed)
            self._denied[kind] = denied
        denied.access, denied.summary = access, summary
        denied.times += 1

    async def review(self, kube: Kube) -> None:
        """Forget the denied requests that the API allows by now; costs nothing while none is denied.

        `kube` is a client on this transport. A review that fails changes nothing, and neither does one that was
        overtaken by another 403. A review only knows the roles: a request that it allows and that is forbidden again
        (by an admission policy or a quota) is kept until a review has denied it, or the request itself succeeds.
        """
        kube = kube.through(lambda _: self._inner)  # a refused review is not a denied request
        failed: list[KubeError] = []
        for kind, denied in list(self._denied.items()):
            times = denied.times
            try:
                allowed = await is_allowed(kube, denied.access)
            except KubeError as error:
                failed.append(error)
                continue
            if not allowed:
                denied.disputed = False
            elif not denied.disputed and denied.times == times and kind in self._denied:
                del self._denied[kind]
                self._reviewed.add(kind)
                if self._log is not None:
                    self._log.info("allowed again", request=denied.summary)
                self._report(accepted=True)
        if failed:
            raise ExceptionGroup("access reviews failed", failed)


def _summary(request: Request, answer: Response | Stream) -> str:
    return f"{answer.status} to {request.method} {request.path}"


def _was_permitted(status: int) -> bool:
    """Whether the permission was checked and found; an overloaded API server responds 429 before it checks."""
    return status < 500 and status != TOO_MANY


def _message(answer: Response | Stream) -> str:
    """The peer's error message; empty if there is none."""
    try:
        return "" if isinstance(answer, Stream) else str(answer.json()["message"])[:500]
    except (ValueError, TypeError, KeyError):
        return ""


def kind_of(request: Request) -> str:
    """A request without the name of its object: `PATCH /api/v1/namespaces/x/pods/*/status`."""
    steps = request.path.strip("/").split("/")
    named = 2 if steps[0] == "api" else 3  # where the resource is, after the group's version
    if steps[named : named + 1] == ["namespaces"] and len(steps) > named + 2:
        named += 2
    if len(steps) > named + 1:
        steps[named + 1] = "*"
    watch = "?watch" if request.param("watch") else ""
    return f"{request.method} /{'/'.join(steps)}{watch}"


def reporting_kube(
    inner: Transport, health: Health, log: Logger | None = None, *, meter: Meter | None = None
) -> ReportingTransport:
    """Wrap a transport to the Kubernetes API, which responds 403 where a permission is missing."""
    return ReportingTransport(
        inner,
        health,
        unreachable=conditions.KUBERNETES_UNREACHABLE,
        refused=conditions.KUBERNETES_REFUSED,
        refusals=(401, 403),
        log=log,
        meter=meter,
    )


def with_reports(kube: Kube, health: Health, *, meter: Meter, log: Logger) -> Kube:
    """The same client, with responses that become health conditions."""
    return kube.through(lambda inner: reporting_kube(inner, health, log, meter=meter))


class LoopDeps(Protocol):
    """The dependencies of a component's loops."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def rng(self) -> random.Random:
        """Randomness."""

    @property
    def meter(self) -> Meter:
        """Metrics."""

    @property
    def log(self) -> Logger:
        """The log."""

    @property
    def freshness(self) -> Freshness | None:
        """When each loop last succeeded."""


async def check_denied(kube: Kube, deps: LoopDeps) -> None:
    """Review the requests that are denied on a client of `with_reports`, until cancelled."""
    transport = kube.transport
    if not isinstance(transport, ReportingTransport):
        return  # this client reports nothing, so no request is kept as denied
    await run_loop(
        Loop.DENIED_ACCESS,
        lambda: transport.review(kube),
        clock=deps.clock,
        meter=deps.meter,
        log=deps.log,
        every=_REVIEW_EVERY,
        deadline=_REVIEW_WITHIN,
        jitter_rng=deps.rng,
        expected=(*TRANSPORT_ERRORS, KubeError),
        max_backoff=_REVIEW_EVERY,
        freshness=deps.freshness,
    )


class ReportingDatabase:
    """Reports whether the database responds."""

    def __init__(self, inner: Database, health: Health, *, unreachable: Condition) -> None:
        self._inner = inner
        self._health = health
        self._unreachable = unreachable.code

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run a transaction, and report."""
        try:
            result = await self._inner.transact(work, name=name)
        except Unavailable as error:
            self._health.fail(self._unreachable, str(error))
            raise
        self._health.ok(self._unreachable)
        return result
