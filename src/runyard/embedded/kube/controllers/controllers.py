"""Wires the built-in controllers of one API: which of them handles which commit, and in which order.

The order within a commit matters in one place: the index of bound Pods comes first, the scheduler last, so
that it reads a node as the others have changed it. Their writes are committed and handled in turn, until
there are none left.
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

Handler = Callable[[Event], None]


class Controllers:
    """All built-in controllers, which react to commits and to time."""

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
            registry, placed, recorder, clock=clock, default_toleration=settings.pod_eviction
        )
        garbage = PodGarbage(registry, placed, clock=clock, quarantine=settings.orphan_quarantine)
        collector = Collector(registry, recorder)
        spaces = Namespaces(registry)
        expiry = EventExpiry(registry, lifetime=settings.event_ttl)
        self._all = (placed, collector, spaces, expiry, nodes, evictions, garbage, self.scheduler)
        self._ticking = (nodes, evictions, garbage, spaces, expiry)
        for_all_kinds: tuple[Handler, ...] = (collector.on_event, spaces.on_event)
        self._default_handlers = for_all_kinds
        self._handlers: dict[str, tuple[Handler, ...]] = {
            PODS.key: (
                placed.on_event,
                *for_all_kinds,
                evictions.on_event,
                garbage.on_event,
                self.scheduler.on_event,
            ),
            NODES.key: (
                collector.on_event,
                nodes.on_event,
                evictions.on_event,
                garbage.on_event,
                self.scheduler.on_event,
            ),
            LEASES.key: (*for_all_kinds, nodes.on_event),
            EVENTS.key: (*for_all_kinds, expiry.on_event),
        }
        self._root_ca = RootCa(registry, root_ca) if root_ca else None
        if self._root_ca is not None:
            for resource in (NAMESPACES, CONFIG_MAPS):
                self._handlers[resource.key] = (*for_all_kinds, self._root_ca.on_event)

    def handlers(self, event: Event) -> tuple[Handler, ...]:
        """Returns the controllers' handlers for a commit."""
        return self._handlers.get(event.resource.key, self._default_handlers)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing."""
        for controller in self._all:
            controller.load_stored()

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
