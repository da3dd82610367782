"""The Kubernetes API that a fleet uses, real or embedded, and the administrator who prepares it.

On a real API server the administrator runs `runyard manifests | kubectl apply -f -`, as the documentation says, and
nothing else. A right can also be taken away from a component and given back.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import controlplane
import msgspec
from tests.conformance.kube import backends
from tests.conformance.kube.kit import Api, Json

from runyard.clock import RealClock
from runyard.embedded.kube.kubeconfig import render
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
from runyard.wire import names, rights

KUBECTL = Path(sys.executable).parent / "kubectl"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """One API server and its administrator."""

    url: str
    authority: Pair  # the authority that the components trust
    admin: str
    version: tuple[int, int, int]
    embedded: bool = False  # it has our kinds and the fence built in

    def transport(self) -> HttpTransport:
        return HttpTransport(self.url, tls=client_context(self.authority.certificate))

    def api(self, transport: HttpTransport) -> Api:
        return Api(transport, space=names.RUNNERS_NAMESPACE, token=self.admin, version=self.version)


def real(plane: controlplane.ControlPlane) -> Cluster:
    return Cluster(
        url=plane.url,
        authority=plane.authority,
        admin=controlplane.ADMIN,
        version=plane.version,
    )


@contextlib.asynccontextmanager
async def embedded(folder: Path, *, node_grace: float = 10.0) -> AsyncIterator[Cluster]:
    """The embedded API behind a socket, with its controllers."""
    core = backends.make_core(node_grace=node_grace)
    now = RealClock().now()
    authority = make_authority(now=now)
    files = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    listening = await listen(core.handle, tls=server_context(files))
    try:
        async with backends.ticking(core):
            yield Cluster(
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
    cluster: Cluster, transport: HttpTransport, layout: Layout, components: tuple[str, ...]
) -> None:
    """Installs what a cluster needs, and writes a token file for each component."""
    admin = Kube(transport, token=lambda: cluster.admin)
    if cluster.embedded:  # it has our kind, the RuntimeClasses, the namespaces and the fence
        await accounts.grant(admin, components)
    else:
        hosts = [name for name in components if name not in rights.COMPONENTS]
        flags = [word for host in hosts for word in ("--host", host)]
        config = layout.root / "admin.kubeconfig"
        config.write_text(
            render(cluster.url, token=cluster.admin, ca=cluster.authority.certificate)
        )
        await asyncio.to_thread(kubectl, config, "apply", "-f", "-", stdin=manifests(*flags))
    await accounts.renew(admin, layout, components)


def manifests(*flags: str) -> str:
    """The output of `runyard manifests`."""
    argv = [sys.executable, "-m", "runyard.cli.main", "manifests", *flags]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


def kubectl(config: Path, *argv: str, stdin: str = "", ends: int = 0) -> str:
    """Runs the real kubectl and returns its output; fails on another exit code than `ends`."""
    done = subprocess.run(
        [str(KUBECTL), f"--kubeconfig={config}", *argv],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == ends, done.stdout + done.stderr
    return done.stdout


class Right(msgspec.Struct, frozen=True):
    """One verb that a component may use on one resource."""

    component: str
    verb: str
    resource: str


async def remove_right(api: Api, right: Right) -> None:
    """Removes one right; fails if the component does not have it."""
    changed = 0
    for role in rights.roles(right.component):
        rules = [_without(rule, right) for rule in role["rules"]]
        if rules != role["rules"]:
            changed += 1
            kept = [rule for rule in rules if rule["verbs"]]
            await api.patch(_path(role), {"rules": kept})
    assert changed, f"{right} is not among the shipped rights"


async def restore_rights(api: Api, component: str) -> None:
    """Restores the shipped rights of a component."""
    for role in rights.roles(component):
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
