"""Runs agent, operator, server and a practice GitHub against a Kubernetes API that `runyard up` does not own.

Each component runs in the same role as on one machine, with its own token and only its shipped rights. A test
observes them as an administrator of the API, as a user of the practice GitHub, and through their health endpoints.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from tests.conformance.kube import clusters
from tests.conformance.kube.clusters import Cluster
from tests.conformance.kube.kit import Api, Json

from runyard.clock import RealClock
from runyard.embedded.up import images, practice
from runyard.embedded.up.boot import QUICK, Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import PODS
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.machine import stop_vms
from runyard.embedded.up.practice_client import PracticeClient
from runyard.embedded.up.roles import agent, github, operator, server
from runyard.embedded.up.secrets import load_or_make
from runyard.embedded.up.token_files import ensure_token
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.tls import write_pair
from runyard.wire import names

HOST = "host-1"
COMPONENTS = ("server", "operator", HOST)
_ROLES = {"github": github, "server": server, "operator": operator, HOST: agent}
_GROUP = f"{names.GROUP}/{names.VERSION}"


class Fleet:
    """The running components, and clients to observe them."""

    def __init__(
        self, api: Api, github: PracticeClient, transports: dict[str, HttpTransport], *, token: str
    ) -> None:
        self.api = api
        self.github = github
        self._transports = transports
        self._bearer = (("authorization", f"Bearer {token}"),)

    # ---- jobs

    async def queue(self, script: str, name: str) -> int:
        return await self.github.queue_job(
            practice.REPOSITORY, labels=(practice.LABEL,), script=script, name=name
        )

    async def finished(self, job: int, *, seconds: float = 90) -> str:
        """Waits for a job's end and returns its conclusion."""

        async def check() -> str | None:
            found = await self.github.job(job)
            return found.conclusion if found.status == "completed" else None

        return await self.api.eventually(check, seconds=seconds)

    # ---- the pool

    @property
    def pool(self) -> str:
        return self.api.path(names.POOL_PLURAL, practice.POOL, group=_GROUP)

    async def pods(self) -> list[Json]:
        found: list[Json] = (await self.api.get(self.api.pods()))["items"]
        return found

    async def warm(self, *, image: str = practice.IMAGES[0], seconds: float = 90) -> list[str]:
        """Waits until exactly the pool's Pods exist and run that image; returns their names."""

        async def check() -> list[str] | None:
            found = await self.pods()
            fine = [
                pod["metadata"]["name"]
                for pod in found
                if pod["spec"]["containers"][0]["image"] == image
                and pod["status"].get("phase") == "Running"
                and "deletionTimestamp" not in pod["metadata"]
            ]
            return fine if len(fine) == len(found) == PODS else None

        return await self.api.eventually(check, seconds=seconds)

    # ---- health and metrics

    async def readiness(self, component: str) -> tuple[int, Json]:
        """The status and body of a component's `/readyz`."""
        answer = await self._transports[component].send(
            Request(method="GET", path="/readyz", headers=self._bearer), timeout=10
        )
        assert isinstance(answer, Response)
        return answer.status, answer.json()

    async def metric(self, component: str, name: str) -> float:
        """The sum of a metric's series."""
        answer = await self._transports[component].send(
            Request(method="GET", path="/metrics"), timeout=10
        )
        assert isinstance(answer, Response)
        found = [line for line in answer.body.decode().splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def condition(self, component: str, code: str, *, seconds: float = 90) -> str:
        """Waits until a component reports that condition as not working; returns the message."""

        async def check() -> str | None:
            status, body = await self.readiness(component)
            found = [item["message"] for item in body["conditions"] if item["code"] == code]
            # The server stays ready: runners must reach it during an outage.
            shown = status == (200 if component == "server" else 503) and not body["works"]
            return found[0] if shown and found else None

        return await self.api.eventually(check, seconds=seconds)

    async def until_working(self, component: str, *, seconds: float = 90) -> None:
        """Waits until a component reports that it works."""

        async def check() -> bool | None:
            status, body = await self.readiness(component)
            return (status == 200 and body["works"]) or None

        await self.api.eventually(check, seconds=seconds)


@contextlib.asynccontextmanager
async def running(cluster: Cluster, root: Path, *, database: str) -> AsyncIterator[Fleet]:
    """Runs a fleet with one host on that cluster."""
    clock = RealClock()
    layout = Layout(root)
    layout.prepare()
    secrets = load_or_make(layout, random.Random(3))
    token = ensure_token(layout.dashboard_token, random.Random(4))
    ensure_token(layout.metrics_token, random.Random(5))
    write_pair(layout.tls, "ca", cluster.authority)  # the authority that the components trust
    await asyncio.to_thread(images.build, layout)
    transport = cluster.transport()
    api = cluster.api(transport)
    sockets = {name: _listening() for name in _ROLES}
    urls = {name: f"http://127.0.0.1:{sock.getsockname()[1]}" for name, sock in sockets.items()}
    transports = {name: HttpTransport(url) for name, url in urls.items()}
    try:
        await clusters.prepare(cluster, transport, layout, COMPONENTS)
        await _create_pool(api)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, (name, role) in enumerate(_ROLES.items()):
                boot = Boot(
                    role="agent" if name == HOST else name,
                    name=name,
                    root=str(root),
                    kube_url=cluster.url,
                    server_url=urls["server"],
                    github_url=urls["github"],
                    database=database if name == "server" else "",
                    # The role closes its socket, so it gets a duplicate.
                    sockets=(("127.0.0.1", sockets[name].dup().detach()),),
                    pace=QUICK,
                )
                ready = asyncio.Event()
                context = Context(
                    boot=boot, clock=clock, rng=random.Random(number), ready=ready.set
                )
                tasks.append(group.create_task(role.run(context)))
                await ready.wait()
            fleet = Fleet(
                api,
                PracticeClient(transports["github"], token=secrets.practice_token),
                transports,
                token=token,
            )
            await fleet.github.install(practice.ACCOUNT, practice.REPOSITORY)
            try:
                yield fleet
            finally:
                for task in tasks:
                    task.cancel()
    finally:
        await stop_vms(layout, clock=clock, grace=2.0)
        for sock in sockets.values():
            sock.close()
        for transport_of in (*transports.values(), transport):
            await transport_of.close()


async def _create_pool(api: Api) -> None:
    """Creates a pool, once the API serves the kind."""
    pool: Json = practice.pool(replicas=PODS)
    body = pool | {"apiVersion": _GROUP, "kind": names.POOL_KIND}

    async def served() -> bool | None:
        path = api.path(names.POOL_PLURAL, group=_GROUP)
        return (await api.call("POST", path, body)).status in (201, 409) or None

    await api.eventually(served)


def _listening() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(512)
    return sock
