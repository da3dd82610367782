"""Pods leave a Node whose taints with the effect NoExecute they do not bear, at once or when their patience ends.

Whoever put the taint there, a person or the node lifecycle, is all the same. Patience counts from the moment
at which this server saw Pod and taint together; it begins anew when the taint had gone, and after a restart
of this server, for while it was away nobody could have taken the taint off.

The Pod is asked to go and waits for its agent, as after any deletion.
"""

import math

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import shapes
from runyard.embedded.kube.controllers import disruption, taints
from runyard.embedded.kube.controllers.events import TAINT_EVICTION, Recorder
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.storage.store import Event, Record


class Evictions:
    """Drives Pods away from tainted Nodes."""

    def __init__(
        self,
        registry: Registry,
        placed: Placed,
        recorder: Recorder,
        *,
        clock: Clock,
        patience: float,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._placed = placed
        self._recorder = recorder
        self._clock = clock
        self._usual = [  # of Pods that were made before this server began to say so on each of them
            shapes.Toleration(
                key=key,
                operator="Exists",
                effect="NoExecute",
                toleration_seconds=math.ceil(patience),
            )
            for key in (taints.NOT_READY, taints.UNREACHABLE)
        ]
        self._tainted: dict[str, tuple[shapes.Taint, ...]] = {}
        self._due: dict[str, tuple[str, str, float, float]] = {}  # uid: Pod, since, for how long

    def note(self, event: Event) -> None:
        """React to one commit."""
        if event.resource is PODS:
            self._pod(event)
        elif event.resource is NODES:
            self._node(event)

    def adopt(self) -> None:
        """Take over what the store already holds, writing nothing: the next tick does what is due."""
        now = self._clock.monotonic()
        for node in self._store.table(NODES).records():
            found = taints.executing(node.obj.get("spec", {}))
            if not found:
                continue
            self._tainted[node.name] = found
            for pod in self._placed.on(node.name):
                if (limit := self._patience(pod.obj, found)) < math.inf:
                    self._due[pod.uid] = (pod.namespace, pod.name, now, limit)

    def tick(self) -> None:
        """Let those go whose patience has ended."""
        now = self._clock.monotonic()
        for uid, (namespace, name, since, limit) in tuple(self._due.items()):
            if now - since >= limit:
                self._due.pop(uid)
                pod = self._store.get(PODS, namespace, name)
                if pod is not None and pod.uid == uid:
                    self._evict(pod)

    def _node(self, event: Event) -> None:
        name, new = event.record.name, event.new
        found = taints.executing(new.obj.get("spec", {})) if new is not None else ()
        if found == self._tainted.get(name, ()):
            return
        if found:
            self._tainted[name] = found
        else:
            self._tainted.pop(name, None)
        for pod in self._placed.on(name):
            self._consider(pod, found)

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
                self._consider(new, found)

    def _consider(self, pod: Record, found: tuple[shapes.Taint, ...]) -> None:
        """Let a Pod stay, let it stay for a while, or ask it to go."""
        limit = self._patience(pod.obj, found)
        before = self._due.get(pod.uid)
        if limit == math.inf:
            if self._due.pop(pod.uid, None) is not None and "deletionTimestamp" not in pod.meta:
                self._tell(pod, f"Cancelling deletion of Pod {pod.namespace}/{pod.name}")
        elif limit <= 0:
            self._due.pop(pod.uid, None)
            self._evict(pod)
        else:
            since = self._clock.monotonic() if before is None else before[2]
            self._due[pod.uid] = (pod.namespace, pod.name, since, limit)

    def _patience(self, pod: Object, found: tuple[shapes.Taint, ...]) -> float:
        told = msgspec.convert(pod["spec"].get("tolerations", []), list[shapes.Toleration])
        return taints.patience(found, told + self._usual)

    def _evict(self, pod: Record) -> None:
        current = self._store.get(PODS, pod.namespace, pod.name)
        if current is None or current.uid != pod.uid or "deletionTimestamp" in current.meta:
            return
        self._tell(current, f"Marking for deletion Pod {pod.namespace}/{pod.name}")
        marked = disruption.mark(self._registry, current, disruption.TAINTED)
        self._registry.delete(PODS, marked)

    def _tell(self, pod: Record, message: str) -> None:
        self._recorder.told(
            pod, PODS, by=TAINT_EVICTION, reason="TaintManagerEviction", message=message
        )
