"""Indexes which Pods are bound to which Node, updated with every commit, for all controllers."""

from runyard.embedded.kube.resources import PODS
from runyard.embedded.kube.storage.store import Event, Record, Store

Key = tuple[str, str]


class Placed:
    """Pods by the Node that they are bound to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods: dict[str, dict[Key, None]] = {}

    def on_event(self, event: Event) -> None:
        """Reacts to one commit about a Pod."""
        record = event.record
        node = record.obj["spec"].get("nodeName", "")
        if not node:
            return
        key = (record.namespace, record.name)
        if event.new is not None:
            self.add(record, node)
        elif (held := self._pods.get(node)) is not None:
            held.pop(key, None)
            if not held:
                del self._pods[node]

    def load_stored(self) -> None:
        """Indexes what the store already holds."""
        for pod in self._store.table(PODS).records():
            self.on_event(Event(PODS, pod.version, old=None, new=pod))

    def add(self, pod: Record, node: str) -> None:
        """Adds a Pod that was bound to that Node."""
        self._pods.setdefault(node, {})[pod.namespace, pod.name] = None

    def on(self, node: str) -> list[Record]:
        """Returns the Pods on a Node, in the order in which they were bound."""
        found = (self._store.get(PODS, *key) for key in tuple(self._pods.get(node, ())))
        return [record for record in found if record is not None]

    def nodes(self) -> tuple[str, ...]:
        """The names of all Nodes that Pods name, whether such a Node exists or not."""
        return tuple(self._pods)
