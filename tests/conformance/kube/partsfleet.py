"""Agent, operator and server with a practice GitHub on somebody else's API, as in a cluster.

The parts are alone there: each runs as the same role as on one machine, with its own token, its shipped rights and no
others. Those who look on are an administrator, people at the practice GitHub, and a monitor that asks each part
whether it does its work.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from tests.conformance.kube import grounds
from tests.conformance.kube.grounds import Ground
from tests.conformance.kube.kit import Api, Json

from runyard.clock import RealClock
from runyard.embedded.up import images, practice
from runyard.embedded.up.boot import QUICK, Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import PODS, vm_home
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.people import People
from runyard.embedded.up.roles import agent, github, operator, server
from runyard.embedded.up.secrets import load_or_make
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.tls import write_pair
from runyard.vm.process.driver import ProcessDriver
from runyard.wire import names

HOST = "host-1"
PARTS = ("server", "operator", HOST)
_ROLES = {"github": github, "server": server, "operator": operator, HOST: agent}
_GROUP = f"{names.GROUP}/{names.VERSION}"


class Fleet:
    """The running parts, and those who look on."""

    def __init__(self, api: Api, people: People, doors: dict[str, HttpTransport]) -> None:
        self.api = api
        self.people = people
        self._doors = doors

    # ---- jobs

    async def queue(self, script: str, name: str) -> int:
        return await self.people.queue_job(
            practice.REPOSITORY, labels=(practice.LABEL,), script=script, name=name
        )

    async def finished(self, job: int, *, seconds: float = 90) -> str:
        """How a job ended."""

        async def look() -> str | None:
            found = await self.people.job(job)
            return found.conclusion if found.status == "completed" else None

        return await self.api.eventually(look, seconds=seconds)

    # ---- the pool

    @property
    def pool(self) -> str:
        return self.api.path(names.POOL_PLURAL, practice.POOL, group=_GROUP)

    async def pods(self) -> list[Json]:
        found: list[Json] = (await self.api.get(self.api.pods()))["items"]
        return found

    async def warm(self, *, image: str = practice.IMAGES[0], seconds: float = 90) -> list[str]:
        """The names of the pool's Pods once all of them run that image and nothing else is left."""

        async def look() -> list[str] | None:
            found = await self.pods()
            fine = [
                pod["metadata"]["name"]
                for pod in found
                if pod["spec"]["containers"][0]["image"] == image
                and pod["status"].get("phase") == "Running"
                and "deletionTimestamp" not in pod["metadata"]
            ]
            return fine if len(fine) == len(found) == PODS else None

        return await self.api.eventually(look, seconds=seconds)

    # ---- what a monitor sees

    async def readiness(self, part: str) -> tuple[int, Json]:
        """What a part answers when it is asked whether it does its work."""
        answer = await self._doors[part].send(Request(method="GET", path="/readyz"), timeout=10)
        assert isinstance(answer, Response)
        return answer.status, answer.json()

    async def metric(self, part: str, name: str) -> float:
        """The sum of a metric's series."""
        answer = await self._doors[part].send(Request(method="GET", path="/metrics"), timeout=10)
        assert isinstance(answer, Response)
        found = [line for line in answer.body.decode().splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def complaint(self, part: str, code: str, *, seconds: float = 90) -> str:
        """What that part says about a condition, once it says that it does not do its work for it."""

        async def look() -> str | None:
            status, told = await self.readiness(part)
            found = [item["message"] for item in told["conditions"] if item["code"] == code]
            # The server still serves: an outage must not take it from its runners.
            shown = status == (200 if part == "server" else 503) and not told["works"]
            return found[0] if shown and found else None

        return await self.api.eventually(look, seconds=seconds)

    async def content(self, part: str, *, seconds: float = 90) -> None:
        """Wait until that part says that it does its work."""

        async def look() -> bool | None:
            status, told = await self.readiness(part)
            return (status == 200 and told["works"]) or None

        await self.api.eventually(look, seconds=seconds)


@contextlib.asynccontextmanager
async def running(ground: Ground, root: Path, *, database: str) -> AsyncIterator[Fleet]:
    """A fleet of one host on that ground."""
    clock = RealClock()
    layout = Layout(root)
    layout.prepare()
    secrets = load_or_make(layout, random.Random(3))
    write_pair(layout.tls, "ca", ground.authority)  # the authority that the parts trust
    await asyncio.to_thread(images.lay_out, layout)
    transport = ground.transport()
    api = ground.api(transport)
    sockets = {name: _listening() for name in _ROLES}
    urls = {name: f"http://127.0.0.1:{sock.getsockname()[1]}" for name, sock in sockets.items()}
    doors = {name: HttpTransport(url) for name, url in urls.items()}
    try:
        await grounds.prepare(ground, transport, layout, PARTS)
        await _want(api)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, (name, role) in enumerate(_ROLES.items()):
                boot = Boot(
                    role="agent" if name == HOST else name,
                    name=name,
                    root=str(root),
                    kube_url=ground.url,
                    server_url=urls["server"],
                    github_url=urls["github"],
                    database=database if name == "server" else "",
                    # A role owns what it is given: it gets a descriptor of its own.
                    sockets=(("127.0.0.1", sockets[name].dup().detach()),),
                    pace=QUICK,
                )
                ready = asyncio.Event()
                context = Context(
                    boot=boot, clock=clock, rng=random.Random(number), ready=ready.set
                )
                tasks.append(group.create_task(role.run(context)))
                await ready.wait()
            fleet = Fleet(api, People(doors["github"], token=secrets.people_token), doors)
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
        for door in (*doors.values(), transport):
            await door.close()


async def _want(api: Api) -> None:
    """A pool that somebody wants, once the API serves the kind."""
    pool: Json = practice.pool(replicas=PODS, runtime=names.NODE_RUNTIME_PROCESS)
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
