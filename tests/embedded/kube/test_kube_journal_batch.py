"""Concurrent requests share one transaction, and no client gets what is not stored."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from tests.embedded.kube.coresupport import MAPS, Harness, events, types_and_names
from tests.embedded.kube.journalsupport import DataDir, restored, state
from tests.embedded.kube.test_kube_journal_disk import fill_disk, free_disk

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal, Row
from runyard.http.messages import Response, Stream
from runyard.sim.loop import run_virtual


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


class Counting(Journal):
    """Counts its transactions."""

    commits = 0

    def commit(self, version: int, rows: Iterable[Row]) -> None:
        self.commits += 1
        super().commit(version, rows)


Scenario = Callable[[Harness, Counting], Awaitable[None]]


def play(data_dir: DataDir, scenario: Scenario, *, failures: int = 0, seed: int = 0) -> None:
    """Runs on the simulator's loop, which shuffles ready callbacks."""

    async def main() -> None:
        journal = Counting(data_dir.path)
        harness = Harness(journal=journal)
        journal.commits = 0
        await scenario(harness, journal)
        assert sum(harness.core.failures.values()) == failures
        journal.close()
        assert restored(data_dir.path) == state(harness.core)

    run_virtual(main(), seed=seed)


def write(core: KubeCore, name: str) -> None:
    """Starts a write that is not committed yet."""
    maps = core._store.tables["configmaps"].resource
    core._registry.create(maps, {"metadata": {"name": name}}, namespace="default")


def configmap(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


def test_concurrent_requests_share_one_commit(data_dir: DataDir) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        calls = [harness.call("POST", MAPS, configmap(f"m{n}")) for n in range(20)]
        answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [201] * 20
        assert journal.commits <= 2, "twenty syncs of the disk where one is enough"

    play(data_dir, scenario)


def test_of_two_concurrent_creates_one_gets_a_conflict(data_dir: DataDir) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        answers = await asyncio.gather(*(harness.call("POST", MAPS, configmap("m")) for _ in "ab"))
        assert sorted(answer.status for answer in answers) == [201, 409]

    play(data_dir, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_watch_opened_in_the_same_batch_gets_each_write_once(
    data_dir: DataDir, seed: int
) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        version = harness.core.version
        _, stream, _, early = await asyncio.gather(
            harness.call("POST", MAPS, configmap("a")),
            harness.watch(MAPS, resourceVersion=version),
            harness.call("POST", MAPS, configmap("b")),
            harness.watch(MAPS),
        )
        await harness.ok("POST", MAPS, configmap("c"))
        for watch in (stream, early):
            seen = types_and_names(await events(watch, count=3))
            assert sorted(seen) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
            assert seen[-1] == ("ADDED", "c")
            await watch.aclose()

    play(data_dir, scenario, seed=seed)


def test_no_bookmark_is_ahead_of_the_disk(data_dir: DataDir) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        core, before = harness.core, harness.core.version
        write(core, "m")
        assert (core.version, core._store.published) == (before + 1, before)
        await harness.ok("GET", MAPS)
        assert core._store.published == before + 1, "a response is sent only after the commit"

    play(data_dir, scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_disk_fails_every_request_of_the_batch(data_dir: DataDir, seed: int) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        await harness.ok("POST", MAPS, configmap("there"))
        before = state(harness.core)
        fill_disk(journal)
        answers: list[Response | Stream] = await asyncio.gather(
            harness.call("POST", MAPS, configmap("a")),
            harness.call("DELETE", f"{MAPS}/there"),
            harness.call("POST", MAPS, configmap("b")),
        )
        assert [answer.status for answer in answers] == [507] * 3
        assert state(harness.core) == before
        free_disk(journal)
        await harness.ok("POST", MAPS, configmap("a"))

    play(data_dir, scenario, failures=1, seed=seed)


def test_reads_of_a_failed_batch_fail_and_their_watches_close(data_dir: DataDir) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        fill_disk(journal)
        write(harness.core, "never")
        answers = await asyncio.gather(
            harness.send("GET", MAPS), harness.send("GET", MAPS, watch="true")
        )
        assert [answer.status for answer in answers] == [507] * 2, "they read what was rolled back"
        assert harness.core.watcher_count("configmaps") == 0
        free_disk(journal)

    play(data_dir, scenario, failures=1)


@pytest.mark.parametrize("seed", range(8))
def test_a_disconnected_client_does_not_affect_others(data_dir: DataDir, seed: int) -> None:
    async def scenario(harness: Harness, journal: Counting) -> None:
        write(harness.core, "a")
        gone = asyncio.create_task(harness.call("POST", MAPS, configmap("b")))
        watch = asyncio.create_task(harness.send("GET", MAPS, watch="true"))
        stays = asyncio.create_task(harness.call("POST", MAPS, configmap("c")))
        while harness.core.find("configmaps", "default", "b") is None:
            await asyncio.sleep(0)
        gone.cancel()
        watch.cancel()
        assert (await stays).status == 201
        await asyncio.wait([gone, watch])
        if not watch.cancelled():
            found = watch.result()
            assert isinstance(found, Stream)
            await found.aclose()
        names = [obj["metadata"]["name"] for obj in harness.core.objects("configmaps")]
        assert names == ["a", "b", "c"]
        assert harness.core.watcher_count("configmaps") == 0

    play(data_dir, scenario, seed=seed)
