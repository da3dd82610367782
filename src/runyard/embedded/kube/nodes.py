"""Node lifecycle: silence makes a node Unknown, and in the end its Pods go.

A node speaks by renewing its lease or by posting its status; what counts is when this server saw it,
not the time that the node wrote down, so a host with a wrong clock is not taken for dead. Silence longer
than the grace sets every condition to Unknown. Only the node itself can take that back, by posting its
status again: a renewed lease proves that the agent lives, not that the host is fit.

The taints `not-ready` and `unreachable` are a function of the Ready condition and nothing else, so they
cannot disagree with it. Pods of a node that stays so are asked to go after their toleration; they stay
Terminating until the agent returns. Pods whose Node object is gone are removed by force. Finalizers
hold in every case: force means grace 0, not violence.
"""

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import fit, shapes
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import LEASES, NODES, PODS, Object
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.store import Event, Record
from runyard.wire.instants import to_rfc3339

LEASE_NAMESPACE = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_SILENT = "NodeStatusUnknown"
_JUDGED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")

Key = tuple[str, str]


class NodeLifecycle:
    """Watches over nodes and cleans up after them."""

    def __init__(self, registry: Registry, *, clock: Clock, settings: Settings) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._settings = settings
        self._heard: dict[str, float] = {}
        self._unfit_since: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._pods: dict[str, dict[Key, None]] = {}

    def note(self, event: Event) -> None:
        """React to one commit."""
        if event.resource is PODS:
            self._pod(event)
        elif event.resource is NODES:
            self._node(event)
        elif event.resource is LEASES and event.record.namespace == LEASE_NAMESPACE:
            self._lease(event)

    def adopt(self) -> None:
        """Take over what the store already holds, writing nothing.

        Every clock starts now: while this server was away nobody could speak to it, so nobody was silent.
        """
        now = self._clock.monotonic()
        for node in self._store.table(NODES).records():
            self._heard[node.name] = now
            if _ready(node.obj).get("status") != "True":
                self._unfit_since[node.name] = now
        for pod in self._store.table(PODS).records():
            if name := pod.obj["spec"].get("nodeName", ""):
                self._pods.setdefault(name, {})[pod.namespace, pod.name] = None
                if self._store.get(NODES, "", name) is None:
                    self._gone_since[name] = now

    def tick(self) -> None:
        """Look at the clock."""
        now = self._clock.monotonic()
        for name, heard in tuple(self._heard.items()):
            if now - heard > self._settings.node_grace:
                self._fall_silent(name)
        for name, since in tuple(self._unfit_since.items()):
            self._evict(name, now - since)
        for name, since in tuple(self._gone_since.items()):
            if now - since >= self._settings.orphan_quarantine:
                self._remove_pods(name)

    # ---- commits

    def _lease(self, event: Event) -> None:
        old, new = event.old, event.new
        if new is None or self._store.get(NODES, "", new.name) is None:
            return
        if old is None or _renewed(old.obj) != _renewed(new.obj):
            self._heard[new.name] = self._clock.monotonic()

    def _pod(self, event: Event) -> None:
        key = (event.record.namespace, event.record.name)
        node = event.record.obj["spec"].get("nodeName", "")
        if not node:
            return
        if event.new is None:
            held = self._pods.get(node, {})
            held.pop(key, None)
            if not held:
                self._pods.pop(node, None)
                self._gone_since.pop(node, None)
        else:
            self._pods.setdefault(node, {})[key] = None
            if self._store.get(NODES, "", node) is None:
                self._gone_since.setdefault(node, self._clock.monotonic())

    def _node(self, event: Event) -> None:
        name, now = event.record.name, self._clock.monotonic()
        if event.new is None:
            self._heard.pop(name, None)
            self._unfit_since.pop(name, None)
            if name in self._pods:
                self._gone_since[name] = now
            return
        self._gone_since.pop(name, None)
        ready = _ready(event.new.obj)
        if event.old is None or event.old.obj.get("status") is not event.new.obj.get("status"):
            self._heard[name] = (
                now  # our own verdict lands here too: it waits for a word, not for time
            )
        if ready.get("status") == "True":
            self._unfit_since.pop(name, None)
        else:
            self._unfit_since.setdefault(name, now)
        self._taint(name)

    def _taint(self, name: str) -> None:
        """Make the taints say what the Ready condition says."""
        record = self._store.get(NODES, "", name)
        if record is None:
            return
        key = {"True": "", "Unknown": UNREACHABLE}.get(
            _ready(record.obj).get("status", ""), NOT_READY
        )
        spec = record.obj.get("spec", {})
        taints: list[Object] = spec.get("taints", [])
        have = [item for item in taints if item["key"] in (NOT_READY, UNREACHABLE)]
        wanted = [(key, "NoSchedule"), (key, "NoExecute")] if key else []
        if sorted((item["key"], item["effect"]) for item in have) == sorted(wanted):
            return
        added = to_rfc3339(self._clock.now())
        rest = [item for item in taints if item["key"] not in (NOT_READY, UNREACHABLE)]
        rest += [{"key": key, "effect": effect, "timeAdded": added} for _, effect in wanted]
        spec = {name: value for name, value in spec.items() if name != "taints"}
        self._store.put(NODES, {**record.obj, "spec": {**spec, "taints": rest} if rest else spec})

    # ---- time

    def _fall_silent(self, name: str) -> None:
        record = self._store.get(NODES, "", name)
        if record is None or _ready(record.obj).get("reason") == _SILENT:
            return
        status = record.obj.get("status", {})
        conditions: list[Object] = status.get("conditions", [])
        if not _ready(record.obj):
            conditions = [*conditions, {"type": "Ready"}]
        now = to_rfc3339(self._clock.now())
        unknown = [_unknown(item, now) if item["type"] in _JUDGED else item for item in conditions]
        self._store.put(NODES, {**record.obj, "status": {**status, "conditions": unknown}})

    def _evict(self, name: str, elapsed: float) -> None:
        forced = self._settings.pod_gc_after
        if forced is not None and elapsed >= forced:
            self._remove_pods(name)
            return
        node = self._store.get(NODES, "", name)
        if node is None:
            return
        key = UNREACHABLE if _ready(node.obj).get("status") == "Unknown" else NOT_READY
        taint = shapes.Taint(key=key, effect="NoExecute")
        for pod in self._pods_on(name):
            if "deletionTimestamp" not in pod.meta and elapsed >= self._patience(pod, taint):
                self._registry.delete(PODS, pod)

    def _patience(self, pod: Record, taint: shapes.Taint) -> float:
        """How long a Pod stays on a node with that taint."""
        told = msgspec.convert(pod.obj["spec"].get("tolerations", []), list[shapes.Toleration])
        fitting = [item.toleration_seconds for item in told if fit.covers(item, taint)]
        if not fitting:
            return self._settings.pod_eviction
        limits = [seconds for seconds in fitting if seconds is not None]
        return float(max(min(limits), 0)) if limits else float("inf")

    def _remove_pods(self, name: str) -> None:
        for pod in self._pods_on(name):
            self._registry.delete(PODS, pod, grace=0)

    def _pods_on(self, name: str) -> list[Record]:
        found = (self._store.get(PODS, *key) for key in tuple(self._pods.get(name, {})))
        return [record for record in found if record is not None]


def _renewed(lease: Object) -> Object:
    spec: Object = lease.get("spec", {})
    return {key: spec.get(key) for key in ("renewTime", "holderIdentity")}


def _ready(node: Object) -> Object:
    conditions: list[Object] = node.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item.get("type") == "Ready"), {})


def _unknown(condition: Object, now: str) -> Object:
    changed = {"lastTransitionTime": now} if condition.get("status") != "Unknown" else {}
    told = {"reason": _SILENT, "message": "Kubelet stopped posting node status."}
    return {**condition, **changed, **told, "status": "Unknown"}
