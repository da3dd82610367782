"""Agent, operator and server with a practice GitHub on somebody else's control plane, as in a cluster.

An administrator installs what a chart would (namespaces, our kind, RuntimeClasses, roles, accounts, the fence
around hosts) and hands each part its own token in a file. From then on the parts are alone: each runs as the same
role as on one machine, with its shipped rights and no others.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import controlplane
from tests.conformance.kube.kit import Api, Json

from runyard.clock import RealClock
from runyard.embedded.up import accounts, images, practice
from runyard.embedded.up.boot import QUICK, Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import PODS, vm_home
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.people import People
from runyard.embedded.up.roles import agent, github, operator, server
from runyard.embedded.up.secrets import load_or_make
from runyard.http.client import HttpTransport
from runyard.http.tls import write_pair
from runyard.kube.client import Kube
from runyard.vm.process.driver import ProcessDriver
from runyard.wire import names, rights, shipped

HOST = "host-1"
PARTS = ("server", "operator", HOST)
_ROLES = {"github": github, "server": server, "operator": operator, "agent": agent}
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


class Fleet:
    """The running parts, and two who look on: an administrator, and people at the practice GitHub."""

    def __init__(self, api: Api, people: People) -> None:
        self.api = api
        self.people = people

    async def finished(self, job: int, *, seconds: float = 90) -> str:
        """How a job ended."""

        async def look() -> str | None:
            found = await self.people.job(job)
            return found.conclusion if found.status == "completed" else None

        return await self.api.eventually(look, seconds=seconds)

    async def queue(self, script: str, name: str) -> int:
        return await self.people.queue_job(
            practice.REPOSITORY, labels=(practice.LABEL,), script=script, name=name
        )


@contextlib.asynccontextmanager
async def running(
    plane: controlplane.ControlPlane, root: Path, *, database: str
) -> AsyncIterator[Fleet]:
    """A fleet of one host on that control plane."""
    clock = RealClock()
    layout = Layout(root)
    layout.prepare()
    secrets = load_or_make(layout, random.Random(3))
    write_pair(layout.tls, "ca", plane.authority)  # the authority that the parts trust
    await asyncio.to_thread(images.lay_out, layout)
    transport = HttpTransport(plane.url, tls=plane.tls())
    api = Api(
        transport, space=names.RUNNERS_NAMESPACE, token=controlplane.ADMIN, version=plane.version
    )
    sockets = {name: _listening() for name in ("server", "github")}
    urls = {name: f"http://127.0.0.1:{sock.getsockname()[1]}" for name, sock in sockets.items()}
    people = HttpTransport(urls["github"])
    try:
        await install(api, transport, layout)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for role, name in (*((role, role) for role in list(_ROLES)[:3]), ("agent", HOST)):
                boot = Boot(
                    role=role,
                    name=name,
                    root=str(root),
                    kube_url=plane.url,
                    server_url=urls["server"],
                    github_url=urls["github"],
                    database=database if role == "server" else "",
                    sockets=_descriptors(sockets.get(role)),
                    pace=QUICK,
                )
                ready = asyncio.Event()
                context = Context(
                    boot=boot, clock=clock, rng=random.Random(len(tasks)), ready=ready.set
                )
                tasks.append(group.create_task(_ROLES[role].run(context)))
                await ready.wait()
            fleet = Fleet(api, People(people, token=secrets.people_token))
            await fleet.people.install(practice.ACCOUNT, practice.REPOSITORY)
            try:
                yield fleet
            finally:
                for task in tasks:
                    task.cancel()
    finally:
        driver = ProcessDriver(vm_home(layout, HOST), image_source=layout.images, clock=clock)
        await driver.stop_all(grace=2.0)
        for sock in sockets.values():
            sock.close()
        await people.close()
        await transport.close()


async def install(api: Api, transport: HttpTransport, layout: Layout) -> None:
    """What a chart installs, and a pool that somebody wants."""
    for space in (names.CONTROLLER_NAMESPACE, names.RUNNERS_NAMESPACE):
        await api.create("/api/v1/namespaces", {"metadata": {"name": space}})
    for obj in (*shipped.definitions(), *shipped.runtime_classes(), *rights.fence()):
        await api.create(_COLLECTIONS[obj["kind"]], obj)
    admin = Kube(transport, token=lambda: controlplane.ADMIN)
    await accounts.grant(admin, PARTS)
    await accounts.renew(admin, layout, PARTS)
    pool: Json = practice.pool(replicas=PODS, runtime=names.NODE_RUNTIME_PROCESS)
    group = f"{names.GROUP}/{names.VERSION}"
    path = api.path(names.POOL_PLURAL, group=group)

    async def served() -> bool | None:
        return (await api.call("POST", path, pool | _typed(group))).status in (201, 409) or None

    await api.eventually(served)


def _typed(group: str) -> Json:
    return {"apiVersion": group, "kind": names.POOL_KIND}


def _listening() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(512)
    return sock


def _descriptors(sock: socket.socket | None) -> tuple[tuple[str, int], ...]:
    """A role owns what it is given: it gets a descriptor of its own."""
    return () if sock is None else (("127.0.0.1", sock.dup().detach()),)
