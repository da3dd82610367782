"""Evicts Pods from a Node with NoExecute taints that they do not tolerate, at once or after their toleration time.

It does not matter whether a user or the node lifecycle set the taint. The toleration time counts from the
moment when this server first saw both Pod and taint; it starts again when the taint was removed in between, and
after a restart of this server, because the taint could not have been removed while it was down.

The Pod is deleted and waits for its agent, as after any deletion.
"""

import math

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import shapes, taints
from runyard.embedded.kube.controllers import disruption
from runyard.embedded.kube.controllers.events import TAINT_EVICTION, Recorder
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.storage.store import Event, Record


class Evictions:
    """Evicts Pods from tainted Nodes."""

    def __init__(
        self,
        registry: Registry,
        placed: Placed,
        recorder: Recorder,
        *,
        clock: Clock,
        default_toleration: float,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._placed = placed
        self._recorder = recorder
        self._clock = clock
        self._default_tolerations = [  # for Pods without these, which admission adds to every new Pod
            shapes.Toleration(
                key=key,
                operator="Exists",
                effect="NoExecute",
                toleration_seconds=math.ceil(default_toleration),
            )
            for key in (taints.NOT_READY, taints.UNREACHABLE)
        ]
        self._tainted: dict[str, tuple[shapes.Taint, ...]] = {}
        self._due: dict[str, tuple[str, str, float, float]] = {}  # uid: Pod, since, for how long

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is PODS:
            self._pod(event)
        elif event.resource is NODES:
            self._node(event)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing: the next tick does what is due."""
        now = self._clock.monotonic()
        for node in self._store.table(NODES).records():
            found = taints.no_execute_taints(node.obj.get("spec", {}))
            if not found:
                continue
            self._tainted[node.name] = found
            for pod in self._placed.on(node.name):
                if (limit := self._seconds_tolerated(pod.obj, found)) < math.inf:
                    self._due[pod.uid] = (pod.namespace, pod.name, now, limit)

    def tick(self) -> None:
        """Evicts Pods whose toleration time is over."""
        now = self._clock.monotonic()
        for uid, (namespace, name, since, limit) in tuple(self._due.items()):
            if now - since >= limit:
                self._due.pop(uid)
                pod = self._store.get(PODS, namespace, name)
                if pod is not None and pod.uid == uid:
                    self._evict(pod)

    def _node(self, event: Event) -> None:
        name, new = event.record.name, event.new
        found = taints.no_execute_taints(new.obj.get("spec", {})) if new is not None else ()
        if found == self._tainted.get(name, ()):
            return
        if found:
            self._tainted[name] = found
        else:
            self._tainted.pop(name, None)
        for pod in self._placed.on(name):
            self._schedule_eviction(pod, found)

    def _pod(self, event: Event) -> None:
        old, new = event.old, event.new
        if new is None:
            self._due.pop(event.record.uid, None)
        elif self._tainted and (found := self._tainted.get(new.obj["spec"].get("nodeName", ""))):
            spec = new.obj["spec"]
            if old is None or (
                spec is not old.obj["spec"]
                and (
                    spec.get("nodeName") != old.obj["spec"].get("nodeName")
                    or spec.get("tolerations") != old.obj["spec"].get("tolerations")
                )
            ):
                self._schedule_eviction(new, found)

    def _schedule_eviction(self, pod: Record, found: tuple[shapes.Taint, ...]) -> None:
        """Evicts a Pod now or after its toleration time, or cancels its eviction."""
        limit = self._seconds_tolerated(pod.obj, found)
        before = self._due.get(pod.uid)
        if limit == math.inf:
            if self._due.pop(pod.uid, None) is not None and "deletionTimestamp" not in pod.meta:
                self._record_event(pod, f"Cancelling deletion of Pod {pod.namespace}/{pod.name}")
        elif limit <= 0:
            self._due.pop(pod.uid, None)
            self._evict(pod)
        else:
            since = self._clock.monotonic() if before is None else before[2]
            self._due[pod.uid] = (pod.namespace, pod.name, since, limit)

    def _seconds_tolerated(self, pod: Object, found: tuple[shapes.Taint, ...]) -> float:
        given = msgspec.convert(pod["spec"].get("tolerations", []), list[shapes.Toleration])
        return taints.seconds_tolerated(found, given + self._default_tolerations)

    def _evict(self, pod: Record) -> None:
        current = self._store.get(PODS, pod.namespace, pod.name)
        if current is None or current.uid != pod.uid or "deletionTimestamp" in current.meta:
            return
        self._record_event(current, f"Marking for deletion Pod {pod.namespace}/{pod.name}")
        marked = disruption.mark(self._registry, current, disruption.TAINTED)
        self._registry.delete(PODS, marked)

    def _record_event(self, pod: Record, message: str) -> None:
        self._recorder.emit(
            pod, PODS, by=TAINT_EVICTION, reason="TaintManagerEviction", message=message
        )
