"""Defines the default roles and bindings of a new cluster.

Missing ones are created; changed ones stay as they are. `admin`, `edit` and `view` are for users, in a
namespace, and name the resources that this API serves; their rules for pools are those of
`deploy/roles/users.yaml`, which a real cluster aggregates into the same roles.
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
_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
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
_READABLE = ["configmaps", "events", "pods", "pods/log", "pods/status", "serviceaccounts"]
_WRITABLE = [
    "configmaps",
    "events",
    "pods",
    "pods/attach",
    "pods/exec",
    "pods/portforward",
    "secrets",
]
_WRITABLE += ["serviceaccounts"]
_LEASES = "coordination.k8s.io"

Rules = list[dict[str, list[str]]]
_POOLS_READ, _POOLS_WRITE = rights.user_roles()


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


_VIEW: Rules = [
    _rule("", [*_READABLE, "namespaces"], _READ),
    *_POOLS_READ["rules"],
]
_EDIT: Rules = [
    *_VIEW,
    _rule("", ["pods/attach", "pods/exec", "pods/portforward", "secrets"], _READ),
    _rule("", _WRITABLE, _WRITE),
    _rule("", ["pods/eviction", "serviceaccounts/token"], ["create"]),
    _rule(_LEASES, ["leases"], [*_READ, *_WRITE]),
    _rule("", ["serviceaccounts"], ["impersonate"]),
    *_POOLS_WRITE["rules"],
]
_ADMIN: Rules = [
    *_EDIT,
    _rule(RBAC, ["rolebindings", "roles"], [*_READ, *_WRITE]),
    _rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
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
        _rule(
            "authorization.k8s.io",
            ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            ["create"],
        ),
        _rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
    ],
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _HEALTH, "verbs": ["get"]}],
    "system:auth-delegator": [
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
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
        meta = {"name": name, "labels": dict(_LABELS), "annotations": dict(_ANNOTATIONS)}
        yield CLUSTER_ROLES, {"metadata": meta, "rules": rules}
    for name, groups in _BINDINGS.items():
        meta = {"name": name, "labels": dict(_LABELS), "annotations": dict(_ANNOTATIONS)}
        subjects = [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        yield CLUSTER_ROLE_BINDINGS, {"metadata": meta, "roleRef": ref, "subjects": subjects}
