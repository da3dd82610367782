"""The rights of our parts, as the files that a chart ships them as, and the accounts that hold them.

Each part has a file of roles with exactly what it needs: one right too few and a worker does nothing, one too many
and a stolen credential does more. A test runs the parts, records what they ask for, and compares.

A host's roles are shared by all hosts; what keeps a host to its own Node and its own Pods is the admission policy in
`roles/fence.yaml`, which the embedded API has built in.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from runyard.wire import names

SERVER, OPERATOR, HOST = "server", "operator", "host"
PARTS = (SERVER, OPERATOR, HOST)
SERVER_ACCOUNT = "tuist-runners-server"
_FOLDER = "roles"
_GROUP = "rbac.authorization.k8s.io"

Object = dict[str, Any]


def host_account(host: str) -> str:
    """The ServiceAccount of one host."""
    return f"{names.NODE_AGENT}-{host}"


@lru_cache(maxsize=8)
def roles(part: str) -> tuple[Object, ...]:
    """The Roles and ClusterRoles of a part. Not to be changed."""
    return _read(part)


def people() -> tuple[Object, ...]:
    """What the usual roles of people may do with pools."""
    return _read("people")


def _read(name: str) -> tuple[Object, ...]:
    text = files("runyard.wire").joinpath(_FOLDER, f"{name}.yaml").read_text("utf-8")
    return tuple(yaml.safe_load_all(text))


def bindings(part: str, account: str) -> tuple[Object, ...]:
    """What gives the roles of a part to an account of ours."""
    return tuple(_binding(role, account) for role in roles(part))


def _binding(role: Object, account: str) -> Object:
    namespace = role["metadata"].get("namespace", "")
    meta = {"name": account, "namespace": namespace} if namespace else {"name": account}
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


def granted(holders: Mapping[str, str]) -> tuple[Object, ...]:
    """Every role and binding for these accounts, each with the part that it speaks for."""
    parts = dict.fromkeys(holders.values())
    found = [role for part in parts for role in roles(part)]
    for account, part in holders.items():
        found += bindings(part, account)
    return tuple(found)


def fence() -> tuple[Object, ...]:
    """The admission policy around hosts, and its binding."""
    return _read("fence")
