"""A part's senses: what its ways to the world experience becomes health conditions.

Wrapped around a transport or a database, these report each answer and each silence, and change nothing else. So
the conditions say what the part itself meets in its work, not what a separate probe would.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from runyard.db.contract import Database, Tx, Unavailable
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.telemetry import conditions
from runyard.telemetry.health import Condition, Health

T = TypeVar("T")


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
    ) -> None:
        self._inner = inner
        self._health = health
        self._unreachable = unreachable.code
        self._refused = refused.code
        self._refusals = refusals

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send, and report."""
        try:
            answer = await self._inner.send(request, timeout=timeout)
        except TransportError as error:
            self._health.fail(self._unreachable, str(error))
            raise
        self._health.ok(self._unreachable)
        if answer.status in self._refusals:
            self._health.fail(self._refused, f"{answer.status} to {request.method} {request.path}")
        elif answer.status < 400:
            self._health.ok(self._refused)
        return answer


def reporting_kube(inner: Transport, health: Health) -> ReportingTransport:
    """A way to the Kubernetes API; there a part that may not do its work is refused with 403 too."""
    return ReportingTransport(
        inner,
        health,
        unreachable=conditions.KUBERNETES_UNREACHABLE,
        refused=conditions.KUBERNETES_REFUSED,
        refusals=(401, 403),
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
