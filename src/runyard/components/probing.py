"""Serves the probes and the metrics of a component that serves nothing else."""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from runyard.http.probes import METRICS, probe_routes
from runyard.http.routes import Guard, Routes
from runyard.http.server import listen
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter

NotReady = Callable[[str], None]
"""Reports what a component waits for."""
Prepare = Callable[[NotReady], Awaitable[None]]
"""Returns once the database can be used; calls its argument with what is missing meanwhile."""


class ProbeSocket(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket for probes, for metrics or for both. With guards, reasons and `/metrics` are only for callers that
    they let pass."""

    sock: socket.socket
    tls: ssl.SSLContext | None = None
    guard: Guard | None = None
    metrics_guard: Guard | None = None
    metrics: bool = True
    probes: bool = True
    needs: tuple[str, ...] | None = None  # conditions that make it unready; None: whatever is wrong


class Observed(Protocol):
    """The dependencies of a component that its probes report."""

    @property
    def health(self) -> Health:
        """The health conditions."""

    @property
    def freshness(self) -> Freshness:
        """When each loop last succeeded."""

    @property
    def meter(self) -> Meter:
        """The metrics."""


@contextlib.asynccontextmanager
async def served(
    title: str, deps: Observed, sockets: Sequence[ProbeSocket]
) -> AsyncIterator[tuple[str, ...]]:
    """Serve `/healthz`, `/readyz` and `/metrics` on each socket; gives their URLs."""
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for each in sockets:
            routes = probe_routes(
                deps.health,
                deps.freshness,
                deps.meter if each.metrics else None,
                guard=each.guard,
                metrics_guard=each.metrics_guard,
                needs=each.needs,
            )
            if not each.probes:
                routes = tuple(route for route in routes if route.path == METRICS)
            table = Routes(title, "v1", routes, guard=each.guard, private=each.guard is not None)
            listening = await listen(table.handle, sock=each.sock, tls=each.tls)
            stack.push_async_callback(listening.close)
            urls.append(listening.url)
        yield tuple(urls)
