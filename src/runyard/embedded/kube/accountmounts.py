"""Mounts the token, the CA certificate and the namespace into each container, so that it can call the API.

Admission adds one projected volume to every new Pod, unless the Pod or its account opts out, and a read-only mount
to each container without a mount at that path. These fields have no field manager. What does not depend on the Pod
is created once and shared.
"""

from collections.abc import Callable
from typing import Any

from runyard.embedded.kube.resources import Object

ROOT_CA = "kube-root-ca.crt"  # the ConfigMap, published in every namespace
CA_KEY = "ca.crt"
_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX = "kube-api-access-"
_AUTOMOUNT = "automountServiceAccountToken"
_PULL_SECRETS = "imagePullSecrets"
_NAMESPACE = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
_PROJECTED: Object = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": CA_KEY, "path": CA_KEY}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _NAMESPACE}]}},
    ],
    "defaultMode": 0o644,
}


def with_account_mounts(pod: Object, account: Object, *, suffix: Callable[[], str]) -> Object:
    """Adds the mounts and the image pull secrets of its ServiceAccount to a new Pod."""
    spec = pod["spec"]
    added = _mounted(spec, suffix) if _automounts(spec, account) else {}
    if not spec.get(_PULL_SECRETS) and (secrets := account.get(_PULL_SECRETS)):
        added[_PULL_SECRETS] = secrets
    return {**pod, "spec": {**spec, **added}} if added else pod


def _automounts(spec: Object, account: Object) -> bool:
    given = spec.get(_AUTOMOUNT)
    return (account.get(_AUTOMOUNT) if given is None else given) is not False


def _mounted(spec: Object, suffix: Callable[[], str]) -> Object:
    parts = [key for key in ("initContainers", "containers") if spec.get(key)]
    if all(_has_mount(each) for key in parts for each in spec[key]):
        return {}
    volumes: list[Object] = spec.get("volumes") or []
    name = next((each["name"] for each in volumes if each["name"].startswith(_PREFIX)), "")
    added: Object = {}
    if not name:
        name = _PREFIX + suffix()
        added["volumes"] = [*volumes, {"name": name, "projected": _PROJECTED}]
    mount = {"name": name, "readOnly": True, "mountPath": _PATH}
    for key in parts:
        added[key] = [each if _has_mount(each) else _with_mount(each, mount) for each in spec[key]]
    return added


def _has_mount(container: Object) -> bool:
    mounts: Any = container.get("volumeMounts")
    return bool(mounts) and any(each["mountPath"] == _PATH for each in mounts)


def _with_mount(container: Object, mount: Object) -> Object:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
