"""A core with a journal: acknowledged writes are restored whole, and answers never precede the disk."""

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
    World,
    events,
    node,
    pod,
    pool,
    told,
)
from tests.embedded.kube.journalsupport import Home, lives, populated, restored, state

from runyard.embedded.kube.storage.journal import Journal, Row
from runyard.http.messages import Response
from runyard.sim.loop import run_virtual
from runyard.wire.instants import to_rfc3339


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# ---- coming back


def test_a_restart_loses_nothing_and_changes_nothing(home: Home) -> None:
    found: dict[str, Any] = {}

    async def before(world: World) -> None:
        await populated(world)
        found.update(state(world.core))
        assert "deletionTimestamp" in found["runnerpools"][0]["metadata"]
        assert "managedFields" in found["runnerpools"][0]["metadata"]
        assert "deletionTimestamp" in world.core.find("pods", "default", "a")["metadata"]

    async def after(world: World) -> None:
        assert state(world.core) == found
        assert world.writes == []
        world.core.tick()
        assert state(world.core) == found

    lives(home, before, after, after)


def test_versions_never_go_back_and_an_old_one_must_list_again(home: Home) -> None:
    seen: list[int] = []

    async def before(world: World) -> None:
        made = await world.ok("POST", MAPS, {"metadata": {"name": "a"}})
        await world.ok("DELETE", f"{MAPS}/a")
        seen.extend((int(made["metadata"]["resourceVersion"]), world.core.version))

    async def after(world: World) -> None:
        old, last = seen
        listed = await world.ok("GET", MAPS)
        assert int(listed["metadata"]["resourceVersion"]) == last
        (gone,) = await events(await world.watch(MAPS, resourceVersion=old))
        assert gone["type"] == "ERROR" and gone["object"]["code"] == 410
        stream = await world.watch(MAPS, resourceVersion=last)
        made = await world.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert int(made["metadata"]["resourceVersion"]) > last
        assert told(await events(stream, count=1)) == [("ADDED", "a")]
        await stream.aclose()

    lives(home, before, after)


def test_a_token_outlives_the_process_that_signed_it(home: Home) -> None:
    tokens: list[str] = []

    async def before(world: World) -> None:
        await world.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
        uid = (await world.ok("POST", PODS, pod(serviceAccountName="runner")))["metadata"]["uid"]
        ref = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
        made = await world.ok("POST", f"{ACCOUNTS}/runner/token", {"spec": {"boundObjectRef": ref}})
        tokens.append(made["status"]["token"])

    async def after(world: World) -> None:
        user = world.core.tokens.verify(tokens[0], ("https://kubernetes.default.svc",)).user
        assert user.name == "system:serviceaccount:default:runner"
        await world.ok("DELETE", f"{PODS}/p")

    async def later(world: World) -> None:
        with pytest.raises(ValueError, match="no longer exists"):
            world.core.tokens.verify(tokens[0], ("https://kubernetes.default.svc",))

    lives(home, before, after, later)


# ---- controllers after a restart


def test_downtime_of_the_api_evicts_no_pod_but_silence_after_it_does(home: Home) -> None:
    async def before(world: World) -> None:
        await world.ok("POST", NODES, node())
        await world.ok("POST", NODES, node("witness", spec={"unschedulable": True}))
        await world.ok("POST", PODS, pod())

    async def pass_beside(fresh: World, seconds: int) -> None:
        # Another host sends heartbeats, so the server does not suspect its own network.
        for _ in range(seconds // 5):
            now = to_rfc3339(fresh.clock.now())
            said = [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]
            await fresh.merge(f"{NODES}/witness/status", {"status": {"conditions": said}})
            await fresh.pass_time(5)

    async def after(world: World) -> None:
        await world.clock.sleep(3600)
        with home.world() as fresh:
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
        with home.world() as world:
            await before(world)
        await after(world)

    run_virtual(main())


def test_pods_of_a_deleted_node_get_a_new_quarantine(home: Home) -> None:
    async def before(world: World) -> None:
        await world.ok("POST", NODES, node())
        await world.ok("POST", PODS, pod())
        await world.ok("DELETE", f"{NODES}/n1")
        await world.pass_time(35)

    async def after(world: World) -> None:
        await world.pass_time(35)
        assert world.core.find("pods", "default", "p") is not None
        await world.pass_time(10)
        assert world.core.find("pods", "default", "p") is None

    lives(home, before, after)


def test_the_scheduler_restores_used_resources_and_its_queue(home: Home) -> None:
    names = ("first", "second", "third", "fourth")

    async def before(world: World) -> None:
        await world.ok("POST", NODES, node(pods="1"))
        for name in names:
            await world.ok("POST", PODS, pod(name, limits={"cpu": "4"}))

    async def after(world: World) -> None:
        assert world.core.scheduler.used("n1")["cpu"] == 4000
        await world.ok("POST", NODES, node("n2", pods="2"))
        where = {
            name: world.core.find("pods", "default", name)["spec"].get("nodeName") for name in names
        }
        assert where == {"first": "n1", "second": "n2", "third": "n2", "fourth": None}
        await world.ok("DELETE", f"{PODS}/first", gracePeriodSeconds=0)
        assert world.core.find("pods", "default", "fourth")["spec"]["nodeName"] == "n1"

    lives(home, before, after)


def test_a_pod_that_waited_for_a_disabled_scheduler_is_placed_at_the_start(home: Home) -> None:
    async def main() -> None:
        with home.world(schedule=False) as world:
            await world.ok("POST", NODES, node())
            await world.ok("POST", PODS, pod())
        with home.world() as world:
            assert world.core.find("pods", "default", "p")["spec"]["nodeName"] == "n1"

    run_virtual(main())


def test_dependents_of_an_owner_deleted_after_a_restart_are_deleted(home: Home) -> None:
    async def before(world: World) -> None:
        owner = await world.ok("POST", POOLS, pool())
        ref = {"apiVersion": "tuist.dev/v1alpha1", "kind": "RunnerPool", "name": "mac"}
        owned = {"name": "p", "ownerReferences": [ref | {"uid": owner["metadata"]["uid"]}]}
        space = "/api/v1/namespaces/tuist-runners/configmaps"
        await world.ok("POST", space, {"metadata": owned})

    async def after(world: World) -> None:
        assert world.core.find("configmaps", "tuist-runners", "p") is not None
        await world.ok("DELETE", f"{POOLS}/mac")
        assert world.core.find("configmaps", "tuist-runners", "p") is None

    lives(home, before, after)


def test_a_terminating_namespace_is_removed_with_its_last_object_after_a_restart(home: Home) -> None:
    held = {"metadata": {"name": "a", "finalizers": ["example.com/x"]}}

    async def before(world: World) -> None:
        await world.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})
        await world.ok("POST", "/api/v1/namespaces/gone/configmaps", held)
        await world.ok("DELETE", "/api/v1/namespaces/gone")

    async def after(world: World) -> None:
        assert world.core.find("namespaces", "", "gone")["status"]["phase"] == "Terminating"
        await world.merge(
            "/api/v1/namespaces/gone/configmaps/a", {"metadata": {"finalizers": None}}
        )
        assert world.core.find("namespaces", "", "gone") is None

    lives(home, before, after)


def test_restarts_do_not_extend_the_lifetime_of_events(home: Home) -> None:
    async def main() -> None:
        with home.world() as world:
            body = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}}
            await world.ok("POST", "/api/v1/namespaces/default/events", body)
        for _ in range(3):
            with home.world() as world:
                await world.clock.sleep(1000)
                world.core.tick()
                assert world.core.objects("events")
        with home.world() as world:
            await world.clock.sleep(1000)
            world.core.tick()
            assert not world.core.objects("events")

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
        world = World(journal=journal)
        await populated(world)
        for step in STEPS:
            before = state(world.core)
            journal.copies.clear()
            answer = await world.call(*step[:2], step[2], kind=step[3])
            assert answer.status < 300, answer.body
            killed_before, killed_after = journal.copies
            assert restored(killed_before) == before
            assert restored(killed_after) == state(world.core) != before
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
        world = World(journal=journal)
        stream = await world.watch(MAPS, resourceVersion=world.core.version)
        (watcher,) = world.core._store.tables["configmaps"].watchers()
        waiting: list[int] = []
        journal.before_commit = lambda: waiting.append(len(watcher._lines))
        writes = len(world.writes)
        await world.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert waiting == [0] and len(watcher._lines) == 1
        assert len(world.writes) == writes + 1
        await stream.aclose()
        journal.close()

    run_virtual(main())


def test_a_read_does_not_touch_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Observed(tmp_path / "kube.db")
        world = World(journal=journal)
        await populated(world)
        journal.copies.clear()
        await world.ok("GET", PODS)
        await world.merge(f"{PODS}/b", {})
        await world.refused("POST", PODS, {})
        world.core.tick()
        assert journal.copies == []
        journal.close()

    run_virtual(main())


def test_a_journal_does_not_change_responses(home: Home) -> None:
    """The same requests with and without a journal get identical bytes, watches included."""

    async def play(world: World) -> list[bytes]:
        answers = []
        watches = [await world.watch(path) for path in (PODS, NODES)]
        rng = random.Random(3)
        for _ in range(300):
            answer = await world.send(*request(rng), kind=MERGE)
            assert isinstance(answer, Response)
            answers.append(b"%d " % answer.status + answer.body)
            if rng.random() < 0.1:
                await world.clock.sleep(20)
                world.core.tick()
        for stream in watches:
            answers.append(await stream.__aiter__().__anext__())
            await stream.aclose()
        return [*answers, msgspec.json.encode(world.writes)]

    async def with_journal() -> list[bytes]:
        with home.world() as world:
            return await play(world)

    async def without() -> list[bytes]:
        return await play(World())

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
