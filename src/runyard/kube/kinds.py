"""The Kubernetes kinds that runyard uses, and their API paths.

Only a `Kind` turns names into paths. Names are untrusted (a guest sends its Pod's name), so a name that would change
the path is refused here, and so is a missing one: a DELETE on a path without its last segment deletes the whole
collection.
"""

import msgspec

from runyard.kube.errors import Invalid
from runyard.wire import names


class Kind(msgspec.Struct, frozen=True):
    """One resource of the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of one object, or of a subresource of it.

        A namespaced kind without a namespace means "in all namespaces", which has no single objects:
        requesting one raises `Invalid`, and so does a segment that is not a plain name.
        """
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", _segment(namespace)]
        elif self.namespaced and name:
            raise Invalid(422, "Invalid", f"{self.kind} {name!r} needs a namespace")
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            if not name:
                raise Invalid(422, "Invalid", f"{self.plural}/{subresource} needs a name")
            parts.append(subresource)
        return "/".join(parts)

    def object_path(self, name: str, *, namespace: str = "", subresource: str = "") -> str:
        """The path of exactly one object: never that of a collection."""
        if not name:
            raise Invalid(422, "Invalid", f"a {self.kind} without a name")
        return self.path(namespace, name, subresource)

    def collection_path(self, namespace: str = "") -> str:
        """The path to create an object at: a namespaced kind needs its namespace."""
        if self.namespaced and not namespace:
            raise Invalid(422, "Invalid", f"a {self.kind} without a namespace")
        return self.path(namespace)


def _segment(text: str) -> str:
    if text in {".", ".."} or any(char in "/%?#\\" or char <= " " for char in text):
        raise Invalid(422, "Invalid", f"not a name: {text[:80]!r}")
    return text


PODS = Kind("", "v1", "pods", "Pod", namespaced=True)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
EVENTS = Kind("", "v1", "events", "Event", namespaced=True)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Kind("", "v1", "secrets", "Secret", namespaced=True)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_ACCESS_REVIEWS = Kind(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_RBAC = "rbac.authorization.k8s.io"
ROLES = Kind(_RBAC, "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = Kind(_RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True)
CLUSTER_ROLES = Kind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Kind(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
RUNNER_POOLS = Kind(names.GROUP, names.VERSION, names.POOL_PLURAL, names.POOL_KIND, namespaced=True)
