"""A core with a journal: acknowledged writes are restored, and no response is sent before its write is on disk."""

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    MAPS,
    MERGE,
    NODES,
    PODS,
    POOLS,
    Harness,
    events,
    node,
    pod,
    pool,
    types_and_names,
)
from tests.embedded.kube.journalsupport import DataDir, populated, restored, run_restarts, state

from runyard.embedded.kube.storage.journal import Journal, Row
from runyard.http.messages import Response
from runyard.sim.loop import run_virtual
from runyard.wire.instants import to_rfc3339


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


# ---- restoring


def test_a_restart_loses_nothing_and_changes_nothing(data_dir: DataDir) -> None:
    found: dict[str, Any] = {}

    async def before(harness: Harness) -> None:
        await populated(harness)
        found.update(state(harness.core))
        assert "deletionTimestamp" in found["runnerpools"][0]["metadata"]
        assert "managedFields" in found["runnerpools"][0]["metadata"]
        assert "deletionTimestamp" in harness.core.find("pods", "default", "a")["metadata"]

    async def after(harness: Harness) -> None:
        assert state(harness.core) == found
        assert harness.writes == []
        harness.core.tick()
        assert state(harness.core) == found

    run_restarts(data_dir, before, after, after)


def test_versions_never_go_back_and_an_old_one_must_list_again(data_dir: DataDir) -> None:
    seen: list[int] = []

    async def before(harness: Harness) -> None:
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        await harness.ok("DELETE", f"{MAPS}/a")
        seen.extend((int(made["metadata"]["resourceVersion"]), harness.core.version))

    async def after(harness: Harness) -> None:
        old, last = seen
        listed = await harness.ok("GET", MAPS)
        assert int(listed["metadata"]["resourceVersion"]) == last
        (gone,) = await events(await harness.watch(MAPS, resourceVersion=old))
        assert gone["type"] == "ERROR" and gone["object"]["code"] == 410
        stream = await harness.watch(MAPS, resourceVersion=last)
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert int(made["metadata"]["resourceVersion"]) > last
        assert types_and_names(await events(stream, count=1)) == [("ADDED", "a")]
        await stream.aclose()

    run_restarts(data_dir, before, after)


def test_a_token_outlives_the_process_that_signed_it(data_dir: DataDir) -> None:
    tokens: list[str] = []

    async def before(harness: Harness) -> None:
        await harness.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
        uid = (await harness.ok("POST", PODS, pod(serviceAccountName="runner")))["metadata"]["uid"]
        ref = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
        made = await harness.ok(
            "POST", f"{ACCOUNTS}/runner/token", {"spec": {"boundObjectRef": ref}}
        )
        tokens.append(made["status"]["token"])

    async def after(harness: Harness) -> None:
        user = harness.core.tokens.verify(tokens[0], ("https://kubernetes.default.svc",)).user
        assert user.name == "system:serviceaccount:default:runner"
        await harness.ok("DELETE", f"{PODS}/p")

    async def later(harness: Harness) -> None:
        with pytest.raises(ValueError, match="no longer exists"):
            harness.core.tokens.verify(tokens[0], ("https://kubernetes.default.svc",))

    run_restarts(data_dir, before, after, later)


# ---- controllers after a restart


def test_downtime_of_the_api_evicts_no_pod_but_silence_after_it_does(data_dir: DataDir) -> None:
    async def before(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        await harness.ok("POST", NODES, node("witness", spec={"unschedulable": True}))
        await harness.ok("POST", PODS, pod())

    async def pass_beside(fresh: Harness, seconds: int) -> None:
        # Another host sends heartbeats, so the server does not suspect its own network.
        for _ in range(seconds // 5):
            now = to_rfc3339(fresh.clock.now())
            conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]
            await fresh.merge(f"{NODES}/witness/status", {"status": {"conditions": conditions}})
            await fresh.pass_time(5)

    async def after(harness: Harness) -> None:
        await harness.clock.sleep(3600)
        with data_dir.harness() as fresh:
            await pass_beside(fresh, 35)
            ready = fresh.core.find("nodes", "", "n1")["status"]["conditions"][0]
            assert ready["status"] == "True"
            await pass_beside(fresh, 300)
            assert (
                fresh.core.find("nodes", "", "n1")["status"]["conditions"][0]["status"] == "Unknown"
            )
            assert "deletionTimestamp" not in fresh.core.find("pods", "default", "p")["metadata"]
            await pass_beside(fresh, 60)
            assert "deletionTimestamp" in fresh.core.find("pods", "default", "p")["metadata"]

    async def main() -> None:
        with data_dir.harness() as harness:
            await before(harness)
        await after(harness)

    run_virtual(main())


def test_pods_of_a_deleted_node_get_a_new_quarantine(data_dir: DataDir) -> None:
    async def before(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        await harness.ok("POST", PODS, pod())
        await harness.ok("DELETE", f"{NODES}/n1")
        await harness.pass_time(35)

    async def after(harness: Harness) -> None:
        await harness.pass_time(35)
        assert harness.core.find("pods", "default", "p") is not None
        await harness.pass_time(10)
        assert harness.core.find("pods", "default", "p") is None

    run_restarts(data_dir, before, after)


def test_the_scheduler_restores_used_resources_and_its_queue(data_dir: DataDir) -> None:
    names = ("first", "second", "third", "fourth")

    async def before(harness: Harness) -> None:
        await harness.ok("POST", NODES, node(pods="1"))
        for name in names:
            await harness.ok("POST", PODS, pod(name, limits={"cpu": "4"}))

    async def after(harness: Harness) -> None:
        assert harness.core.scheduler.used("n1")["cpu"] == 4000
        await harness.ok("POST", NODES, node("n2", pods="2"))
        where = {
            name: harness.core.find("pods", "default", name)["spec"].get("nodeName")
            for name in names
        }
        assert where == {"first": "n1", "second": "n2", "third": "n2", "fourth": None}
        await harness.ok("DELETE", f"{PODS}/first", gracePeriodSeconds=0)
        assert harness.core.find("pods", "default", "fourth")["spec"]["nodeName"] == "n1"

    run_restarts(data_dir, before, after)


def test_a_pod_that_waited_for_a_disabled_scheduler_is_placed_at_the_start(
    data_dir: DataDir,
) -> None:
    async def main() -> None:
        with data_dir.harness(schedule=False) as harness:
            await harness.ok("POST", NODES, node())
            await harness.ok("POST", PODS, pod())
        with data_dir.harness() as harness:
            assert harness.core.find("pods", "default", "p")["spec"]["nodeName"] == "n1"

    run_virtual(main())


def test_dependents_of_an_owner_deleted_after_a_restart_are_deleted(data_dir: DataDir) -> None:
    async def before(harness: Harness) -> None:
        owner = await harness.ok("POST", POOLS, pool())
        ref = {"apiVersion": "tuist.dev/v1alpha1", "kind": "RunnerPool", "name": "mac"}
        owned = {"name": "p", "ownerReferences": [ref | {"uid": owner["metadata"]["uid"]}]}
        space = "/api/v1/namespaces/tuist-runners/configmaps"
        await harness.ok("POST", space, {"metadata": owned})

    async def after(harness: Harness) -> None:
        assert harness.core.find("configmaps", "tuist-runners", "p") is not None
        await harness.ok("DELETE", f"{POOLS}/mac")
        assert harness.core.find("configmaps", "tuist-runners", "p") is None

    run_restarts(data_dir, before, after)


def test_a_terminating_namespace_is_removed_with_its_last_object_after_a_restart(
    data_dir: DataDir,
) -> None:
    held = {"metadata": {"name": "a", "finalizers": ["example.com/x"]}}

    async def before(harness: Harness) -> None:
        await harness.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})
        await harness.ok("POST", "/api/v1/namespaces/gone/configmaps", held)
        await harness.ok("DELETE", "/api/v1/namespaces/gone")

    async def after(harness: Harness) -> None:
        assert harness.core.find("namespaces", "", "gone")["status"]["phase"] == "Terminating"
        await harness.merge(
            "/api/v1/namespaces/gone/configmaps/a", {"metadata": {"finalizers": None}}
        )
        assert harness.core.find("namespaces", "", "gone") is None

    run_restarts(data_dir, before, after)


def test_restarts_do_not_extend_the_lifetime_of_events(data_dir: DataDir) -> None:
    async def main() -> None:
        with data_dir.harness() as harness:
            body = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}}
            await harness.ok("POST", "/api/v1/namespaces/default/events", body)
        for _ in range(3):
            with data_dir.harness() as harness:
                await harness.clock.sleep(1000)
                harness.core.tick()
                assert harness.core.objects("events")
        with data_dir.harness() as harness:
            await harness.clock.sleep(1000)
            harness.core.tick()
            assert not harness.core.objects("events")

    run_virtual(main())


# ---- one step, one transaction


class Observed(Journal):
    """A journal that is copied, as a kill would leave it, right before and after each commit."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.copies: list[Path] = []
        self.before_commit: Callable[[], None] = lambda: None

    def commit(self, version: int, rows: Iterable[Row]) -> None:
        self.before_commit()
        self._copy()
        super().commit(version, rows)
        self._copy()

    def _copy(self) -> None:
        copy = self.path.with_name(f"copy-{len(self.copies)}.db")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{self.path}{suffix}", f"{copy}{suffix}")
        self.copies.append(copy)


def test_a_kill_around_any_commit_shows_the_step_whole_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Observed(tmp_path / "kube.db")
        harness = Harness(journal=journal)
        await populated(harness)
        for step in STEPS:
            before = state(harness.core)
            journal.copies.clear()
            answer = await harness.call(*step[:2], step[2], kind=step[3])
            assert answer.status < 300, answer.body
            killed_before, killed_after = journal.copies
            assert restored(killed_before) == before
            assert restored(killed_after) == state(harness.core) != before
        journal.close()

    run_virtual(main())


STEPS: list[tuple[str, str, Any, str]] = [
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "two"}}, MERGE),
    ("POST", NODES, node("n2"), MERGE),
    ("DELETE", f"{NODES}/n1", None, MERGE),
    ("PATCH", f"{NODES}/n2/status", {"status": {"conditions": []}}, MERGE),
    ("PATCH", f"{POOLS}/mac", {"metadata": {"finalizers": None}}, MERGE),
    ("DELETE", "/api/v1/namespaces/two", None, MERGE),
]


def test_no_watcher_gets_a_step_before_it_is_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Observed(tmp_path / "kube.db")
        harness = Harness(journal=journal)
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        (watcher,) = harness.core._store.tables["configmaps"].watchers()
        waiting: list[int] = []
        journal.before_commit = lambda: waiting.append(len(watcher._lines))
        writes = len(harness.writes)
        await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert waiting == [0] and len(watcher._lines) == 1
        assert len(harness.writes) == writes + 1
        await stream.aclose()
        journal.close()

    run_virtual(main())


def test_a_read_does_not_touch_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Observed(tmp_path / "kube.db")
        harness = Harness(journal=journal)
        await populated(harness)
        journal.copies.clear()
        await harness.ok("GET", PODS)
        await harness.merge(f"{PODS}/b", {})
        await harness.refused("POST", PODS, {})
        harness.core.tick()
        assert journal.copies == []
        journal.close()

    run_virtual(main())


def test_a_journal_does_not_change_responses(data_dir: DataDir) -> None:
    """The same requests with and without a journal get identical bytes, watches included."""

    async def play(harness: Harness) -> list[bytes]:
        answers = []
        watches = [await harness.watch(path) for path in (PODS, NODES)]
        rng = random.Random(3)
        for _ in range(300):
            answer = await harness.send(*request(rng), kind=MERGE)
            assert isinstance(answer, Response)
            answers.append(b"%d " % answer.status + answer.body)
            if rng.random() < 0.1:
                await harness.clock.sleep(20)
                harness.core.tick()
        for stream in watches:
            answers.append(await stream.__aiter__().__anext__())
            await stream.aclose()
        return [*answers, msgspec.json.encode(harness.writes)]

    async def with_journal() -> list[bytes]:
        with data_dir.harness() as harness:
            return await play(harness)

    async def without() -> list[bytes]:
        return await play(Harness())

    assert run_virtual(with_journal()) == run_virtual(without())


def request(rng: random.Random) -> tuple[str, str, Any]:
    name = rng.choice("abcde")
    kind, body = rng.choice(
        ((PODS, pod(name)), (NODES, node(name)), (MAPS, {"metadata": {"name": name}}))
    )
    return rng.choice(
        (
            ("POST", kind, body),
            ("POST", kind, body),
            ("DELETE", f"{kind}/{name}", None),
            ("GET", kind, None),
            ("PATCH", f"{kind}/{name}", {"metadata": {"labels": {"n": str(rng.randrange(5))}}}),
        )
    )
