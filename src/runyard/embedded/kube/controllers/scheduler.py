"""The scheduler: binds a Pod to a node, at the commit that makes it possible.

Pods with the same requirements (selector, tolerations, affinity, resources, ports, spread) form one class. For
each class the verdict on every node is cached, and a commit about one node re-evaluates that node only. A
thousand waiting Pods therefore cost no more than one, and a heartbeat that changes nothing costs nothing. A
few classes stay cached after their last Pod was bound, for the next one of the class.

How Pods are spread depends on all nodes at once, so it is not part of a verdict: it is counted when a Pod of
such a class is scheduled (`Balance`).

Choice among nodes that fit: the fewest PreferNoSchedule taints, then the most preferred by node
affinity, then the emptiest by spread, then the least loaded, then by name. A Pod that fits nowhere gets the
condition PodScheduled=False and an Event at once; when only the *reason* changes later, both follow at a
tick, so that a flapping node does not rewrite every Pod.

Invariants:
- Requests of Pods that are bound and not finished never exceed a node's allocatable through a binding
  made here.
- Waiting Pods of a class are bound in the order in which they were created.
"""

from runyard.clock import Clock
from runyard.embedded.kube.controllers import fit
from runyard.embedded.kube.controllers.balance import Balance
from runyard.embedded.kube.controllers.events import SCHEDULER, Recorder
from runyard.embedded.kube.controllers.fit import NodeView, PodView, Port, Verdict
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.registry import Registry, with_condition
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.storage.store import Event, Record
from runyard.wire.instants import to_rfc3339

_UNUSED_CLASSES = 32  # classes without waiting Pods
_REPEAT_EVENT_AFTER = (
    60.0  # seconds between two Events about the same Pods when the reason keeps changing
)
_FINISHED = ("Succeeded", "Failed")
Key = tuple[str, str]


class Waiting:
    """Pods of one class that are not bound, and why."""

    def __init__(self, view: PodView) -> None:
        self.view = view
        self.pods: dict[Key, None] = {}
        self.verdicts: dict[str, Verdict | None] = {}
        self.message = ""
        self.reported_at = 0.0


class Scheduler:
    """Binds waiting Pods."""

    def __init__(
        self,
        registry: Registry,
        placed: Placed,
        recorder: Recorder,
        *,
        clock: Clock,
        enabled: bool = True,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._placed = placed
        self._recorder = recorder
        self._clock = clock
        self._enabled = enabled
        self._nodes: dict[str, NodeView] = {}
        self._balance = Balance(self._nodes, placed)
        self._classes: dict[bytes, Waiting] = {}
        self._class_of: dict[Key, bytes] = {}
        self._used: dict[str, fit.Amounts] = {}
        self._ports: dict[str, dict[str, tuple[Port, ...]]] = {}  # node: Pod uid: ports of the host
        self._load: dict[str, float] = {}
        self._charged: dict[str, tuple[str, fit.Amounts]] = {}  # pod uid: node and requests

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is PODS:
            self._pod(event)
        elif event.resource is NODES:
            self._node(event)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing: `resume` binds Pods that fit."""
        for node in self._store.table(NODES).records():
            self._nodes[node.name] = fit.node_view(node.obj)
        spaces = self._store.table(PODS).spaces.values()
        pods = [pod for space in spaces for pod in space.values()]
        pods.sort(key=lambda pod: str(pod.meta["creationTimestamp"]))
        for pod in pods:
            self._charge(Event(PODS, pod.version, old=None, new=pod))
        for name, view in self._nodes.items():
            self._load[name] = fit.load(view, self._used.get(name, {}))
        for pod in pods:
            if self._enabled and _waits(pod.obj):
                self._add_to_class((pod.namespace, pod.name), pod)

    def resume(self) -> None:
        """Binds waiting Pods that fit by now."""
        for waiting in tuple(self._classes.values()):
            self._place(waiting)

    def tick(self) -> None:
        """Updates the reasons on waiting Pods."""
        now = self._clock.monotonic()
        for waiting in tuple(self._classes.values()):
            message = self._message(waiting) if waiting.pods else waiting.message
            if message != waiting.message:
                waiting.message = message
                with_event = now - waiting.reported_at >= _REPEAT_EVENT_AFTER
                waiting.reported_at = now if with_event else waiting.reported_at
                for key in tuple(waiting.pods):
                    self._report_waiting(key, message, with_event=with_event)

    def used(self, node: str) -> fit.Amounts:
        """The requests of the Pods on a node, in thousandths."""
        return dict(self._used.get(node, {}))

    # ---- Pods

    def _pod(self, event: Event) -> None:
        record = event.new
        key = (event.record.namespace, event.record.name)
        changed_node = self._charge(event)
        waits = record is not None and _waits(record.obj)
        if key in self._class_of and (not waits or event.old is None):
            self._dequeue(key)
        if changed_node:
            self._evaluate_node(changed_node)
        elif _changes_spread(event):
            self._rebalance()
        if record is not None and waits and key not in self._class_of and self._enabled:
            self._enqueue(key, record)

    def _charge(self, event: Event) -> str:
        """Updates the used resources of a node; returns the node if they changed."""
        old, new = event.old, event.new
        if old is not None and (new is None or _ended(new.obj)):
            node, amounts = self._charged.pop(old.uid, ("", {}))
            if node:
                fit.subtract(self._used[node], amounts)
                self._ports.get(node, {}).pop(old.uid, None)
            return node
        if new is not None and new.uid not in self._charged and not _ended(new.obj):
            node = new.obj["spec"].get("nodeName", "")
            if node:
                self._reserve(new.uid, node, fit.pod_view(new.obj))
                return str(node)
        return ""

    def _reserve(self, uid: str, node: str, view: PodView) -> None:
        self._charged[uid] = (node, view.requests)
        fit.add(self._used.setdefault(node, {}), view.requests)
        if view.ports:
            self._ports.setdefault(node, {})[uid] = view.ports

    def _add_to_class(self, key: Key, record: Record) -> Waiting:
        view = fit.pod_view(record.obj)
        name = fit.class_of(view)
        waiting = self._classes.get(name) or self._add_class(name, view)
        waiting.pods[key] = None
        self._class_of[key] = name
        return waiting

    def _enqueue(self, key: Key, record: Record) -> None:
        waiting = self._add_to_class(key, record)
        first = len(waiting.pods) == 1
        self._place(waiting)
        message = self._message(waiting) if waiting.pods else ""
        if first:
            waiting.message, waiting.reported_at = message, self._clock.monotonic()
        if key in self._class_of:
            self._report_waiting(key, message)

    def _add_class(self, name: bytes, view: PodView) -> Waiting:
        """Adds a class; drops the longest unused one if there are too many."""
        unused = [other for other, item in self._classes.items() if not item.pods]
        for other in unused[: max(0, len(unused) - _UNUSED_CLASSES)]:
            del self._classes[other]
        waiting = self._classes[name] = Waiting(view)
        for node in self._nodes:
            waiting.verdicts[node] = self._evaluate(view, node)
        return waiting

    def _dequeue(self, key: Key) -> None:
        del self._classes[self._class_of.pop(key)].pods[key]

    # ---- Nodes

    def _node(self, event: Event) -> None:
        name = event.record.name
        if event.new is None:
            self._nodes.pop(name, None)
            self._load.pop(name, None)
            for waiting in self._classes.values():
                waiting.verdicts.pop(name, None)
            self._rebalance()
            return
        view = fit.node_view(event.new.obj)
        if self._nodes.get(name) != view:
            self._nodes[name] = view
            self._evaluate_node(name)

    def _evaluate(self, pod: PodView, node: str) -> Verdict | None:
        taken: tuple[Port, ...] = ()
        if pod.ports:
            taken = tuple(port for held in self._ports.get(node, {}).values() for port in held)
        return fit.refusal(pod, self._nodes[node], self._used.get(node, {}), taken)

    def _evaluate_node(self, name: str) -> None:
        """Tries waiting Pods again on a node that changed or got free resources."""
        if name not in self._nodes:
            return
        self._load[name] = fit.load(self._nodes[name], self._used.get(name, {}))
        for waiting in tuple(self._classes.values()):
            verdict = waiting.verdicts[name] = self._evaluate(waiting.view, name)
            if waiting.pods and (verdict is None or waiting.view.spread):
                self._place(waiting)

    def _rebalance(self) -> None:
        """Tries waiting Pods again after the spread of Pods changed."""
        for waiting in tuple(self._classes.values()):
            if waiting.pods and waiting.view.spread:
                self._place(waiting)

    def _place(self, waiting: Waiting) -> None:
        """Binds as many Pods of the class as fit, in the order in which they were created."""
        for key in tuple(waiting.pods):
            fitting = [name for name, verdict in waiting.verdicts.items() if verdict is None]
            if not fitting:
                return
            record = self._store.get(PODS, *key)
            if record is None or not _waits(record.obj):
                continue  # its own event is still to be handled
            counts: dict[str, int] = {}
            if waiting.view.spread:
                counts = self._balance.counts(waiting.view, fitting)
                fitting = list(counts)
                if not fitting:
                    return
            best = self._best_scored(waiting.view, fitting, counts)
            node = min(best, key=lambda name: (self._load[name], name))
            self._bind(waiting, key, record=record, node=node)

    def _best_scored(self, pod: PodView, fitting: list[str], counts: dict[str, int]) -> list[str]:
        """The nodes with the best score; how full they are is compared after that."""
        views = [self._nodes[name] for name in fitting]
        scored = counts or pod.affinity.preferred or any(view.soft_taints for view in views)
        if not scored:
            return fitting
        ranks = [
            (fit.untolerated(pod, view), -fit.preference(pod, view), counts.get(view.name, 0))
            for view in views
        ]
        best = min(ranks)
        return [name for name, rank in zip(fitting, ranks, strict=True) if rank == best]

    def _bind(self, waiting: Waiting, key: Key, *, record: Record, node: str) -> None:
        self._dequeue(key)
        self._reserve(record.uid, node, waiting.view)
        self._load[node] = fit.load(self._nodes[node], self._used[node])
        for other in self._classes.values():
            other.verdicts[node] = self._evaluate(other.view, node)
        self._placed.add(record, node)  # for the next Pod of this step
        self._registry.bind(record, node, transition=to_rfc3339(self._clock.now()))
        self._recorder.scheduling(
            record,
            PODS,
            reason="Scheduled",
            message=f"Successfully assigned {record.namespace}/{record.name} to {node}",
            action="Binding",
        )

    # ---- reasons

    def _message(self, waiting: Waiting) -> str:
        verdicts = waiting.verdicts
        if waiting.view.spread:
            return fit.message(self._balance.verdicts(waiting.view, verdicts).values())
        return fit.message(item for item in verdicts.values() if item is not None)

    def _report_waiting(self, key: Key, message: str, *, with_event: bool = True) -> None:
        """Writes why the Pod waits; the transition time changes only with the status."""
        record = self._store.get(PODS, *key)
        if record is None or not _waits(record.obj):
            return
        before = _scheduled(record.obj)
        condition = {
            "type": "PodScheduled",
            "observedGeneration": record.meta.get("generation", 1),
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": before.get("lastTransitionTime", "")
            if before.get("status") == "False"
            else to_rfc3339(self._clock.now()),
            "reason": "Unschedulable",
            "message": message,
        }
        status = with_condition(record.obj.get("status", {}), condition)
        if status != record.obj.get("status"):
            self._store.put(PODS, {**record.obj, "status": status})
        if with_event:
            self._recorder.scheduling(
                record, PODS, reason="FailedScheduling", message=message, action="Scheduling"
            )


def _scheduled(obj: Object) -> Object:
    conditions: list[Object] = obj.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item.get("type") == "PodScheduled"), {})


def _ended(obj: Object) -> bool:
    return obj.get("status", {}).get("phase") in _FINISHED


def _changes_spread(event: Event) -> bool:
    """Whether a bound Pod counts differently for spreads: it is terminating, or has other labels."""
    old, new = event.old, event.new
    if old is None or new is None or old.meta is new.meta or not new.obj["spec"].get("nodeName"):
        return False
    return ("deletionTimestamp" in old.meta) != ("deletionTimestamp" in new.meta) or old.meta.get(
        "labels"
    ) != new.meta.get("labels")


def _waits(obj: Object) -> bool:
    """Whether the scheduler has to bind this Pod."""
    spec = obj["spec"]
    return (
        not spec.get("nodeName")
        and not _ended(obj)
        and "deletionTimestamp" not in obj["metadata"]
        and spec.get("schedulerName", SCHEDULER) == SCHEDULER
        and not spec.get("schedulingGates")
    )
