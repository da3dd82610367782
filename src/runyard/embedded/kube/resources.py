"""The kinds that the embedded API serves, and the ones it knows of and refuses.

A `Resource` is one row: where it lives, which subresources it has, how its status is treated, and
which fields a field selector may name. Everything generic in this package is driven by these rows.
"""

from typing import Any

import msgspec

from runyard.wire import names

Object = dict[str, Any]

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")


class Resource(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One served kind."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    status_on_create: bool = True  # False: a create ignores what it says about status
    counted: bool = False  # metadata.generation counts changes of spec
    custom: bool = False  # a custom resource: lists inside are atomic for apply
    stored: bool = True  # False: only answers questions, nothing is kept
    fields: tuple[str, ...] = _COMMON_FIELDS
    short: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource only."""
        return "status" in self.subresources


NAMESPACES = Resource(
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    subresources=("status",),
    status_on_create=False,
    fields=("metadata.name", "status.phase"),
    short=("ns",),
)
NODES = Resource(
    plural="nodes",
    kind="Node",
    namespaced=False,
    subresources=("status",),
    fields=("metadata.name", "spec.unschedulable"),
    short=("no",),
)
PODS = Resource(
    plural="pods",
    kind="Pod",
    subresources=("status", "binding"),
    status_on_create=False,
    counted=True,
    fields=(
        *_COMMON_FIELDS,
        "spec.nodeName",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "status.phase",
        "status.podIP",
    ),
    short=("po",),
)
SERVICE_ACCOUNTS = Resource(
    plural="serviceaccounts", kind="ServiceAccount", subresources=("token",), short=("sa",)
)
EVENTS = Resource(
    plural="events",
    kind="Event",
    fields=(
        *_COMMON_FIELDS,
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    short=("ev",),
)
LEASES = Resource(plural="leases", kind="Lease", group="coordination.k8s.io")
RUNNER_POOLS = Resource(
    plural=names.POOL_PLURAL,
    kind=names.POOL_KIND,
    group=names.GROUP,
    version=names.VERSION,
    subresources=("status",),
    status_on_create=False,
    counted=True,
    custom=True,
    short=("rpool",),
)
SECRETS = Resource(plural="secrets", kind="Secret", fields=(*_COMMON_FIELDS, "type"))
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short=("cm",))
TOKEN_REVIEWS = Resource(
    plural="tokenreviews",
    kind="TokenReview",
    group="authentication.k8s.io",
    namespaced=False,
    stored=False,
)

ALL = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    EVENTS,
    LEASES,
    RUNNER_POOLS,
    SECRETS,
    CONFIG_MAPS,
    TOKEN_REVIEWS,
)
STORED = tuple(resource for resource in ALL if resource.stored)
BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in ALL}
BY_KIND = {(resource.api_version, resource.kind): resource for resource in STORED}
GROUPS = tuple(dict.fromkeys((resource.group, resource.version) for resource in ALL))

# Parts of Kubernetes that a client may ask for in good faith: told 501 and why, not 404.
UNSERVED_CORE = (
    "bindings",
    "componentstatuses",
    "endpoints",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "services",
)
UNSERVED_GROUPS = (
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
)
UNSERVED_SUBRESOURCES = {
    "pods": (
        "attach",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "log",
        "portforward",
        "proxy",
        "resize",
    ),
    "nodes": ("proxy",),
    "namespaces": ("finalize",),
}
