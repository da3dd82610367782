"""What a fleet stands on: somebody's Kubernetes API, real or embedded, with an administrator who prepares it.

The administrator installs what a chart would (namespaces, our kind, RuntimeClasses, the fence around hosts, roles and
accounts). He can also take one right away from a part and give it back.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import controlplane
import msgspec
from tests.conformance.kube import backends
from tests.conformance.kube.kit import Api, Json

from runyard.clock import RealClock
from runyard.embedded.up import accounts
from runyard.embedded.up.layout import Layout
from runyard.http.client import HttpTransport
from runyard.http.server import listen
from runyard.http.tls import (
    Pair,
    client_context,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)
from runyard.kube.client import Kube
from runyard.wire import names, rights, shipped

_COLLECTIONS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """One API server and its administrator."""

    url: str
    authority: Pair  # whom the parts trust to name the server
    admin: str
    version: tuple[int, int, int]
    embedded: bool = False  # which has our kinds and the fence built in

    def transport(self) -> HttpTransport:
        return HttpTransport(self.url, tls=client_context(self.authority.certificate))

    def api(self, transport: HttpTransport) -> Api:
        return Api(transport, space=names.RUNNERS_NAMESPACE, token=self.admin, version=self.version)


def real(plane: controlplane.ControlPlane) -> Ground:
    return Ground(
        url=plane.url,
        authority=plane.authority,
        admin=controlplane.ADMIN,
        version=plane.version,
    )


@contextlib.asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Ground]:
    """The embedded API behind a socket, with its controllers."""
    core = backends.make_core()
    now = RealClock().now()
    authority = make_authority(now=now)
    files = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    listening = await listen(core.handle, tls=server_context(files))
    try:
        async with backends.ticking(core):
            yield Ground(
                url=listening.url,
                authority=authority,
                admin=backends.ADMIN,
                version=backends.NEWEST,
                embedded=True,
            )
    finally:
        await listening.close()
    assert not core.failures


async def prepare(
    ground: Ground, transport: HttpTransport, layout: Layout, parts: tuple[str, ...]
) -> None:
    """What a chart installs, and a token for each part in a file of its own."""
    api = ground.api(transport)
    if not ground.embedded:
        for space in (names.CONTROLLER_NAMESPACE, names.RUNNERS_NAMESPACE):
            await api.create("/api/v1/namespaces", {"metadata": {"name": space}})
        for obj in (*shipped.definitions(), *shipped.runtime_classes(), *rights.fence()):
            await api.create(_COLLECTIONS[obj["kind"]], obj)
    admin = Kube(transport, token=lambda: ground.admin)
    await accounts.grant(admin, parts)
    await accounts.renew(admin, layout, parts)


class Right(msgspec.Struct, frozen=True):
    """One thing that a part may do."""

    part: str
    verb: str
    resource: str


async def take(api: Api, right: Right) -> None:
    """Take one right away; the part must have had it."""
    changed = 0
    for role in rights.roles(right.part):
        rules = [_without(rule, right) for rule in role["rules"]]
        if rules != role["rules"]:
            changed += 1
            kept = [rule for rule in rules if rule["verbs"]]
            await api.patch(_path(role), {"rules": kept})
    assert changed, f"{right} is not among the shipped rights"


async def give_back(api: Api, part: str) -> None:
    """Let a part have its shipped rights again."""
    for role in rights.roles(part):
        await api.patch(_path(role), {"rules": role["rules"]})


def _without(rule: Json, right: Right) -> Json:
    if right.resource not in rule["resources"]:
        return rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != right.verb]}


def _path(role: dict[str, Any]) -> str:
    meta = role["metadata"]
    if role["kind"] == "ClusterRole":
        return f"{_RBAC}/clusterroles/{meta['name']}"
    return f"{_RBAC}/namespaces/{meta['namespace']}/roles/{meta['name']}"
