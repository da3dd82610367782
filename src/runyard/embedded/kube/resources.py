"""Lists the kinds that the embedded API serves, and the known ones that it answers with 501.

A `Resource` is one row: its path, its subresources, how its status is written, and the fields for
field selectors. All generic code in this package is driven by these rows.

The rows here are the built-in kinds. Rows of custom resources are derived from CustomResourceDefinitions while the
server runs (`crd`); the `Catalogue` of a store has both, so use it to look up served kinds.
"""

from typing import Any

import msgspec

Object = dict[str, Any]

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
RBAC = "rbac.authorization.k8s.io"

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")


class Resource(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One served kind."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    status_on_create: bool = True  # False: a create ignores its status
    has_generation: bool = False  # metadata.generation counts changes of spec
    custom: bool = False  # a custom resource: defined by a CustomResourceDefinition
    stored: bool = True  # False: a review, nothing is stored
    fields: tuple[str, ...] = _COMMON_FIELDS
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""  # empty: the kind in lower case
    list_kind: str = ""  # empty: the kind and List
    key: str = ""  # names the table, here and in the journal; empty: the plural
    definition: Any = None  # of a custom resource: `crd.definition.Definition`, its compiled schema

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __post_init__(self) -> None:
        for field, value in (
            ("key", self.plural),
            ("singular", self.kind.lower()),
            ("list_kind", f"{self.kind}List"),
        ):
            if not getattr(self, field):
                msgspec.structs.force_setattr(self, field, value)

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
    subresources=("status", "binding", "eviction", "log", "exec", "attach", "portforward"),
    status_on_create=False,
    has_generation=True,
    fields=(
        *_COMMON_FIELDS,
        "spec.nodeName",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    short=("po",),
    categories=("all",),
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
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reportingComponent",
        "reason",
        "type",
    ),
    short=("ev",),
)
LEASES = Resource(plural="leases", kind="Lease", group="coordination.k8s.io")
SECRETS = Resource(plural="secrets", kind="Secret", fields=(*_COMMON_FIELDS, "type"))
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short=("cm",))
RUNTIME_CLASSES = Resource(
    plural="runtimeclasses", kind="RuntimeClass", group="node.k8s.io", namespaced=False
)
ROLES = Resource(plural="roles", kind="Role", group=RBAC)
ROLE_BINDINGS = Resource(plural="rolebindings", kind="RoleBinding", group=RBAC)
CLUSTER_ROLES = Resource(plural="clusterroles", kind="ClusterRole", group=RBAC, namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    plural="clusterrolebindings", kind="ClusterRoleBinding", group=RBAC, namespaced=False
)
DEFINITIONS = Resource(
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    group="apiextensions.k8s.io",
    namespaced=False,
    subresources=("status",),
    status_on_create=False,
    has_generation=True,
    short=("crd", "crds"),
    categories=("api-extensions",),
    fields=("metadata.name",),
)
CERTIFICATE_REQUESTS = Resource(
    plural="certificatesigningrequests",
    kind="CertificateSigningRequest",
    group="certificates.k8s.io",
    namespaced=False,
    subresources=("approval", "status"),
    status_on_create=False,
    fields=("metadata.name", "spec.signerName"),
    short=("csr",),
)


def _review(group: str, plural: str, kind: str) -> Resource:
    return Resource(plural=plural, kind=kind, group=group, namespaced=False, stored=False)


TOKEN_REVIEWS = _review(AUTHENTICATION, "tokenreviews", "TokenReview")
SELF_REVIEWS = _review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview")
ACCESS_REVIEWS = _review(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview")
SELF_ACCESS_REVIEWS = _review(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview")
SELF_RULES_REVIEWS = _review(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview")

BUILT_IN = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    EVENTS,
    LEASES,
    SECRETS,
    CONFIG_MAPS,
    TOKEN_REVIEWS,
    SELF_REVIEWS,
    ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_RULES_REVIEWS,
    CERTIFICATE_REQUESTS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    RUNTIME_CLASSES,
    DEFINITIONS,
)
# Subresources of Pods that the node serves: proxied.
NODE_SUBRESOURCES = ("log", "exec", "attach", "portforward")

# APIs of Kubernetes that a client may expect: answered with 501 and the reason, not 404. Limits and quotas are not
# among them: `kubectl describe namespace` requests both, and continues only after a 404.
UNSERVED_CORE = (
    "bindings",
    "componentstatuses",
    "endpoints",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "replicationcontrollers",
    "services",
)
UNSERVED_GROUPS = (
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "policy",
    "scheduling.k8s.io",
    "storage.k8s.io",
)
UNSERVED_SUBRESOURCES = {
    "pods": ("ephemeralcontainers", "proxy", "resize"),
    "nodes": ("proxy",),
    "namespaces": ("finalize",),
}
