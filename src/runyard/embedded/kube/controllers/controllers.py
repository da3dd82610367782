"""Wires the built-in controllers of one API together: which of them gets which commit, and in which order.

The order within a commit matters in one place: the index of placed Pods comes first, the scheduler last, so
that it reads a node as the others have changed it. Their writes are committed and handled in turn, until
nothing is left.
"""

from collections.abc import Callable

from runyard.clock import Clock
from runyard.embedded.kube.controllers.collector import Collector
from runyard.embedded.kube.controllers.events import EventExpiry, Recorder
from runyard.embedded.kube.controllers.evictions import Evictions
from runyard.embedded.kube.controllers.namespaces import Namespaces
from runyard.embedded.kube.controllers.nodes import NodeLifecycle
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.controllers.podgc import PodGarbage
from runyard.embedded.kube.controllers.rootca import RootCa
from runyard.embedded.kube.controllers.scheduler import Scheduler
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, PODS
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.storage.store import Event

Note = Callable[[Event], None]


class Controllers:
    """Everything that reacts to what was stored, and to time."""

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        settings: Settings,
        root_ca: bytes = b"",
    ) -> None:
        placed = Placed(registry.store)
        recorder = Recorder(registry)
        self.scheduler = Scheduler(
            registry, placed, recorder, clock=clock, enabled=settings.schedule
        )
        nodes = NodeLifecycle(registry, placed, recorder, clock=clock, settings=settings)
        evictions = Evictions(
            registry, placed, recorder, clock=clock, patience=settings.pod_eviction
        )
        garbage = PodGarbage(registry, placed, clock=clock, quarantine=settings.orphan_quarantine)
        collector = Collector(registry, recorder)
        spaces = Namespaces(registry)
        expiry = EventExpiry(registry, lifetime=settings.event_ttl)
        self._all = (placed, collector, spaces, expiry, nodes, evictions, garbage, self.scheduler)
        self._ticking = (nodes, evictions, garbage, spaces, expiry)
        everybody: tuple[Note, ...] = (collector.note, spaces.note)
        self._others = everybody
        self._reactions: dict[str, tuple[Note, ...]] = {
            PODS.key: (
                placed.note,
                *everybody,
                evictions.note,
                garbage.note,
                self.scheduler.note,
            ),
            NODES.key: (
                collector.note,
                nodes.note,
                evictions.note,
                garbage.note,
                self.scheduler.note,
            ),
            LEASES.key: (*everybody, nodes.note),
            EVENTS.key: (*everybody, expiry.note),
        }
        self._root_ca = RootCa(registry, root_ca) if root_ca else None
        if self._root_ca is not None:
            for resource in (NAMESPACES, CONFIG_MAPS):
                self._reactions[resource.key] = (*everybody, self._root_ca.note)

    def reactions(self, event: Event) -> tuple[Note, ...]:
        """The controllers that get a commit."""
        return self._reactions.get(event.resource.key, self._others)

    def adopt(self) -> None:
        """Indexes what the store already holds, writing nothing."""
        for controller in self._all:
            controller.adopt()

    def resume(self) -> None:
        """Does what is due at the start of this server."""
        self.scheduler.resume()
        if self._root_ca is not None:
            self._root_ca.resume()

    def tick(self, settle: Callable[[], None]) -> None:
        """Checks the time; `settle` lets the controllers react to the results."""
        for controller in self._ticking:
            controller.tick()
            settle()
        self.scheduler.tick()
        settle()
