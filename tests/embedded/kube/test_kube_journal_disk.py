"""A failed write to disk rolls the whole step back, and the client gets the reason."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.embedded.kube.coresupport import (
    MAPS,
    NODES,
    PODS,
    Harness,
    events,
    node,
    pod,
    types_and_names,
)
from tests.embedded.kube.journalsupport import DataDir, populated, restored, state

from runyard.embedded.kube.storage.journal import Journal, JournalError, JournalFull, Row
from runyard.http.messages import Response
from runyard.sim.loop import run_virtual


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def fill_disk(journal: Journal) -> None:
    """Makes every further write fail as on a full disk, by SQLite's page limit."""
    run = journal._db.execute
    (pages,) = run("PRAGMA page_count").fetchone()
    run(f"PRAGMA max_page_count = {pages}")
    greedy = "INSERT INTO meta VALUES ('more', zeroblob(900000), 0)"
    for change in ("INSERT", "UPDATE", "DELETE"):
        run(f"CREATE TEMP TRIGGER on_{change} AFTER {change} ON objects BEGIN {greedy}; END")


def free_disk(journal: Journal) -> None:
    for change in ("INSERT", "UPDATE", "DELETE"):
        journal._db.execute(f"DROP TRIGGER on_{change}")
    journal._db.execute("PRAGMA max_page_count = 1000000")


BIG = {"metadata": {"name": "big"}, "data": {"k": "x" * 500_000}}  # for a file that may not grow


def test_a_full_disk_refuses_the_write_and_keeps_reading(data_dir: DataDir) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal)
        await populated(harness)
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        before, writes = state(harness.core), list(harness.writes)
        fill_disk(journal)
        answer = await harness.call("POST", MAPS, BIG)
        status = answer.json()
        assert (answer.status, status["reason"]) == (507, "InsufficientStorage")
        assert status["kind"] == "Status" and "Free some space" in status["message"]
        assert state(harness.core) == before and harness.writes == writes
        assert (await harness.ok("GET", PODS))["items"]
        free_disk(journal)
        await harness.ok("POST", MAPS, BIG)
        assert types_and_names(await events(stream, count=1)) == [("ADDED", "big")]
        assert harness.core.failures == {"JournalFull": 1}
        await stream.aclose()
        journal.close()
        assert restored(data_dir.path) == state(harness.core)

    run_virtual(main())


def test_controllers_forget_a_step_that_was_rolled_back(data_dir: DataDir) -> None:
    """A rolled-back Node gets no Pods, is not counted, and does not become silent later."""

    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal)
        await harness.ok("POST", PODS, pod(limits={"cpu": "4"}))
        before = state(harness.core)
        fill_disk(journal)
        assert (await harness.call("POST", NODES, node())).status == 507
        assert state(harness.core) == before and harness.core.scheduler.used("n1") == {}
        free_disk(journal)
        await harness.pass_time(100)
        assert harness.core.objects("nodes") == ()
        await harness.ok("POST", NODES, node("n2"))
        assert harness.core.find("pods", "default", "p")["spec"]["nodeName"] == "n2"
        assert harness.core.scheduler.used("n2")["cpu"] == 4000
        journal.close()
        assert restored(data_dir.path) == state(harness.core)

    run_virtual(main())


def test_a_step_larger_than_history_can_be_rolled_back(data_dir: DataDir) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal, history=2)
        await harness.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "two"}})
        for index in range(9):
            body = {"metadata": {"name": f"m{index}", "finalizers": ["example.com/x"]}}
            await harness.ok("POST", "/api/v1/namespaces/two/configmaps", body)
        before = state(harness.core)
        fill_disk(journal)
        answer = await harness.call("DELETE", "/api/v1/namespaces/two")
        assert answer.status == 507 and state(harness.core) == before
        table = harness.core._store.tables["configmaps"]
        assert table.floor <= harness.core.version
        assert [event for event in table.history if event.version > harness.core.version] == []
        journal.close()

    run_virtual(main())


def test_a_failing_disk_stops_the_core_and_the_next_one_loads_what_was_stored(
    data_dir: DataDir,
) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal)
        await populated(harness)
        await harness.ok("POST", MAPS, BIG)
        before = state(harness.core)
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        with no_file_grows(Path(f"{data_dir.path}-wal").stat().st_size):
            answer = await harness.send("POST", MAPS, {"metadata": {"name": "a"}})
        assert isinstance(answer, Response) and answer.status == 500
        assert "nothing was written" in answer.json()["message"]
        assert await events(stream) == []
        answer = await harness.send("GET", MAPS)
        assert isinstance(answer, Response) and answer.status == 503
        assert answer.json()["reason"] == "ServiceUnavailable"
        with pytest.raises(JournalError):
            await asyncio.wait_for(harness.core.run_controllers(), 60)
        journal.close()
        assert restored(data_dir.path) == before

    run_virtual(main())


@contextmanager
def no_file_grows(limit: int) -> Iterator[None]:
    """Makes writes past that file size fail, as on a broken disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_tick_that_cannot_be_stored_is_rolled_back_and_retried(data_dir: DataDir) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal)
        await harness.ok("POST", NODES, node())
        before = state(harness.core)
        await harness.clock.sleep(100)
        fill_disk(journal)
        harness.core.tick()
        assert state(harness.core) == before and harness.core.failures == {"JournalFull": 1}
        free_disk(journal)
        await harness.pass_time(50)
        assert (
            harness.core.find("nodes", "", "n1")["status"]["conditions"][0]["status"] == "Unknown"
        )
        journal.close()

    run_virtual(main())


def test_a_start_that_cannot_be_stored_is_an_error_and_stores_nothing(data_dir: DataDir) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        journal.put_signing_key(b"k" * 32)
        fill_disk(journal)
        with pytest.raises(JournalFull):
            Harness(journal=journal, namespaces=tuple(f"n{index}" for index in range(400)))
        assert journal.load().rows == ()
        journal.close()

    run_virtual(main())


def test_an_object_of_an_unknown_kind_is_an_error(data_dir: DataDir) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        journal.commit(1, [Row("widgets", "", "w", 1, b"{}")])
        with pytest.raises(JournalError, match="widgets"):
            Harness(journal=journal)
        journal.close()

    run_virtual(main())


UNREADABLE = {
    "no JSON": b"{",
    "a list": b"[]",
    "no metadata": b"{}",
    "another name": b'{"metadata":{"name":"b","uid":"u","resourceVersion":"1"}}',
    "another version": b'{"metadata":{"name":"a","uid":"u","resourceVersion":"2"}}',
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_object_is_named_in_the_error(data_dir: DataDir, case: str) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        journal.commit(2, [Row("nodes", "", "a", 1, UNREADABLE[case])])
        with pytest.raises(JournalError, match="nodes /a"):
            Harness(journal=journal)
        journal.close()

    run_virtual(main())
