"""Deletes Pods of a deleted Node with grace 0 after a quarantine, because no agent is left to stop them.

The quarantine gives the host time to register again. Finalizers are respected.
"""

from runyard.clock import Clock
from runyard.embedded.kube.controllers import disruption
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import NODES, PODS
from runyard.embedded.kube.storage.store import Event


class PodGarbage:
    """Removes Pods that lost their Node."""

    def __init__(
        self, registry: Registry, placed: Placed, *, clock: Clock, quarantine: float
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._placed = placed
        self._clock = clock
        self._quarantine = quarantine
        self._gone: dict[str, float] = {}  # Node: since when

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is PODS:
            old, new = event.old, event.new
            if new is None:
                return
            node = new.obj["spec"].get("nodeName", "")
            if node and (old is None or not old.obj["spec"].get("nodeName")):
                self._start_quarantine(node)
        elif event.resource is NODES:
            if event.new is None:
                self._gone[event.record.name] = self._clock.monotonic()
            else:
                self._gone.pop(event.record.name, None)

    def load_stored(self) -> None:
        """Indexes what the store already holds; every quarantine starts now."""
        for node in self._placed.nodes():
            self._start_quarantine(node)

    def tick(self) -> None:
        """Checks the time."""
        now = self._clock.monotonic()
        for node, since in tuple(self._gone.items()):
            if now - since >= self._quarantine:
                for pod in self._placed.on(node):
                    marked = disruption.mark(self._registry, pod, disruption.ORPHANED, failed=True)
                    self._registry.delete(PODS, marked, grace=0)
                if not self._placed.on(node):
                    del self._gone[node]

    def _start_quarantine(self, node: str) -> None:
        if self._store.get(NODES, "", node) is None:
            self._gone.setdefault(node, self._clock.monotonic())
