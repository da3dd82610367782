"""The scheduler: which node a Pod goes to, decided at the commit that makes it possible.

Pods that want the same things (selector, tolerations, affinity, resources) form one class. For each
class the verdict on every node is remembered, and a commit about one node re-judges that node only. A
thousand waiting Pods therefore cost no more than one, and a heartbeat that changes nothing costs
nothing. A few classes are remembered after their last Pod found a node, for the next one of its kind.

Choice among nodes that fit: the most preferred by node affinity, then the least loaded, then by name.
A Pod that fits nowhere gets the condition PodScheduled=False at once; when only the *reason* changes
later, the condition follows at the next tick, so that a flapping node does not rewrite every Pod.

Invariants:
- Requests of Pods that are bound and not finished never exceed a node's allocatable through a binding
  made here.
- Waiting Pods of a class are bound in the order in which they came.
"""

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import fit, shapes
from runyard.embedded.kube.fit import NodeView, PodView
from runyard.embedded.kube.registry import Registry, with_condition
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.store import Event, Record
from runyard.wire.instants import to_rfc3339

SCHEDULER = "default-scheduler"
_REMEMBERED = 32  # classes without waiting Pods
_FINISHED = ("Succeeded", "Failed")
Key = tuple[str, str]


class Waiting:
    """Pods of one class that are bound nowhere, and why not."""

    def __init__(self, view: PodView) -> None:
        self.view = view
        self.pods: dict[Key, None] = {}
        self.verdicts: dict[str, str] = {}
        self.told = ""

    def message(self) -> str:
        """Why no node fits, counted by reason."""
        if not self.verdicts:
            return "no nodes available to schedule pods"
        counts: dict[str, int] = {}
        for reason in self.verdicts.values():
            counts[reason] = counts.get(reason, 0) + 1
        parts = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return f"0/{len(self.verdicts)} nodes are available: {parts}."


class Scheduler:
    """Binds waiting Pods."""

    def __init__(self, registry: Registry, *, clock: Clock, enabled: bool = True) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._enabled = enabled
        self._nodes: dict[str, NodeView] = {}
        self._classes: dict[bytes, Waiting] = {}
        self._class_of: dict[Key, bytes] = {}
        self._used: dict[str, fit.Amounts] = {}
        self._load: dict[str, float] = {}
        self._charged: dict[str, tuple[str, fit.Amounts]] = {}  # pod uid: node and requests

    def note(self, event: Event) -> None:
        """React to one commit."""
        if event.resource is PODS:
            self._pod(event)
        elif event.resource is NODES:
            self._node(event)

    def adopt(self) -> None:
        """Take over what the store already holds, writing nothing: `resume` gives nodes to who fits."""
        for node in self._store.table(NODES).records():
            self._nodes[node.name] = fit.node_view(msgspec.convert(node.obj, shapes.Node))
        spaces = self._store.table(PODS).spaces.values()
        pods = [pod for space in spaces for pod in space.values()]
        pods.sort(key=lambda pod: str(pod.meta["creationTimestamp"]))
        for pod in pods:
            self._charge(Event(PODS, pod.version, old=None, new=pod))
        for name, view in self._nodes.items():
            self._load[name] = fit.load(view, self._used.get(name, {}))
        for pod in pods:
            if self._enabled and _waits(pod.obj):
                self._join((pod.namespace, pod.name), pod)

    def resume(self) -> None:
        """Give nodes to waiting Pods that fit by now."""
        for waiting in tuple(self._classes.values()):
            self._place(waiting)

    def tick(self) -> None:
        """Bring the reasons on waiting Pods up to date."""
        for waiting in tuple(self._classes.values()):
            message = waiting.message() if waiting.pods else waiting.told
            if message != waiting.told:
                waiting.told = message
                for key in tuple(waiting.pods):
                    self._tell(key, message)

    def used(self, node: str) -> fit.Amounts:
        """What the Pods on a node have asked for, in thousandths."""
        return dict(self._used.get(node, {}))

    # ---- Pods

    def _pod(self, event: Event) -> None:
        record = event.new
        key = (event.record.namespace, event.record.name)
        touched = self._charge(event)
        waits = record is not None and _waits(record.obj)
        if key in self._class_of and (not waits or event.old is None):
            self._forget(key)
        if touched:
            self._judge_node(touched)
        if record is not None and waits and key not in self._class_of and self._enabled:
            self._enqueue(key, record)

    def _charge(self, event: Event) -> str:
        """Keep the books of a node; the node whose books changed, if any."""
        old, new = event.old, event.new
        if old is not None and (new is None or _ended(new.obj)):
            node, amounts = self._charged.pop(old.uid, ("", {}))
            if node:
                fit.subtract(self._used[node], amounts)
            return node
        if new is not None and new.uid not in self._charged and not _ended(new.obj):
            node = new.obj["spec"].get("nodeName", "")
            if node:
                amounts = fit.pod_view(msgspec.convert(new.obj["spec"], shapes.PodSpec)).requests
                self._charged[new.uid] = (node, amounts)
                fit.add(self._used.setdefault(node, {}), amounts)
                return str(node)
        return ""

    def _join(self, key: Key, record: Record) -> Waiting:
        spec = msgspec.convert(record.obj["spec"], shapes.PodSpec)
        name = fit.class_of(spec)
        waiting = self._classes.get(name) or self._begin(name, spec)
        waiting.pods[key] = None
        self._class_of[key] = name
        return waiting

    def _enqueue(self, key: Key, record: Record) -> None:
        waiting = self._join(key, record)
        first = len(waiting.pods) == 1
        self._place(waiting)
        if first:
            waiting.told = waiting.message() if waiting.pods else ""
        if key in self._class_of:
            self._tell(key, waiting.message())

    def _begin(self, name: bytes, spec: shapes.PodSpec) -> Waiting:
        """A new class; the longest unused one makes room for it."""
        unused = [other for other, item in self._classes.items() if not item.pods]
        for other in unused[: max(0, len(unused) - _REMEMBERED)]:
            del self._classes[other]
        waiting = self._classes[name] = Waiting(fit.pod_view(spec))
        for node in self._nodes:
            waiting.verdicts[node] = self._judge(waiting.view, node)
        return waiting

    def _forget(self, key: Key) -> None:
        del self._classes[self._class_of.pop(key)].pods[key]

    # ---- Nodes

    def _node(self, event: Event) -> None:
        name = event.record.name
        if event.new is None:
            self._nodes.pop(name, None)
            self._load.pop(name, None)
            for waiting in self._classes.values():
                waiting.verdicts.pop(name, None)
            return
        view = fit.node_view(msgspec.convert(event.new.obj, shapes.Node))
        if self._nodes.get(name) != view:
            self._nodes[name] = view
            self._judge_node(name)

    def _judge(self, pod: PodView, node: str) -> str:
        return fit.refusal(pod, self._nodes[node], self._used.get(node, {}))

    def _judge_node(self, name: str) -> None:
        """A node changed or got room: maybe somebody fits now."""
        if name not in self._nodes:
            return
        self._load[name] = fit.load(self._nodes[name], self._used.get(name, {}))
        for waiting in tuple(self._classes.values()):
            waiting.verdicts[name] = self._judge(waiting.view, name)
            if waiting.pods and not waiting.verdicts[name]:
                self._place(waiting)

    def _place(self, waiting: Waiting) -> None:
        """Bind as many of the class as fit, in the order in which they came."""
        for key in tuple(waiting.pods):
            fitting = [name for name, reason in waiting.verdicts.items() if not reason]
            if not fitting:
                return
            record = self._store.get(PODS, *key)
            if record is None or not _waits(record.obj):
                continue  # its own event is still to be noted
            node = min(fitting, key=lambda name: self._rank(waiting.view, name))
            self._bind(waiting, key, record=record, node=node)

    def _rank(self, pod: PodView, node: str) -> tuple[int, float, str]:
        liking = fit.liking(pod, self._nodes[node]) if pod.affinity.preferred else 0
        return (-liking, self._load[node], node)

    def _bind(self, waiting: Waiting, key: Key, *, record: Record, node: str) -> None:
        self._forget(key)
        self._charged[record.uid] = (node, waiting.view.requests)
        fit.add(self._used.setdefault(node, {}), waiting.view.requests)
        self._load[node] = fit.load(self._nodes[node], self._used[node])
        for other in self._classes.values():
            other.verdicts[node] = self._judge(other.view, node)
        self._registry.bind(record, node, transition=to_rfc3339(self._clock.now()))

    def _tell(self, key: Key, message: str) -> None:
        """Write why the Pod waits; the time of transition moves only with the status."""
        record = self._store.get(PODS, *key)
        if record is None or not _waits(record.obj):
            return
        before = _scheduled(record.obj)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": before.get("lastTransitionTime", "")
            if before.get("status") == "False"
            else to_rfc3339(self._clock.now()),
        }
        status = with_condition(record.obj.get("status", {}), condition)
        if status != record.obj.get("status"):
            self._store.put(PODS, {**record.obj, "status": status})


def _scheduled(obj: Object) -> Object:
    conditions: list[Object] = obj.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item.get("type") == "PodScheduled"), {})


def _ended(obj: Object) -> bool:
    return obj.get("status", {}).get("phase") in _FINISHED


def _waits(obj: Object) -> bool:
    """Whether the scheduler owes this Pod a node."""
    spec = obj["spec"]
    return (
        not spec.get("nodeName")
        and not _ended(obj)
        and "deletionTimestamp" not in obj["metadata"]
        and spec.get("schedulerName", SCHEDULER) == SCHEDULER
        and not spec.get("schedulingGates")
    )
