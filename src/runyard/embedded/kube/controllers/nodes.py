"""The node lifecycle controller: marks a silent node as Unknown, and later taints it so that its Pods are evicted.

A heartbeat is a renewed Lease or a posted status. It counts from when this server received it, whatever time the
node wrote, so a host with a wrong clock does not count as lost. Silence longer than the grace period sets every
condition that an agent reports to Unknown, and ready Pods to not ready. Only the node itself can change this back,
by posting its status again: a renewed Lease proves that the agent runs, not that the host is ready.

Two labels of a node have older names, whose values are kept equal.

Conditions become taints with the effect NoSchedule at once (`taints`). NoExecute, which evicts Pods
(`evictions`), is set on one lost node at a time, and on none when all nodes are silent (`lifecycle`), because
then this server is likely to be disconnected.
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
        self._last_heartbeat: dict[str, float] = {}
        self._ready: dict[
            str, str
        ] = {}  # the status of the Ready condition, empty if there is none
        self._lost_since: dict[str, float] = {}
        self._next = 0.0  # when the next lost node may be tainted
        self._all_silent = False

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is NODES:
            self._node(event)
        elif event.resource is LEASES and event.record.namespace == LEASE_NAMESPACE:
            self._lease(event)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing.

        Every grace period starts now: while this server was down it could not receive a heartbeat.
        """
        now = self._clock.monotonic()
        for node in self._store.table(NODES).records():
            self._last_heartbeat[node.name] = now
            status = self._ready[node.name] = _ready(node.obj).get("status", "")
            if taints.lost_key(status):
                self._lost_since[node.name] = now

    def tick(self) -> None:
        """Checks the time."""
        now = self._clock.monotonic()
        for name, last in tuple(self._last_heartbeat.items()):
            grace = self._settings.node_grace
            if not self._ready.get(name):
                grace = max(grace, self._settings.node_startup)
            if now - last > grace:
                self._mark_unknown(name)
        if self._lost_since or self._all_silent:
            self._taint_next_lost(now)
            self._force_delete(now)

    # ---- commits

    def _lease(self, event: Event) -> None:
        old, new = event.old, event.new
        if new is None or self._store.get(NODES, "", new.name) is None:
            return
        if old is None or _renewed(old.obj) != _renewed(new.obj):
            self._last_heartbeat[new.name] = self._clock.monotonic()

    def _node(self, event: Event) -> None:
        name, now = event.record.name, self._clock.monotonic()
        old, new = event.old, event.new
        if new is None:
            for index in (self._last_heartbeat, self._ready, self._lost_since):
                index.pop(name, None)
            self._record_event(
                event.record, "RemovingNode", f"Removing Node {name} from Controller"
            )
            return
        if old is None or _is_heartbeat(old.obj, new.obj):
            self._last_heartbeat[name] = now
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
        self._put_spec(record, taints.with_state_taints(spec, _conditions(record.obj), now=now))

    def _put_spec(self, record: Record, spec: Object) -> None:
        if spec is not record.obj.get("spec", spec):
            self._store.put(NODES, {**record.obj, "spec": spec})

    # ---- time

    def _mark_unknown(self, name: str) -> None:
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
            if not self._all_silent:
                self._all_silent = True
                self._remove_lost_taints()
            return
        if self._all_silent:  # a node is back: every grace period starts again
            self._all_silent = False
            self._last_heartbeat = dict.fromkeys(self._last_heartbeat, now)
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

    def _remove_lost_taints(self) -> None:
        for record in self._store.table(NODES).records():
            self._put_spec(record, taints.without_lost_taint(record.obj.get("spec", {})))

    def _force_delete(self, now: float) -> None:
        """Deletes Pods of lost nodes with grace 0 after `pod_gc_after`, if that is set."""
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
    """Whether a write was a heartbeat of the agent; writes of other clients are not."""
    before, after = _ready(old), _ready(new)
    message = "lastHeartbeatTime"
    return bool(before) != bool(after) or before.get(message) != after.get(message)


def _ready(node: Object) -> Object:
    return next((item for item in _conditions(node) if item.get("type") == "Ready"), {})
