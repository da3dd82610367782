"""Publishes the machine's CA certificate as a ConfigMap in every namespace, for Pods that call the API.

A deleted or changed ConfigMap is restored at once.
"""

from runyard.embedded.kube.accountmounts import CA_KEY, ROOT_CA
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import CONFIG_MAPS, NAMESPACES
from runyard.embedded.kube.storage.store import Event

_DESCRIPTION = "kubernetes.io/description"
_TEXT = "The CA certificate with which Pods verify the API server."


class RootCa:
    """Publishes one certificate."""

    def __init__(self, registry: Registry, certificate: bytes) -> None:
        self._registry = registry
        self._store = registry.store
        self._data = {CA_KEY: certificate.decode()}

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is NAMESPACES:
            if event.new is not None:
                self._publish(event.record.name)
        elif event.resource is CONFIG_MAPS and event.record.name == ROOT_CA:
            self._publish(event.record.namespace)

    def resume(self) -> None:
        """Publishes it wherever it is missing or different."""
        for namespace_record in self._store.table(NAMESPACES).records():
            self._publish(namespace_record.name)

    def _publish(self, namespace: str) -> None:
        namespace_record = self._store.get(NAMESPACES, "", namespace)
        if namespace_record is None or "deletionTimestamp" in namespace_record.meta:
            return
        record = self._store.get(CONFIG_MAPS, namespace, ROOT_CA)
        body = {
            "metadata": {"name": ROOT_CA, "annotations": {_DESCRIPTION: _TEXT}},
            "data": self._data,
        }
        if record is None:
            self._registry.create(CONFIG_MAPS, body, namespace=namespace)
        elif "deletionTimestamp" not in record.meta and (
            record.obj.get("data") != self._data
            or _DESCRIPTION not in (record.meta.get("annotations") or {})
        ):
            given = {**(record.meta.get("annotations") or {}), _DESCRIPTION: _TEXT}
            meta = {**record.meta, "annotations": given}
            self._store.put(CONFIG_MAPS, {**record.obj, "metadata": meta, "data": self._data})
