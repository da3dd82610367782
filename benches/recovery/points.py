"""Numbers the effects of a server process, and kills the process at a chosen one.

An effect is what another process, or the restarted server, can see: a commit, a request to Kubernetes or GitHub, a
response. They are not listed by hand: everything that passes through the database, the two transports and the socket of
the real server is an effect, and its name is derived from it. So a new call in the code is a new effect automatically.

    before   the request is not sent, the response is not written, the transaction is not committed
    after    it has happened, and the process does not know the result yet

Invariants:
- The process is killed by SIGKILL at exactly that point: no `finally` runs, no buffer is flushed.
- Every effect is written to the journal before it begins, so the journal of a killed process is complete.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from runyard.components.reporting import kind_of
from runyard.db.contract import Database, Row, Statement, Tx
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.http.probes import HEALTHZ, METRICS, READYZ

T = TypeVar("T")
When = Literal["before", "after"]
JOURNAL = "RUNYARD_POINTS_JOURNAL"
ORDER = "RUNYARD_POINTS_ORDER"
DEADLINES = (
    "RUNYARD_POINTS_DEADLINES"  # deadlines of the state machine that differ from the defaults
)

_PROBES = (HEALTHZ, READYZ, METRICS)
_NUMBER = re.compile(r"/\d+(?=/|$)")
_OWNED = re.compile(r"^/(orgs|users)/[^/]+|^/repos/[^/]+/[^/]+")
_LABELS = re.compile(rb'"(tuist\.dev/[a-z-]+)":\s*(null)?')


class Point(msgspec.Struct, frozen=True, order=True):
    """Where to kill the process: before or after the `nth` effect of that name."""

    name: str
    when: When
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.name}"


class Points:
    """Counts effects and kills the process at the ordered one."""

    def __init__(self, journal: Path, order: Path) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._order = order
        self._point: Point | None = None
        self._seen: Counter[str] = Counter()
        self._order_changed = 0

    def take_orders(self) -> None:
        """Read the order if it is a new one; counting starts with it."""
        changed = self._order.stat().st_mtime_ns
        if changed == self._order_changed:
            return
        self._order_changed = changed
        text = self._order.read_bytes()
        self._point = msgspec.json.decode(text, type=Point) if text else None
        self._seen.clear()

    async def run_effect(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """Run one effect and count it."""
        number = self.reached(name, "before")
        try:
            return await act()
        finally:
            self.passed(name, number)

    def reached(self, name: str, when: When) -> int:
        """Record an effect that is about to happen, and kill the process if ordered; returns its number."""
        self.take_orders()
        os.write(self._journal, f"{name}\n".encode())
        self._seen[name] += 1
        self.passed(name, self._seen[name], when=when)
        return self._seen[name]

    def passed(self, name: str, number: int, *, when: When = "after") -> None:
        """Record that an effect has happened, and kill the process if ordered."""
        if self._point == Point(name, when, number):
            os.write(self._journal, f"died {when} {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class PointedDatabase:
    """Counts every commit, before it is sent to the database."""

    def __init__(self, inner: Database, points: Points) -> None:
        self._inner = inner
        self._points = points

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        point, number = f"commit: {name}", 0

        async def pointed(tx: Tx) -> T:
            nonlocal number
            counting = PointedTx(tx, lambda: self._points.reached(point, "before"))
            result = await work(counting)
            number = counting.number or counting.reached()
            return result

        result = await self._inner.transact(pointed, name=name)
        self._points.passed(point, number)
        return result


class PointedTx:
    """A transaction that counts its commit where `finish` sends it together with the last statements."""

    def __init__(self, tx: Tx, reached: Callable[[], int]) -> None:
        self._tx = tx
        self._reached = reached
        self.number = 0  # of the effect; 0: not reached yet

    def reached(self) -> int:
        """Count the commit, and return its number."""
        self.number = self._reached()
        return self.number

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        return await self._tx.all(sql, **params)

    async def one(self, sql: str, /, **params: object) -> Row | None:
        return await self._tx.one(sql, **params)

    async def run(self, sql: str, /, **params: object) -> int:
        return await self._tx.run(sql, **params)

    async def several(self, *statements: Statement) -> list[list[Row]]:
        return await self._tx.several(*statements)

    async def read(self, *statements: Statement) -> list[list[Row]]:
        return await self._tx.read(*statements)

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        self.reached()
        return await self._tx.finish(*statements, alone=alone)


class PointedTransport:
    """Counts every request."""

    def __init__(self, inner: Transport, points: Points, named: Callable[[Request], str]) -> None:
        self._inner = inner
        self._points = points
        self._named = named

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        async def act() -> Response | Stream:
            return await self._inner.send(request, timeout=timeout)

        return await self._points.run_effect(self._named(request), act)


def kube_name(request: Request) -> str:
    """`kube: PATCH pods/* tuist.dev/runner-pool-owner`: the name contains the label that is written or cleared."""
    kind = re.sub(
        r"^(\w+) /(api/v1|apis/[^/]+/[^/]+)(/namespaces/[^/]+)?/", r"\1 ", kind_of(request)
    )
    found = _LABELS.search(request.body) if request.method == "PATCH" else None
    if found is None:
        return f"kube: {kind}"
    return f"kube: {kind} {found[1].decode()}{' cleared' if found[2] else ''}"


def github_name(request: Request) -> str:
    """`github: POST /orgs/*/actions/runners/generate-jitconfig`."""
    owned = _OWNED.sub(lambda found: f"/{found[0].split('/')[1]}/*", request.path)
    return f"github: {request.method} {_NUMBER.sub('/*', owned)}"


def answer_name(method: str, path: str, status: int) -> str:
    """`answer: 200 POST /api/internal/runners/dispatch`; no name where a probe is answered.

    The number of probes varies and they change nothing, so their responses are no effects.
    """
    if path in _PROBES:
        return ""
    return f"answer: {status} {method} {_NUMBER.sub('/*', path)}"
