"""Kill -9 at any moment: what was acknowledged is there afterwards, and what was not is whole or absent.

A real process serves the API over HTTP. Writers create, change and delete concurrently; a watcher reads the events.
After a number of acknowledgements that the seed picks the process is killed, whatever it is doing. The next
one is then compared with the record of what was sent and what was acknowledged.

A namespace is created and removed with its contents in one step of the server, so partial steps are detected.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.embedded.kube_http import killable_server
from tests.tiers import pick, sample

from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream

MAPS = "/api/v1/namespaces/default/configmaps"
SPACES = "/api/v1/namespaces"
MERGE = (("content-type", "application/merge-patch+json"),)
WRITERS = 4


class Entry:
    """The expected state of one object."""

    def __init__(self) -> None:
        self.uid = ""  # set by the acknowledged create
        self.sent = 0  # the last number that was sent
        self.acknowledged = 0
        self.delete_sent = False  # a delete was sent
        self.gone = False  # a delete was acknowledged


class Killed(Exception):
    """No response: the server was killed."""


class ServerRun:
    """The writers and the watcher of one server process."""

    def __init__(self, fleet: "KillableServers", rng: random.Random, pid: int) -> None:
        self.fleet = fleet
        self.rng = rng
        self.pid = pid
        self.left = rng.randint(1, 30)  # acknowledgements until the kill
        self.turns = rng.randint(0, 30)  # and turns of this process's loop after them
        self.dead = False
        self.version = 0  # the highest version in any response

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        if self.dead:
            raise Killed
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = MERGE if method == "PATCH" else ()
        request = Request(method=method, path=path, headers=headers, body=raw)
        try:
            answer = await self.fleet.transport.send(request, timeout=60)
        except TransportError as error:
            raise Killed from error
        assert isinstance(answer, Response) and answer.status in (200, 201), answer
        await self.acknowledged()
        found: dict[str, Any] = answer.json()
        return found

    async def acknowledged(self) -> None:
        self.left -= 1
        if self.left == 0:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            self.dead = True
            os.kill(self.pid, signal.SIGKILL)

    async def write(self, writer: int) -> None:
        """Creates, changes and deletes until the server is killed."""
        mine: list[str] = []
        try:
            for number in range(10_000):
                dice = self.rng.random()
                if dice < 0.2:
                    await self.space(f"s-{self.fleet.round}-{writer}-{number}")
                elif dice < 0.5 or not mine:
                    name = f"m-{self.fleet.round}-{writer}-{number}"
                    await self.create(name)
                    mine.append(name)
                elif dice < 0.8:
                    await self.change(self.rng.choice(mine))
                else:
                    await self.delete(mine.pop(self.rng.randrange(len(mine))))
        except Killed:
            return

    async def create(self, name: str) -> None:
        entry = self.fleet.maps[name] = Entry()
        made = await self.call("POST", MAPS, {"metadata": {"name": name}, "data": {"n": "0"}})
        entry.uid = made["metadata"]["uid"]

    async def change(self, name: str) -> None:
        entry = self.fleet.maps[name]
        entry.sent += 1
        number = entry.sent
        await self.call("PATCH", f"{MAPS}/{name}", {"data": {"n": str(number)}})
        entry.acknowledged = number

    async def delete(self, name: str) -> None:
        entry = self.fleet.maps[name]
        entry.delete_sent = True
        await self.call("DELETE", f"{MAPS}/{name}")
        entry.gone = True

    async def space(self, name: str) -> None:
        """A namespace with contents, which all go in one step when it does."""
        entry = self.fleet.spaces[name] = Entry()
        entry.uid = (await self.call("POST", SPACES, {"metadata": {"name": name}}))["metadata"][
            "uid"
        ]
        for _ in range(self.rng.randint(0, 3)):
            entry.sent += 1
            body = {"metadata": {"name": f"c{entry.sent}"}}
            await self.call("POST", f"{SPACES}/{name}/configmaps", body)
            entry.acknowledged = entry.sent
        if self.rng.random() < 0.7:
            entry.delete_sent = True
            await self.call("DELETE", f"{SPACES}/{name}")
            entry.gone = True

    async def watch(self) -> None:
        """Records what a watcher gets: it must exist after the kill as well."""
        query = (("watch", "true"),)
        request = Request(method="GET", path="/api/v1/configmaps", query=query)
        try:
            stream = await self.fleet.transport.send(request, timeout=60)
            assert isinstance(stream, Stream)
            try:
                await self.read(stream)
            finally:
                await stream.aclose()
        except TransportError:
            return

    async def read(self, stream: Stream) -> None:
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = msgspec.json.decode(line)
                meta = event["object"]["metadata"]
                self.version = max(self.version, int(meta["resourceVersion"]))
                number = int(event["object"].get("data", {}).get("n", 0))
                if meta["name"] in self.fleet.maps and event["type"] != "DELETED":
                    shown = self.fleet.shown.get(meta["name"], 0)
                    self.fleet.shown[meta["name"]] = max(shown, number)


class KillableServers:
    """One data directory and one port for servers that run one after the other."""

    def __init__(self, program: asyncio.subprocess.Process, port: int) -> None:
        self.program = program
        self.transport = HttpTransport(f"http://127.0.0.1:{port}")
        self.round = 0
        self.version = 0
        self.maps: dict[str, Entry] = {}
        self.spaces: dict[str, Entry] = {}
        self.shown: dict[str, int] = {}  # the highest number of each map that the watcher saw
        self.seen = 0  # how many acknowledged writes were checked

    async def start(self) -> int:
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(b"\n")
        return int(await self.program.stdout.readline())

    async def run_until_killed(self, rng: random.Random) -> None:
        """Starts a process, checks what the last one left, works, and kills it."""
        self.round += 1
        pid = await self.start()
        await self.check()
        life = ServerRun(self, rng, pid)
        async with asyncio.TaskGroup() as group:
            group.create_task(life.watch())
            for writer in range(WRITERS):
                group.create_task(life.write(writer))
        self.version = max(self.version, life.version)

    # ---- the comparison

    async def listed(self, path: str) -> list[dict[str, Any]]:
        answer = await self.transport.send(Request(method="GET", path=path), timeout=60)
        assert isinstance(answer, Response) and answer.status == 200, answer
        found = answer.json()
        version = int(found["metadata"]["resourceVersion"])
        assert version >= self.version, "a version of an earlier response is gone"
        self.version = version
        items: list[dict[str, Any]] = found["items"]
        return items

    async def check(self) -> None:
        maps = await self.listed("/api/v1/configmaps")
        accounts = await self.listed("/api/v1/serviceaccounts")
        spaces = await self.listed(SPACES)
        mine = {item["metadata"]["name"]: item for item in maps if space_of(item) == "default"}
        for name, entry in self.maps.items():
            self.check_map(name, entry, mine.get(name))
        assert [name for name in mine if name not in self.maps] == []
        here = {item["metadata"]["name"]: item for item in spaces}
        for name, entry in self.spaces.items():
            inside = [item["metadata"]["name"] for item in maps if space_of(item) == name]
            accounted = any(space_of(item) == name for item in accounts)
            self.check_space(entry, here.get(name), inside, accounted=accounted)
        self.forget()

    def check_map(self, name: str, entry: Entry, found: dict[str, Any] | None) -> None:
        self.seen += bool(entry.uid) + entry.acknowledged + entry.gone
        if found is None:
            assert entry.delete_sent or not entry.uid, f"{name}: an acknowledged create is lost"
            return
        assert not entry.gone, f"{name}: an acknowledged delete is lost"
        assert entry.uid in ("", found["metadata"]["uid"]), f"{name}: another object"
        number = int(found["data"]["n"])
        assert entry.acknowledged <= number <= entry.sent, f"{name}: an acknowledged change is lost"
        assert number >= self.shown.get(name, 0), f"{name}: what a watcher saw is lost"

    def check_space(
        self, entry: Entry, found: dict[str, Any] | None, inside: list[str], *, accounted: bool
    ) -> None:
        self.seen += bool(entry.uid) + entry.acknowledged + entry.gone
        if found is None:
            assert entry.delete_sent or not entry.uid, "an acknowledged namespace is lost"
            assert not inside and not accounted, "half of a namespace's removal is there"
            return
        assert not entry.gone, "an acknowledged removal is lost"
        assert found["status"]["phase"] == "Active" and accounted, "half of a creation is there"
        assert entry.acknowledged <= len(inside) <= entry.sent, "contents are lost"

    def forget(self) -> None:
        """Drops expectations about objects that are proven to be gone."""
        self.maps = {name: entry for name, entry in self.maps.items() if not entry.gone}
        self.spaces = {name: entry for name, entry in self.spaces.items() if not entry.gone}


def space_of(item: dict[str, Any]) -> str:
    found: str = item["metadata"].get("namespace", "")
    return found


@asynccontextmanager
async def killable_servers(folder: Path) -> AsyncIterator[KillableServers]:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        killable_server.__file__,
        str(folder / "kube.db"),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None and program.stdout is not None
    fleet = KillableServers(program, int(await program.stdout.readline()))
    try:
        yield fleet
    finally:
        await fleet.transport.close()
        program.stdin.close()
        await program.wait()


async def kill_again_and_again(folder: Path, *, rounds: int, seed: int) -> None:
    async with killable_servers(folder) as fleet:
        for number in range(rounds):
            await fleet.run_until_killed(random.Random(f"{seed}/{number}"))
        await fleet.start()
        await fleet.check()
        assert fleet.seen > rounds


@pytest.mark.slow
def test_a_few_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    asyncio.run(kill_again_and_again(tmp_path, rounds=6, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", sample([2, 3], of=2))
def test_many_kills_lose_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    asyncio.run(kill_again_and_again(tmp_path, rounds=pick(fast=20, ci=20, long=100), seed=seed))
