"""The replicas of the dispatch server as processes, and the links to them.

Every client of the server (guests, the operator, GitHub's webhooks) uses its own `Balancer`. A balancer learns of a
replica's death some seconds late, as real ones do: until then it may still send requests there, and they are
refused.
"""

import random
from collections.abc import Callable, Coroutine
from typing import Any

from runyard.clock import Clock
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.sim.network import Faults, Link
from runyard.sim.process import Process
from runyard.sim.trace import Trace
from runyard.telemetry.health import Health

NOTICED_AFTER = 3.0


class Replica:
    """One server process and every link to it."""

    def __init__(
        self,
        name: str,
        *,
        trace: Trace,
        clock: Clock,
        watch: Callable[[str, Handler], Handler],
    ) -> None:
        self.name = name
        self.process = Process(name, trace=trace)
        self.links: list[Link] = []
        self.main: Callable[[], Coroutine[Any, Any, object]] | None = None
        self.health: Health | None = None  # of its current life
        self._clock = clock
        self._watch = watch
        self._handler: Handler | None = None
        self._lost_at = -NOTICED_AFTER
        self.process.on_crash(self._stop_listening)

    def link(self, client: str, *, rng: random.Random, trace: Trace, faults: Faults) -> Link:
        """Creates a link from a client to this replica."""
        name = f"{client}>{self.name}"
        link = Link(name, self._handler, rng=rng, trace=trace, server=self.process, faults=faults)
        self.links.append(link)
        return link

    def listen(self, handler: Handler) -> None:
        """Starts serving."""
        self._handler = self._watch(self.name, handler)
        for link in self.links:
            link.serve(self._handler)

    @property
    def seems_up(self) -> bool:
        """Whether a balancer considers it up."""
        if self._handler is not None:
            return True
        return self._clock.monotonic() - self._lost_at < NOTICED_AFTER

    @property
    def serving(self) -> bool:
        """Whether it really serves."""
        return self._handler is not None

    def _stop_listening(self) -> None:
        if self._handler is not None:
            self._lost_at = self._clock.monotonic()
        self._handler = None
        for link in self.links:
            link.serve(None)


class Balancer:
    """A transport that sends each request to some replica that seems to be up."""

    def __init__(self, links: tuple[tuple[Replica, Link], ...], *, rng: random.Random) -> None:
        self._links = links
        self._rng = rng

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Chooses a replica and sends once: retries are up to the client."""
        up = [link for replica, link in self._links if replica.seems_up]
        link = self._rng.choice(up or [link for _, link in self._links])
        return await link.send(request, timeout=timeout)
