"""The rights of each component: its roles, and the bindings that give them to an account.

Each component has a file of roles in `deploy/roles` with exactly what it needs: one right too few and a component does
nothing, one too many and a stolen credential does more. A test runs the components, records what they request, and
compares.

`deploy/roles/interchange` holds further, optional roles for the same accounts, with which Tuist's own controller and
agent can run beside runyard's components or in place of them.

All hosts share one role; the admission policy in `deploy/admission` limits a host to its own Node and its own Pods. The
embedded API has the same policy built in.
"""

from collections.abc import Mapping, Sequence

from runyard.wire import manifests, names
from runyard.wire.manifests import Object

SERVER, OPERATOR, HOST = "server", "operator", "host"
COMPONENTS = (SERVER, OPERATOR, HOST)
INTERCHANGE_CONTROLLER, INTERCHANGE_AGENT = "interchange/controller", "interchange/agent"
SERVER_ACCOUNT = "tuist-runners-server"
_GROUP = "rbac.authorization.k8s.io"


def host_account(host: str) -> str:
    """The ServiceAccount of one host."""
    return f"{names.NODE_AGENT}-{host}"


def roles(component: str) -> tuple[Object, ...]:
    """The Roles and ClusterRoles of a component. Not to be changed."""
    return manifests.roles(component)


def user_roles() -> tuple[Object, ...]:
    """The rules for pools that a cluster adds to its roles `view`, `edit` and `admin`."""
    return manifests.roles("users")


def bindings(component: str, account: str) -> tuple[Object, ...]:
    """The bindings that give the roles of a component to a ServiceAccount."""
    optional = component in (INTERCHANGE_CONTROLLER, INTERCHANGE_AGENT)
    name = f"{account}-interchange" if optional else account
    return tuple(_binding(role, account, name) for role in roles(component))


def _binding(role: Object, account: str, name: str) -> Object:
    namespace = role["metadata"].get("namespace", "")
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    subject = {
        "kind": "ServiceAccount",
        "name": account,
        "namespace": names.CONTROLLER_NAMESPACE,
    }
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {
            "apiGroup": _GROUP,
            "kind": role["kind"],
            "name": role["metadata"]["name"],
        },
        "subjects": [subject],
    }


def pod_rights(namespace: str) -> tuple[Object, ...]:
    """The role of hosts whose Pods are in another namespace than the runners'."""
    return tuple(
        {**role, "metadata": {**role["metadata"], "namespace": namespace}}
        for role in roles(HOST)
        if role["metadata"].get("namespace") == names.RUNNERS_NAMESPACE
    )


def source_rights(
    namespace: str, secrets: Sequence[str], config_maps: Sequence[str]
) -> tuple[Object, ...]:
    """The role that lets hosts read exactly these Secrets and ConfigMaps, for the environment of their Pods."""
    rules = [
        {"apiGroups": [""], "resources": [kind], "resourceNames": sorted(named), "verbs": ["get"]}
        for kind, named in (("secrets", secrets), ("configmaps", config_maps))
        if named
    ]
    meta = {"name": "runyard-host-environment", "namespace": namespace}
    return ({"apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": meta, "rules": rules},)


def bound(roles: Sequence[Object], account: str) -> tuple[Object, ...]:
    """The bindings of further roles to an account."""
    return tuple(_binding(role, account, f"{account}-{role['metadata']['name']}") for role in roles)


def granted(holders: Mapping[str, str]) -> tuple[Object, ...]:
    """Every role and binding for these accounts; `holders` maps an account to its component."""
    components = dict.fromkeys(holders.values())
    found = [role for component in components for role in roles(component)]
    for account, component in holders.items():
        found += bindings(component, account)
    return tuple(found)
