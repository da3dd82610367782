"""Concurrent requests share one transaction, and no client gets what is not stored."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from tests.embedded.kube.coresupport import MAPS, World, events, told
from tests.embedded.kube.journalsupport import Home, restored, state
from tests.embedded.kube.test_kube_journal_disk import refuse, relent

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal, Row
from runyard.http.messages import Response, Stream
from runyard.sim.loop import run_virtual


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


class Counting(Journal):
    """Counts its transactions."""

    commits = 0

    def commit(self, version: int, rows: Iterable[Row]) -> None:
        self.commits += 1
        super().commit(version, rows)


Scene = Callable[[World, Counting], Awaitable[None]]


def play(home: Home, scene: Scene, *, failures: int = 0, seed: int = 0) -> None:
    """Runs on the simulator's loop, which shuffles ready callbacks."""

    async def main() -> None:
        journal = Counting(home.path)
        world = World(journal=journal)
        journal.commits = 0
        await scene(world, journal)
        assert sum(world.core.failures.values()) == failures
        journal.close()
        assert restored(home.path) == state(world.core)

    run_virtual(main(), seed=seed)


def write(core: KubeCore, name: str) -> None:
    """Starts a write that is not committed yet."""
    maps = core._store.tables["configmaps"].resource
    core._registry.create(maps, {"metadata": {"name": name}}, namespace="default")


def configmap(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


def test_concurrent_requests_share_one_commit(home: Home) -> None:
    async def scene(world: World, journal: Counting) -> None:
        calls = [world.call("POST", MAPS, configmap(f"m{n}")) for n in range(20)]
        answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [201] * 20
        assert journal.commits <= 2, "twenty waits for the disk where one is enough"

    play(home, scene)


def test_of_two_concurrent_creates_one_gets_a_conflict(home: Home) -> None:
    async def scene(world: World, journal: Counting) -> None:
        answers = await asyncio.gather(*(world.call("POST", MAPS, configmap("m")) for _ in "ab"))
        assert sorted(answer.status for answer in answers) == [201, 409]

    play(home, scene)


@pytest.mark.parametrize("seed", range(5))
def test_a_watch_opened_in_the_same_batch_gets_each_write_once(home: Home, seed: int) -> None:
    async def scene(world: World, journal: Counting) -> None:
        version = world.core.version
        _, stream, _, early = await asyncio.gather(
            world.call("POST", MAPS, configmap("a")),
            world.watch(MAPS, resourceVersion=version),
            world.call("POST", MAPS, configmap("b")),
            world.watch(MAPS),
        )
        await world.ok("POST", MAPS, configmap("c"))
        for watch in (stream, early):
            seen = told(await events(watch, count=3))
            assert sorted(seen) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
            assert seen[-1] == ("ADDED", "c")
            await watch.aclose()

    play(home, scene, seed=seed)


def test_no_bookmark_is_ahead_of_the_disk(home: Home) -> None:
    async def scene(world: World, journal: Counting) -> None:
        core, before = world.core, world.core.version
        write(core, "m")
        assert (core.version, core._store.published) == (before + 1, before)
        await world.ok("GET", MAPS)
        assert core._store.published == before + 1, "whoever has read it, reads what is kept"

    play(home, scene)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_disk_fails_every_request_of_the_batch(home: Home, seed: int) -> None:
    async def scene(world: World, journal: Counting) -> None:
        await world.ok("POST", MAPS, configmap("there"))
        before = state(world.core)
        refuse(journal)
        answers: list[Response | Stream] = await asyncio.gather(
            world.call("POST", MAPS, configmap("a")),
            world.call("DELETE", f"{MAPS}/there"),
            world.call("POST", MAPS, configmap("b")),
        )
        assert [answer.status for answer in answers] == [507] * 3
        assert state(world.core) == before
        relent(journal)
        await world.ok("POST", MAPS, configmap("a"))

    play(home, scene, failures=1, seed=seed)


def test_reads_of_a_failed_batch_fail_and_their_watches_close(home: Home) -> None:
    async def scene(world: World, journal: Counting) -> None:
        refuse(journal)
        write(world.core, "never")
        answers = await asyncio.gather(
            world.send("GET", MAPS), world.send("GET", MAPS, watch="true")
        )
        assert [answer.status for answer in answers] == [507] * 2, "they saw what never was"
        assert world.core.watcher_count("configmaps") == 0
        relent(journal)

    play(home, scene, failures=1)


@pytest.mark.parametrize("seed", range(8))
def test_a_disconnected_client_does_not_affect_others(home: Home, seed: int) -> None:
    async def scene(world: World, journal: Counting) -> None:
        write(world.core, "a")
        gone = asyncio.create_task(world.call("POST", MAPS, configmap("b")))
        watch = asyncio.create_task(world.send("GET", MAPS, watch="true"))
        stays = asyncio.create_task(world.call("POST", MAPS, configmap("c")))
        while world.core.find("configmaps", "default", "b") is None:
            await asyncio.sleep(0)
        gone.cancel()
        watch.cancel()
        assert (await stays).status == 201
        await asyncio.wait([gone, watch])
        if not watch.cancelled():
            found = watch.result()
            assert isinstance(found, Stream)
            await found.aclose()
        names = [obj["metadata"]["name"] for obj in world.core.objects("configmaps")]
        assert names == ["a", "b", "c"]
        assert world.core.watcher_count("configmaps") == 0

    play(home, scene, seed=seed)
