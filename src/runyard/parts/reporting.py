"""A part's senses: what its ways to the world experience becomes health conditions.

Wrapped around a transport or a database, these report each answer and each silence, and change nothing else. So
the conditions say what the part itself meets in its work, not what a separate probe would.

A 401 is about who we are: any success disproves it. A 403 is about one thing that we may not do, while everything else
goes on as if nothing were wrong; so it is remembered until that very thing is allowed. A worker that lacked a single
right did nothing for weeks once, and nobody saw it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from runyard.db.contract import Database, Tx, Unavailable
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import RUNYARD_FORBIDDEN_TOTAL
from runyard.telemetry.health import Condition, Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

T = TypeVar("T")


FORBIDDEN = 403
UNAVAILABLE = (502, 503, 504)  # somebody answers for the peer, who is not there
_SHOWN = 3


class ReportingTransport:
    """Tells whether a peer answers, and whether it accepts us (401; `refusals` may name more)."""

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
        self._denied: dict[str, str] = {}  # a kind of request → the last one that was forbidden

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send, and report."""
        try:
            answer = await self._inner.send(request, timeout=timeout)
        except TransportError as error:
            self._health.fail(self._unreachable, str(error))
            raise
        if answer.status in UNAVAILABLE:
            told = f"{answer.status} to {request.method} {request.path}"
            self._health.fail(self._unreachable, told)
        else:
            self._health.ok(self._unreachable)
        self._judge(request, answer)
        return answer

    def _judge(self, request: Request, answer: Response | Stream) -> None:
        status = answer.status
        told = f"{status} to {request.method} {request.path}"
        if status in self._refusals and status != FORBIDDEN:
            self._health.fail(self._refused, told)
            return
        if status == FORBIDDEN and status in self._refusals:
            self._deny(request, answer, told)
        elif self._denied and status < 500:
            self._denied.pop(kind_of(request), None)
        if self._denied:
            self._health.fail(self._refused, ", ".join(list(self._denied.values())[-_SHOWN:]))
        elif status < 400:
            self._health.ok(self._refused)

    def _deny(self, request: Request, answer: Response | Stream, told: str) -> None:
        kind = kind_of(request)
        if self._meter is not None:
            self._meter.inc(RUNYARD_FORBIDDEN_TOTAL, request=kind)
        if kind not in self._denied and self._log is not None:
            self._log.error("forbidden", request=told, error=_said(answer))
        self._denied[kind] = told


def _said(answer: Response | Stream) -> str:
    """The peer's own words, if it has any."""
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
    """A way to the Kubernetes API; there a part that may not do its work is refused with 403 too."""
    return ReportingTransport(
        inner,
        health,
        unreachable=conditions.KUBERNETES_UNREACHABLE,
        refused=conditions.KUBERNETES_REFUSED,
        refusals=(401, 403),
        log=log,
        meter=meter,
    )


class ReportingDatabase:
    """Tells whether the database answers."""

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
