"""Watchers get every stored write exactly once and in order."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import MAPS, World, events, told
from tests.embedded.kube.journalsupport import Home
from tests.embedded.kube.test_kube_journal_moment import configmap, write
from tests.tiers import examples

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal, JournalError
from runyard.embedded.kube.storage.store import Event
from runyard.http.messages import Stream
from runyard.sim.loop import run_virtual

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def play(
    home: Home, scene: Callable[[World], Awaitable[None]], *, failures: int = 0, **how: Any
) -> None:
    async def main() -> None:
        journal = Journal(home.path)
        world = World(journal=journal, **how)
        await scene(world)
        assert sum(world.core.failures.values()) == failures
        journal.close()

    run_virtual(main())


def keep(core: KubeCore) -> None:
    """Commits, without publishing to the watchers."""
    assert core._persistence is not None
    core._settle()
    assert core._commit(core._persistence) is None


async def read_all(world: World, *streams: Stream) -> list[list[dict[str, Any]]]:
    """Ends these watches and returns their remaining lines."""
    world.core.close_watches()
    return [await events(stream) for stream in streams]


WATCHES = [
    pytest.param({}, id="from the present"),
    pytest.param({"before": True}, id="from before the write"),
    pytest.param({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, id="list"),
]


@pytest.mark.parametrize("how", WATCHES)
def test_a_watch_opened_before_publish_gets_each_event_once(home: Home, how: dict[str, Any]) -> None:
    async def scene(world: World) -> None:
        query = dict(how)
        if query.pop("before", False):
            query["resourceVersion"] = world.core.version
        write(world.core, "a")
        keep(world.core)
        stream = await world.watch(MAPS, allowWatchBookmarks="true", **query)
        world.core._publish()
        await world.ok("POST", MAPS, configmap("b"))
        (found,) = await read_all(world, stream)
        changes = [item for item in found if item["type"] != "BOOKMARK"]
        assert told(changes) == [("ADDED", "a"), ("ADDED", "b")]

    play(home, scene)


def test_a_watch_from_a_list_before_publish_does_not_repeat_its_objects(home: Home) -> None:
    async def scene(world: World) -> None:
        write(world.core, "a")
        keep(world.core)
        listed = await world.ok("GET", MAPS)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
        version = listed["metadata"]["resourceVersion"]
        stream = await world.watch(MAPS, resourceVersion=version)
        world.core._publish()
        write(world.core, "b")
        keep(world.core)
        world.core._publish()
        (found,) = await read_all(world, stream)
        assert told(found) == [("ADDED", "b")]

    play(home, scene)


def test_a_bookmark_is_neither_ahead_of_published_events_nor_behind_the_first_lines(home: Home) -> None:
    async def scene(world: World) -> None:
        core, before = world.core, world.core.version
        asked = {"allowWatchBookmarks": "true"}
        early = await world.watch(MAPS, resourceVersion=before, **asked)
        write(core, "a")
        keep(core)
        late = await world.watch(MAPS, resourceVersion=core.version, **asked)
        await world.clock.sleep(world.core.settings.bookmark_every)
        marks = [await events(stream, count=1) for stream in (early, late)]
        versions = [mark["object"]["metadata"]["resourceVersion"] for (mark,) in marks]
        assert versions == [str(before), str(core.version)]
        core._publish()
        found, nothing = await read_all(world, early, late)
        assert told(found) == [("ADDED", "a")]
        assert nothing == []

    play(home, scene, bookmark_every=10.0)


def test_events_are_published_in_commit_order(home: Home) -> None:
    async def scene(world: World) -> None:
        stream = await world.watch(MAPS, resourceVersion=world.core.version)
        write(world.core, "a")
        keep(world.core)
        write(world.core, "b")
        world.core.tick()  # keeps and tells at once, of both
        (found,) = await read_all(world, stream)
        assert told(found) == [("ADDED", "a"), ("ADDED", "b")]

    play(home, scene)


@pytest.mark.parametrize("end", ["close_watches", "expire_watches"])
def test_a_watch_ended_before_publish_gets_its_events_first(home: Home, end: str) -> None:
    async def scene(world: World) -> None:
        stream = await world.watch(MAPS, resourceVersion=world.core.version)
        write(world.core, "a")
        keep(world.core)
        getattr(world.core, end)()
        found = await events(stream)
        assert told(found)[0] == ("ADDED", "a")
        assert [item["type"] for item in found[1:]] == ["ERROR"] * (end == "expire_watches")

    play(home, scene)


def test_stored_events_are_published_before_a_failing_disk_ends_the_watches(home: Home) -> None:
    class Failing(Journal):
        failed = False

        def commit(self, version: int, rows: Any) -> None:
            if self.failed:
                raise JournalError("the disk has gone", fix="")
            super().commit(version, rows)

    async def main() -> None:
        journal = Failing(home.path)
        world = World(journal=journal)
        stream = await world.watch(MAPS, resourceVersion=world.core.version)
        write(world.core, "kept")
        keep(world.core)
        journal.failed = True
        await world.send("POST", MAPS, configmap("lost"))
        assert told(await events(stream)) == [("ADDED", "kept")]
        journal.close()

    run_virtual(main())


def test_an_encoding_error_ends_only_the_watches_of_its_kind(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That watch ends, so its client lists again; watches of other kinds get later events."""
    usual = Event.line

    def line(event: Event, change: Any) -> bytes:
        if event.record.name == "poison":
            raise RuntimeError("no words for it")
        return usual(event, change)

    monkeypatch.setattr(Event, "line", line)

    async def scene(world: World) -> None:
        core = world.core
        maps = await world.watch(MAPS, resourceVersion=core.version)
        secrets = await world.watch(MAPS.replace("configmaps", "secrets"), resourceVersion=0)
        write(core, "poison")
        answers = await asyncio.gather(
            world.call("POST", MAPS, configmap("fine")),
            world.call("POST", MAPS.replace("configmaps", "secrets"), configmap("s")),
        )
        assert [answer.status for answer in answers] == [201, 201], "what is kept is answered so"
        assert told(await events(maps)) == []
        assert told(await events(secrets, count=1)) == [("ADDED", "s")]
        assert not core._store.unpublished

    play(home, scene, failures=1)


def test_deletions_are_published_before_the_watches_of_a_removed_kind_end(home: Home) -> None:
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "e.x", "scope": "Namespaced", "names": names, "versions": [version]}
    things = "/apis/e.x/v1/namespaces/default/things"

    async def scene(world: World) -> None:
        made = {"metadata": {"name": "things.e.x"}, "spec": spec}
        await world.ok("POST", DEFINITIONS, made)
        thing = {"kind": "Thing", "apiVersion": "e.x/v1", **configmap("t")}
        await world.ok("POST", things, thing)
        stream = await world.watch(things, resourceVersion=world.core.version)
        await world.ok("DELETE", f"{DEFINITIONS}/things.e.x")
        assert told(await events(stream)) == [("DELETED", "t")]
        assert (await world.call("GET", things)).status == 404

    play(home, scene)


# ---- in any order


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["post", "write", "delete"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["watch", "keep", "tell", "tick", "turn", "wait"]), st.just(0)),
    ),
    max_size=40,
)


class Reader:
    """Follows one watch to its end."""

    def __init__(self, stream: Stream, after: int) -> None:
        self.stream = stream
        self.after = after
        self.lines: list[tuple[str, int]] = []

    async def run(self) -> None:
        async for chunk in self.stream:
            for line in chunk.splitlines():
                item = msgspec.json.decode(line)
                version = int(item["object"]["metadata"]["resourceVersion"])
                self.lines.append((item["type"], version))


async def _step(world: World, kind: str, number: int, group: asyncio.TaskGroup) -> Reader | None:
    core, name = world.core, f"m{number}"
    there = core.find("configmaps", "default", name) is not None
    if kind == "post":
        group.create_task(world.send("POST", MAPS, configmap(name)))
    elif kind == "delete":
        group.create_task(world.send("DELETE", f"{MAPS}/{name}"))
    elif kind == "write" and not there:
        write(core, name)
    elif (
        kind == "keep"
        and core._persistence is not None
        and core._persistence.outbox
        and not core._pending
    ):
        keep(core)
    elif kind == "tell":
        core._publish()
    elif kind == "tick":
        core.tick()
    elif kind == "turn":
        await asyncio.sleep(0)
    elif kind == "wait":
        await world.clock.sleep(10.0)
    elif kind == "watch":
        version = int((await world.ok("GET", MAPS))["metadata"]["resourceVersion"])
        query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        reader = Reader(await world.watch(MAPS, **query), version)
        group.create_task(reader.run())
        return reader
    return None


@given(steps=STEPS, seed=st.integers(0, 50))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_watch_gets_every_event_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], seed: int
) -> None:
    readers: list[Reader] = []
    path = tmp_path_factory.mktemp("telling") / "kube.db"

    async def main() -> list[int]:
        journal = Journal(path)
        world = World(journal=journal, bookmark_every=10.0)
        async with asyncio.TaskGroup() as group:
            for kind, number in steps:
                reader = await _step(world, kind, number, group)
                readers.extend([reader] if reader is not None else [])
            await asyncio.sleep(0)
            world.core.tick()
            await world.ok("GET", MAPS)
            await world.clock.sleep(1.0)
            world.core.close_watches()
        assert not world.core.failures and not world.core._store.unpublished
        journal.close()
        return [event.version for event in world.core._store.tables["configmaps"].history]

    happened = run_virtual(main(), seed=seed)
    for reader in readers:
        changes = [version for kind, version in reader.lines if kind != "BOOKMARK"]
        assert changes == [version for version in happened if version > reader.after]
        seen = reader.after
        for kind, version in reader.lines:
            missing = [each for each in happened if seen < each <= version]
            assert missing == ([version] if kind != "BOOKMARK" else []), "something was passed over"
            assert version >= seen, "time does not go back"
            seen = version
