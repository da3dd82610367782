"""Mounts what a Pod needs to call the API into each container: a token, the CA certificate and its namespace.

Admission adds them to every new Pod unless it, or its account, opts out: one projected volume, and a
read-only mount in each container that has nothing at that path. These fields have no owner. What does not depend
on the Pod is created once and shared by all.
"""

from collections.abc import Callable
from typing import Any

from runyard.embedded.kube.resources import Object

ROOT_CA = "kube-root-ca.crt"  # the ConfigMap, published in every namespace
CA_KEY = "ca.crt"
_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX = "kube-api-access-"
_WANTED = "automountServiceAccountToken"
_PULLING = "imagePullSecrets"
_NAMESPACE = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
_PROJECTED: Object = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": CA_KEY, "path": CA_KEY}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _NAMESPACE}]}},
    ],
    "defaultMode": 0o644,
}


def equipped(pod: Object, account: Object, *, suffix: Callable[[], str]) -> Object:
    """Adds to a new Pod what its ServiceAccount brings: the mounts, and the image pull secrets."""
    spec = pod["spec"]
    added = _mounted(spec, suffix) if _wanted(spec, account) else {}
    if not spec.get(_PULLING) and (secrets := account.get(_PULLING)):
        added[_PULLING] = secrets
    return {**pod, "spec": {**spec, **added}} if added else pod


def _wanted(spec: Object, account: Object) -> bool:
    given = spec.get(_WANTED)
    return (account.get(_WANTED) if given is None else given) is not False


def _mounted(spec: Object, suffix: Callable[[], str]) -> Object:
    parts = [key for key in ("initContainers", "containers") if spec.get(key)]
    if all(_has_one(each) for key in parts for each in spec[key]):
        return {}
    volumes: list[Object] = spec.get("volumes") or []
    name = next((each["name"] for each in volumes if each["name"].startswith(_PREFIX)), "")
    added: Object = {}
    if not name:
        name = _PREFIX + suffix()
        added["volumes"] = [*volumes, {"name": name, "projected": _PROJECTED}]
    mount = {"name": name, "readOnly": True, "mountPath": _PATH}
    for key in parts:
        added[key] = [each if _has_one(each) else _with_mount(each, mount) for each in spec[key]]
    return added


def _has_one(container: Object) -> bool:
    mounts: Any = container.get("volumeMounts")
    return bool(mounts) and any(each["mountPath"] == _PATH for each in mounts)


def _with_mount(container: Object, mount: Object) -> Object:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
