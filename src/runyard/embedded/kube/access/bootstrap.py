"""The default roles of a new cluster, as far as users and programs expect them.

They are written when they are missing; changed ones stay as they are. `admin`, `edit` and `view` are
for users, in a namespace, and name the resources that this API serves; what they may do with pools is
shipped (`deploy/roles/users.yaml`), and a cluster adds it to the same roles.
"""

from collections.abc import Iterator

from runyard.embedded.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    RBAC,
    Object,
    Resource,
)
from runyard.wire import rights

_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_NOTES = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
]
_DISCOVERY += ["/version", "/version/"]
_SEEN = ["configmaps", "events", "pods", "pods/log", "pods/status", "serviceaccounts"]
_CHANGED = [
    "configmaps",
    "events",
    "pods",
    "pods/attach",
    "pods/exec",
    "pods/portforward",
    "secrets",
]
_CHANGED += ["serviceaccounts"]
_LEASES = "coordination.k8s.io"

Rules = list[dict[str, list[str]]]
_POOLS_SEEN, _POOLS_CHANGED = rights.user_roles()


def _on(group: str, resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


_VIEW: Rules = [
    _on("", [*_SEEN, "namespaces"], _READ),
    *_POOLS_SEEN["rules"],
]
_EDIT: Rules = [
    *_VIEW,
    _on("", ["pods/attach", "pods/exec", "pods/portforward", "secrets"], _READ),
    _on("", _CHANGED, _WRITE),
    _on("", ["pods/eviction", "serviceaccounts/token"], ["create"]),
    _on(_LEASES, ["leases"], [*_READ, *_WRITE]),
    _on("", ["serviceaccounts"], ["impersonate"]),
    *_POOLS_CHANGED["rules"],
]
_ADMIN: Rules = [
    *_EDIT,
    _on(RBAC, ["rolebindings", "roles"], [*_READ, *_WRITE]),
    _on("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
]
_ROLES: dict[str, Rules] = {
    "cluster-admin": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "admin": _ADMIN,
    "edit": _EDIT,
    "view": _VIEW,
    "system:basic-user": [
        _on(
            "authorization.k8s.io",
            ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            ["create"],
        ),
        _on("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
    ],
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _HEALTH, "verbs": ["get"]}],
    "system:auth-delegator": [
        _on("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _on("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ],
}
_BINDINGS = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}


def objects() -> Iterator[tuple[Resource, Object]]:
    """Every role and binding of a new cluster."""
    for name, rules in _ROLES.items():
        meta = {"name": name, "labels": dict(_LABELS), "annotations": dict(_NOTES)}
        yield CLUSTER_ROLES, {"metadata": meta, "rules": rules}
    for name, groups in _BINDINGS.items():
        meta = {"name": name, "labels": dict(_LABELS), "annotations": dict(_NOTES)}
        subjects = [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        yield CLUSTER_ROLE_BINDINGS, {"metadata": meta, "roleRef": ref, "subjects": subjects}
