"""Writes the Events of the built-in controllers, and expires old Events.

They have two forms, as in a real cluster: the older one of the node controller and the collector, with a source
and a count, and the newer one of the scheduler, with an action and a time in microseconds.

Invariant: writing an Event never fails. If its namespace is terminating or missing, it is not written.
"""

from collections import deque

from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import EVENTS, NAMESPACES, Object, Resource
from runyard.embedded.kube.storage.store import Event, Record
from runyard.wire.instants import from_rfc3339, to_rfc3339, to_rfc3339_micro

NODE_CONTROLLER = "node-controller"
COLLECTOR = "garbage-collector-controller"
TAINT_EVICTION = "taint-eviction-controller"
SCHEDULER = "default-scheduler"
_DEFAULT_NAMESPACE = "default"  # of Events about cluster-wide objects
_NANO = 1_000_000_000


class Recorder:
    """Writes Events."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._last = 0

    def emit(
        self,
        involved_record: Record,
        resource: Resource,
        *,
        by: str,
        reason: str,
        message: str,
        warning: bool = False,
    ) -> None:
        """Writes an Event of the older form."""
        now = to_rfc3339(self._registry.clock.now())
        body: Object = {
            "source": {"component": by},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
            "reportingComponent": by,
            "reportingInstance": "",
        }
        self._write(
            involved_record, resource, body, reason=reason, message=message, warning=warning
        )

    def scheduling(
        self, pod: Record, resource: Resource, *, reason: str, message: str, action: str
    ) -> None:
        """Writes an Event of the scheduler."""
        body: Object = {
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": to_rfc3339_micro(self._registry.clock.now()),
            "action": action,
            "reportingComponent": SCHEDULER,
            "reportingInstance": f"{SCHEDULER}-embedded",
        }
        warning = reason == "FailedScheduling"
        self._write(pod, resource, body, reason=reason, message=message, warning=warning)

    def _write(
        self,
        involved_record: Record,
        resource: Resource,
        body: Object,
        *,
        reason: str,
        message: str,
        warning: bool,
    ) -> None:
        namespace_name = involved_record.namespace or _DEFAULT_NAMESPACE
        namespace = self._store.get(NAMESPACES, "", namespace_name)
        if namespace is None or "deletionTimestamp" in namespace.meta:
            return
        involved = {
            "kind": resource.kind,
            "name": involved_record.name,
            "uid": involved_record.uid,
            "apiVersion": resource.api_version,
        }
        if involved_record.namespace:
            involved |= {
                "namespace": involved_record.namespace,
                "resourceVersion": str(involved_record.version),
            }
        self._registry.record(
            EVENTS,
            {
                "metadata": {"name": f"{involved_record.name[:236]}.{self._moment():x}"},
                "involvedObject": involved,
                "reason": reason,
                "message": message[:1024],
                "type": "Warning" if warning else "Normal",
                **body,
            },
            namespace=namespace_name,
        )

    def _moment(self) -> int:
        """Returns strictly increasing nanoseconds, which make the names of Events unique."""
        self._last = max(self._last + 1, int(self._registry.clock.now() * _NANO))
        return self._last


class EventExpiry:
    """Deletes Events that were not updated within their lifetime."""

    def __init__(self, registry: Registry, *, lifetime: float) -> None:
        self._registry = registry
        self._store = registry.store
        self._lifetime = lifetime
        self._events: deque[tuple[float, Record]] = deque()

    def on_event(self, event: Event) -> None:
        """Reacts to one commit about an Event."""
        if event.new is not None:
            self._events.append((self._registry.clock.now(), event.new))

    def load_stored(self) -> None:
        """Indexes what the store already holds."""
        now = self._registry.clock.now()
        events = [(_moment(item, now), item) for item in self._store.table(EVENTS).records()]
        self._events.extend(sorted(events, key=lambda pair: pair[0]))

    def tick(self) -> None:
        """Checks the time."""
        oldest = self._registry.clock.now() - self._lifetime
        while self._events and self._events[0][0] <= oldest:
            _, record = self._events.popleft()
            current = self._store.get(EVENTS, record.namespace, record.name)
            if current is record:
                self._registry.delete(EVENTS, current, grace=0)


def _moment(event: Record, now: float) -> float:
    """When an Event was last updated, according to its fields."""
    given = event.obj.get("lastTimestamp") or event.obj.get("eventTime")
    try:
        return min(now, from_rfc3339(given or event.meta["creationTimestamp"]))
    except (TypeError, ValueError):
        return now
