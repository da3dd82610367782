"""The node lifecycle: a silent node becomes Unknown, and later its Pods are evicted.

A heartbeat is a renewed lease or a posted status; what counts is when this server received it, not the
time that the node wrote down, so a host with a wrong clock is not taken for dead. Silence longer than the
grace sets every condition that an agent reports to Unknown, and Pods that were ready are so no more. Only the
node itself can take that back, by posting its status again: a renewed lease proves that the agent lives, not
that the host is fit.

Two labels of a node have older names, and what the one says the other says too.

What the conditions say becomes taints at once, with the effect NoSchedule (`taints`). NoExecute, which drives
Pods away (`evictions`), comes to one lost node at a time, and to none when the whole fleet is silent
(`lifecycle`): then this server is as likely to be cut off as they are.
"""

from runyard.clock import Clock
from runyard.embedded.kube import taints
from runyard.embedded.kube.controllers import lifecycle
from runyard.embedded.kube.controllers.events import NODE_CONTROLLER, Recorder
from runyard.embedded.kube.controllers.placed import Placed
from runyard.embedded.kube.registry import Registry, with_condition
from runyard.embedded.kube.resources import LEASES, NODES, PODS, Object
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.storage.store import Event, Record
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

LEASE_NAMESPACE = "kube-node-lease"
_LABELS = {
    names.NODE_OS: "beta.kubernetes.io/os",
    names.NODE_ARCH: "beta.kubernetes.io/arch",
}
_NOTHING: Object = {}


class NodeLifecycle:
    """Monitors nodes."""

    def __init__(
        self,
        registry: Registry,
        placed: Placed,
        recorder: Recorder,
        *,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._placed = placed
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._heard: dict[str, float] = {}
        self._ready: dict[
            str, str
        ] = {}  # the status of the Ready condition, empty if there is none
        self._lost_since: dict[str, float] = {}
        self._next = 0.0  # when the next lost node may lose its Pods
        self._cut_off = False

    def note(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is NODES:
            self._node(event)
        elif event.resource is LEASES and event.record.namespace == LEASE_NAMESPACE:
            self._lease(event)

    def adopt(self) -> None:
        """Indexes what the store already holds, writing nothing.

        Every grace starts now: while this server was down no heartbeat could reach it.
        """
        now = self._clock.monotonic()
        for node in self._store.table(NODES).records():
            self._heard[node.name] = now
            status = self._ready[node.name] = _ready(node.obj).get("status", "")
            if taints.lost_key(status):
                self._lost_since[node.name] = now

    def tick(self) -> None:
        """Checks the time."""
        now = self._clock.monotonic()
        for name, heard in tuple(self._heard.items()):
            grace = self._settings.node_grace
            if not self._ready.get(name):
                grace = max(grace, self._settings.node_startup)
            if now - heard > grace:
                self._fall_silent(name)
        if self._lost_since or self._cut_off:
            self._taint_next_lost(now)
            self._force(now)

    # ---- commits

    def _lease(self, event: Event) -> None:
        old, new = event.old, event.new
        if new is None or self._store.get(NODES, "", new.name) is None:
            return
        if old is None or _renewed(old.obj) != _renewed(new.obj):
            self._heard[new.name] = self._clock.monotonic()

    def _node(self, event: Event) -> None:
        name, now = event.record.name, self._clock.monotonic()
        old, new = event.old, event.new
        if new is None:
            for book in (self._heard, self._ready, self._lost_since):
                book.pop(name, None)
            self._record_event(
                event.record, "RemovingNode", f"Removing Node {name} from Controller"
            )
            return
        if old is None or _is_heartbeat(old.obj, new.obj):
            self._heard[name] = now
        if old is None or old.obj.get("status") is not new.obj.get("status"):
            status = self._ready[name] = _ready(new.obj).get("status", "")
            if taints.lost_key(status):
                self._lost_since.setdefault(name, now)
            else:
                self._lost_since.pop(name, None)
        self._label(new)
        self._taint(name)
        if old is None:
            self._record_event(new, "RegisteredNode", f"Registered Node {name} in Controller")

    def _label(self, node: Record) -> None:
        """Keeps the old names of two labels equal to their new ones."""
        labels = node.meta.get("labels") or _NOTHING
        given = {
            old: labels[key]
            for key, old in _LABELS.items()
            if key in labels and labels.get(old) != labels[key]
        }
        record = self._store.get(NODES, "", node.name) if given else None
        if record is not None and record.meta.get("labels") == labels:
            meta = {**record.meta, "labels": {**labels, **given}}
            self._store.put(NODES, {**record.obj, "metadata": meta})

    def _taint(self, name: str) -> None:
        """Sets the taints that correspond to the conditions."""
        record = self._store.get(NODES, "", name)
        if record is None:
            return
        spec = record.obj.get("spec", {})
        now = to_rfc3339(self._clock.now())
        self._put_spec(record, taints.settled(spec, _conditions(record.obj), now=now))

    def _put_spec(self, record: Record, spec: Object) -> None:
        if spec is not record.obj.get("spec", spec):
            self._store.put(NODES, {**record.obj, "spec": spec})

    # ---- time

    def _fall_silent(self, name: str) -> None:
        record = self._store.get(NODES, "", name)
        if record is None or self._ready.get(name) == "Unknown":
            return
        now = to_rfc3339(self._clock.now())
        created = record.meta["creationTimestamp"]
        given = lifecycle.silenced(_conditions(record.obj), created=created, now=now)
        was_ready = self._ready.get(name) == "True"
        status = {**record.obj.get("status", {}), "conditions": given}
        silent = self._store.put(NODES, {**record.obj, "status": status})
        self._ready[name] = "Unknown"
        if was_ready:
            self._recorder.emit(
                silent,
                NODES,
                by=NODE_CONTROLLER,
                reason="NodeNotReady",
                message=f"Node {name} status is now: NodeNotReady",
            )
            for pod in self._placed.on(name):
                self._mark_not_ready(pod, now)

    def _mark_not_ready(self, pod: Record, now: str) -> None:
        """Marks the Pods of a silent node as not ready."""
        status = pod.obj.get("status", {})
        for item in status.get("conditions") or ():
            if item.get("type") == "Ready" and item.get("status") == "True":
                after = {"type": "Ready", "status": "False", "lastTransitionTime": now}
                self._store.put(PODS, {**pod.obj, "status": with_condition(status, after)})
                self._recorder.emit(
                    pod,
                    PODS,
                    by=NODE_CONTROLLER,
                    reason="NodeNotReady",
                    message="Node is not ready",
                    warning=True,
                )

    def _taint_next_lost(self, now: float) -> None:
        """Taints the next lost node, if it is time for one."""
        total = len(self._ready)
        disruption = lifecycle.disruption(
            sum(status == "True" for status in self._ready.values()), total
        )
        if disruption == "full":
            if not self._cut_off:
                self._cut_off = True
                self._spare_all()
            return
        if self._cut_off:  # a node is back: the silence of all others starts again
            self._cut_off = False
            self._heard = dict.fromkeys(self._heard, now)
        pause = lifecycle.pause(disruption, total)
        if pause is None or now < self._next:
            return
        for name in self._lost_since:
            record = self._store.get(NODES, "", name)
            key = taints.lost_key(self._ready.get(name, ""))
            if record is None or not key or taints.has_lost_taint(record.obj.get("spec", {})):
                continue
            moment = to_rfc3339(self._clock.now())
            self._put_spec(
                record, taints.with_lost_taint(record.obj.get("spec", {}), key, now=moment)
            )
            self._next = now + pause
            return

    def _spare_all(self) -> None:
        for record in self._store.table(NODES).records():
            self._put_spec(record, taints.without_lost_taint(record.obj.get("spec", {})))

    def _force(self, now: float) -> None:
        """Removes Pods of nodes lost for long by force, if the settings say so."""
        limit = self._settings.pod_gc_after
        if limit is None:
            return
        for name, since in tuple(self._lost_since.items()):
            if now - since >= limit:
                for pod in self._placed.on(name):
                    self._registry.delete(PODS, pod, grace=0)

    def _record_event(self, node: Record, reason: str, message: str) -> None:
        text = f"Node {node.name} event: {message}"
        self._recorder.emit(node, NODES, by=NODE_CONTROLLER, reason=reason, message=text)


def _renewed(lease: Object) -> Object:
    spec: Object = lease.get("spec", {})
    return {key: spec.get(key) for key in ("renewTime", "holderIdentity")}


def _conditions(node: Object) -> list[Object]:
    return node.get("status", {}).get("conditions") or []


def _is_heartbeat(old: Object, new: Object) -> bool:
    """Whether the agent sent a heartbeat: writes of others to its Node are none."""
    before, after = _ready(old), _ready(new)
    message = "lastHeartbeatTime"
    return bool(before) != bool(after) or before.get(message) != after.get(message)


def _ready(node: Object) -> Object:
    return next((item for item in _conditions(node) if item.get("type") == "Ready"), {})
