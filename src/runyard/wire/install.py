"""Composes the objects that a cluster needs before a component can run in it.

`runyard manifests` prints them, and the tests prepare a real API server with them. They are the files of `deploy/`,
plus what depends on names: namespaces, ServiceAccounts and bindings.

Invariants:
- Each component's objects are complete: applied alone, they name no namespace, role or account that is missing.
- The order is the order of applying, and the same arguments give the same objects.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from runyard.wire import manifests, names, rights
from runyard.wire.manifests import Object, Objects

CRD, SERVER, OPERATOR, AGENT = "crd", "server", "operator", "agent"
INTERCHANGE = "interchange"
COMPONENTS = (CRD, SERVER, OPERATOR, AGENT)
OPTIONAL = (INTERCHANGE,)

_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "RuntimeClass",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_USER = "system:serviceaccount:"


class Elsewhere(msgspec.Struct, frozen=True):
    """What hosts may do for Pods that are no runners."""

    namespaces: tuple[str, ...] = ()  # where such Pods are, beside the runners' namespace
    secrets: tuple[tuple[str, str], ...] = ()  # namespace and name: their environment needs them
    config_maps: tuple[tuple[str, str], ...] = ()


def objects(
    components: Sequence[str] = COMPONENTS,
    *,
    hosts: Sequence[str] = (),
    namespace: str = names.RUNNERS_NAMESPACE,
    controller_namespace: str = names.CONTROLLER_NAMESPACE,
    elsewhere: Elsewhere | None = None,
) -> Objects:
    """The objects that these components need, in the order of applying; each of `hosts` gets an account.

    `namespace` holds pools and runner Pods, `controller_namespace` the accounts of the components. `elsewhere` is what
    hosts may do for Pods that are no runners; it is not renamed.
    """
    found: list[Object] = []
    for component in (*COMPONENTS, *OPTIONAL):
        if component in components:
            found += [obj for obj in _needed(component, hosts) if obj not in found]
    spaces = {
        names.RUNNERS_NAMESPACE: namespace,
        names.CONTROLLER_NAMESPACE: controller_namespace,
    }
    placed = [_placed(obj, spaces) for obj in found]
    if elsewhere is not None:
        placed += _elsewhere(elsewhere, hosts, controller_namespace)
    return tuple(sorted(placed, key=lambda obj: _ORDER.index(obj["kind"])))


def _elsewhere(allowed: Elsewhere, hosts: Sequence[str], accounts: str) -> Iterator[Object]:
    """The roles in other namespaces, and their bindings to each host's account."""
    found = [role for space in allowed.namespaces for role in rights.pod_rights(space)]
    sources = (*allowed.secrets, *allowed.config_maps)
    for space in dict.fromkeys(space for space, _ in sources):
        secrets, config_maps = (
            [name for own, name in named if own == space]
            for named in (allowed.secrets, allowed.config_maps)
        )
        found += rights.source_rights(space, secrets, config_maps)
    yield from found
    for host in hosts:
        for binding in rights.bound(found, rights.host_account(host)):
            (subject,) = binding["subjects"]
            yield {**binding, "subjects": [{**subject, "namespace": accounts}]}


def _needed(component: str, hosts: Sequence[str]) -> Iterator[Object]:
    if component == CRD:
        yield from (*manifests.definitions(), *rights.user_roles())
        return
    for space in (names.CONTROLLER_NAMESPACE, names.RUNNERS_NAMESPACE):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    if component == AGENT:
        yield from (*manifests.runtime_classes(), *rights.roles(rights.HOST))
        yield from manifests.admission()
        for host in hosts:
            yield from _account(rights.HOST, rights.host_account(host))
    elif component == INTERCHANGE:
        yield from (
            *rights.roles(rights.INTERCHANGE_CONTROLLER),
            *rights.roles(rights.INTERCHANGE_AGENT),
        )
        yield from _account(rights.INTERCHANGE_CONTROLLER, names.CONTROLLER_ACCOUNT)
        for host in hosts:
            yield from _account(rights.INTERCHANGE_AGENT, rights.host_account(host))
    else:
        server = component == SERVER
        yield from rights.roles(component)
        account = rights.SERVER_ACCOUNT if server else names.CONTROLLER_ACCOUNT
        yield from _account(component, account)


def _account(role: str, account: str) -> Iterator[Object]:
    meta = {"name": account, "namespace": names.CONTROLLER_NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    yield from rights.bindings(role, account)


def _placed(obj: Object, spaces: dict[str, str]) -> Object:
    """The object with its namespaces replaced, also where a policy names an account's user."""
    placed: Object = _renamed(obj, spaces)
    if obj["kind"] == "Namespace":
        name = obj["metadata"]["name"]
        placed["metadata"] = {"name": spaces[name]}
    return placed


def _renamed(value: Any, spaces: dict[str, str]) -> Any:
    match value:
        case dict():
            return {
                key: spaces.get(item, item)
                if key == "namespace" and isinstance(item, str)
                else _renamed(item, spaces)
                for key, item in value.items()
            }
        case list():
            return [_renamed(item, spaces) for item in value]
        case str() if _USER in value:
            ours = names.CONTROLLER_NAMESPACE
            return value.replace(f"{_USER}{ours}:", f"{_USER}{spaces[ours]}:")
    return value
