"""Fills in the defaults of built-in kinds whenever an object is read.

The writer of the object owns them as if it had sent them: they are filled in on every write, before the ownership of
fields is computed. What the server adds as its own (`defaults`, admission) is not here.

Only missing values are filled in; a complete object is returned as it is.
"""

from collections.abc import Callable
from typing import Any

from runyard.embedded.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    NAMESPACES,
    NODES,
    PODS,
    RBAC,
    ROLE_BINDINGS,
    SECRETS,
    Object,
    Resource,
)

_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HTTP = {"path": "/", "scheme": "HTTP"}
_MODE = {"defaultMode": 0o644}
_VOLUMES = ("secret", "configMap", "downwardAPI", "projected")
_LISTS = ("containers", "initContainers", "ephemeralContainers")


def filled(resource: Resource, obj: Object, old: Object | None = None) -> Object:
    """The object with its defaults; parts shared with `old` have them already."""
    fill = _FILL.get(resource.key)
    return obj if fill is None else fill(obj, old or {})


def _with(value: Object, **missing: Any) -> Object:
    """The value with its missing defaults; the same object if nothing is missing."""
    lacks = {key: item for key, item in missing.items() if value.get(key) is None}
    return {**value, **lacks} if lacks else value


def _each(value: Object, key: str, fill: Callable[[Object], Object]) -> Object:
    """The value with `fill` applied to the items of one of its lists."""
    items = value.get(key)
    if not items:
        return value
    made = [fill(item) for item in items]
    same = all(one is two for one, two in zip(made, items, strict=True))
    return value if same else {**value, key: made}


def _inside(value: Object, key: str, fill: Callable[[Object], Object]) -> Object:
    inner = value.get(key)
    if inner is None:
        return value
    made = fill(inner)
    return value if made is inner else {**value, key: made}


# ---- pods


def _pod(obj: Object, old: Object) -> Object:
    status = obj["status"]
    if status is not old.get("status") and (given := _addresses(status)) is not status:
        obj = {**obj, "status": given}
    spec = obj["spec"]
    if spec is old.get("spec"):
        return obj
    made = _with(spec, **_POD)
    host = bool(made.get("hostNetwork"))
    for key in _LISTS:
        made = _each(made, key, lambda item: _container(item, host=host))
    made = _each(made, "volumes", _volume)
    if made.get("serviceAccountName") and not made.get("serviceAccount"):
        made = {**made, "serviceAccount": made["serviceAccountName"]}
    elif made.get("serviceAccount") and not made.get("serviceAccountName"):
        made = {**made, "serviceAccountName": made["serviceAccount"]}
    return obj if made is spec else {**obj, "spec": made}


def _addresses(status: Object) -> Object:
    """Keeps the two fields for addresses consistent: the single one is the first of the list."""
    one, several = status.get("podIP"), status.get("podIPs")
    if one and (not several or several[0]["ip"] != one):
        return {**status, "podIPs": [{"ip": one}]}
    return {**status, "podIP": several[0]["ip"]} if several and not one else status


def _container(item: Object, *, host: bool) -> Object:
    image = item.get("image", "")
    made = _with(item, **_CONTAINER, imagePullPolicy=_policy(image))
    made = _each(made, "ports", lambda port: _port(port, host=host))
    made = _each(made, "env", _variable)
    for key in _PROBES:
        made = _inside(made, key, _probe)
    return _inside(made, "resources", _resources)


def _policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _port(port: Object, *, host: bool) -> Object:
    port = _with(port, protocol="TCP")
    return _with(port, hostPort=port.get("containerPort", 0)) if host else port


def _variable(item: Object) -> Object:
    return _inside(
        item,
        "valueFrom",
        lambda given: _inside(given, "fieldRef", lambda ref: _with(ref, apiVersion="v1")),
    )


def _probe(probe: Object) -> Object:
    made = _with(probe, **_PROBE)
    return _inside(made, "httpGet", lambda given: _with(given, **_HTTP))


def _resources(given: Object) -> Object:
    limits = given.get("limits")
    if not limits:
        return given
    requests = given.get("requests") or {}
    missing = {key: value for key, value in limits.items() if key not in requests}
    return {**given, "requests": {**requests, **missing}} if missing else given


def _volume(volume: Object) -> Object:
    if len(volume) == 1:
        return {**volume, "emptyDir": {}}
    made = volume
    for key in _VOLUMES:
        made = _inside(made, key, lambda given: _with(given, **_MODE))
    made = _inside(made, "hostPath", lambda given: _with(given, type=""))
    made = _inside(made, "downwardAPI", lambda given: _each(given, "items", _file))
    return _inside(made, "projected", lambda given: _each(given, "sources", _source))


def _source(source: Object) -> Object:
    made = _inside(
        source, "serviceAccountToken", lambda given: _with(given, expirationSeconds=3600)
    )
    return _inside(made, "downwardAPI", lambda given: _each(given, "items", _file))


def _file(item: Object) -> Object:
    return _inside(item, "fieldRef", lambda ref: _with(ref, apiVersion="v1"))


# ---- the others


def _secret(obj: Object, old: Object) -> Object:
    return _with(obj, type="Opaque")


def _node(obj: Object, old: Object) -> Object:
    if (spec := obj["spec"]) is not old.get("spec"):
        obj = obj if (made := _networks(spec)) is spec else {**obj, "spec": made}
    status = obj["status"]
    if status is old.get("status") or status.get("allocatable") or not status.get("capacity"):
        return obj
    return {**obj, "status": {**status, "allocatable": status["capacity"]}}


def _networks(spec: Object) -> Object:
    """Keeps the two fields for networks consistent."""
    one, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if one and (not several or several[0] != one):
        return {**spec, "podCIDRs": [one]}
    return {**spec, "podCIDR": several[0]} if several and not one else spec


def _namespace(obj: Object, old: Object) -> Object:
    meta = obj["metadata"]
    name = meta.get("name")
    labels = meta.get("labels") or {}
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return obj
    return {**obj, "metadata": {**meta, "labels": {**labels, "kubernetes.io/metadata.name": name}}}


def _binding(obj: Object, old: Object) -> Object:
    made = _each(obj, "subjects", _subject)
    role = made["roleRef"]
    return made if role.get("apiGroup") else {**made, "roleRef": {**role, "apiGroup": RBAC}}


def _subject(subject: Object) -> Object:
    wants = subject.get("kind") in ("User", "Group") and not subject.get("apiGroup")
    return {**subject, "apiGroup": RBAC} if wants else subject


_FILL: dict[str, Callable[[Object, Object], Object]] = {
    PODS.key: _pod,
    SECRETS.key: _secret,
    NODES.key: _node,
    NAMESPACES.key: _namespace,
    ROLE_BINDINGS.key: _binding,
    CLUSTER_ROLE_BINDINGS.key: _binding,
}
