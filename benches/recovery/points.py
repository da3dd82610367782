"""The effects of a server process, numbered, and the order to die at one of them.

An effect is what another process, or the server's next life, can see: a commit, a request to Kubernetes or to
GitHub, an answer. Nobody lists them: whatever passes through the database, the two transports and the socket of the
real server is one, and its name is derived from what it is. So a new call of the product is a new point, without a
word here.

    before   the request is not sent, the answer is not written, the transaction has run and is not committed
    after    it has happened, and nobody in the process knows the result yet

Invariants:
- The process dies by SIGKILL at the very place: no `finally` runs, no buffer is flushed, no loop turns once more.
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

from runyard.db.contract import Database, Tx
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.http.probes import HEALTHZ, METRICS, READYZ
from runyard.parts.reporting import kind_of

T = TypeVar("T")
When = Literal["before", "after"]
JOURNAL = "RUNYARD_POINTS_JOURNAL"
ORDER = "RUNYARD_POINTS_ORDER"
DEADLINES = "RUNYARD_POINTS_DEADLINES"  # the machine's, where they are not the shipped ones

_PROBES = (HEALTHZ, READYZ, METRICS)
_NUMBER = re.compile(r"/\d+(?=/|$)")
_OWNED = re.compile(r"^/(orgs|users)/[^/]+|^/repos/[^/]+/[^/]+")
_LABELS = re.compile(rb'"(tuist\.dev/[a-z-]+)":\s*(null)?')


class Point(msgspec.Struct, frozen=True, order=True):
    """A place to die: before or after an effect of that name, the `nth` time that it is due."""

    name: str
    when: When
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.name}"


class Points:
    """Counts effects, and dies when told to."""

    def __init__(self, journal: Path, order: Path) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._order = order
        self._point: Point | None = None
        self._seen: Counter[str] = Counter()
        self._told = 0

    def take_orders(self) -> None:
        """Read the order if it is a new one; counting starts with it."""
        told = self._order.stat().st_mtime_ns
        if told == self._told:
            return
        self._told = told
        text = self._order.read_bytes()
        self._point = msgspec.json.decode(text, type=Point) if text else None
        self._seen.clear()

    async def around(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """Do one effect."""
        number = self.reached(name, "before")
        try:
            return await act()
        finally:
            self.passed(name, number)

    def reached(self, name: str, when: When) -> int:
        """An effect is about to happen: die here if that is the order; else its number."""
        self.take_orders()
        os.write(self._journal, f"{name}\n".encode())
        self._seen[name] += 1
        self.passed(name, self._seen[name], when=when)
        return self._seen[name]

    def passed(self, name: str, number: int, *, when: When = "after") -> None:
        """The effect of that number has happened."""
        if self._point == Point(name, when, number):
            os.write(self._journal, f"died {when} {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class PointedDatabase:
    """Every commit is a point; before it, all of the transaction's statements have run."""

    def __init__(self, inner: Database, points: Points) -> None:
        self._inner = inner
        self._points = points

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        point, number = f"commit: {name}", 0

        async def pointed(tx: Tx) -> T:
            nonlocal number
            result = await work(tx)
            number = self._points.reached(point, "before")
            return result

        result = await self._inner.transact(pointed, name=name)
        self._points.passed(point, number)
        return result


class PointedTransport:
    """Every request is a point."""

    def __init__(self, inner: Transport, points: Points, named: Callable[[Request], str]) -> None:
        self._inner = inner
        self._points = points
        self._named = named

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        async def act() -> Response | Stream:
            return await self._inner.send(request, timeout=timeout)

        return await self._points.around(self._named(request), act)


def kube_name(request: Request) -> str:
    """`kube: PATCH pods/* tuist.dev/runner-pool-owner`: a label that is written or cleared is told apart."""
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

    How often somebody looks is not the server's work, and changes nothing: such an answer is no effect.
    """
    if path in _PROBES:
        return ""
    return f"answer: {status} {method} {_NUMBER.sub('/*', path)}"
