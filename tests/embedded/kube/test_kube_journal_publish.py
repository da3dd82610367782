"""Watchers get every stored write exactly once and in order."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import MAPS, Harness, events, types_and_names
from tests.embedded.kube.journalsupport import DataDir
from tests.embedded.kube.test_kube_journal_batch import configmap, write
from tests.tiers import examples

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal, JournalError
from runyard.embedded.kube.storage.store import Event
from runyard.http.messages import Stream
from runyard.sim.loop import run_virtual

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def play(
    data_dir: DataDir,
    scenario: Callable[[Harness], Awaitable[None]],
    *,
    failures: int = 0,
    **how: Any,
) -> None:
    async def main() -> None:
        journal = Journal(data_dir.path)
        harness = Harness(journal=journal, **how)
        await scenario(harness)
        assert sum(harness.core.failures.values()) == failures
        journal.close()

    run_virtual(main())


def commit_only(core: KubeCore) -> None:
    """Commits, without publishing to the watchers."""
    assert core._persistence is not None
    core._settle()
    assert core._commit(core._persistence) is None


async def read_all(harness: Harness, *streams: Stream) -> list[list[dict[str, Any]]]:
    """Ends these watches and returns their remaining lines."""
    harness.core.close_watches()
    return [await events(stream) for stream in streams]


WATCHES = [
    pytest.param({}, id="from the present"),
    pytest.param({"before": True}, id="from before the write"),
    pytest.param({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, id="list"),
]


@pytest.mark.parametrize("how", WATCHES)
def test_a_watch_opened_before_publish_gets_each_event_once(
    data_dir: DataDir, how: dict[str, Any]
) -> None:
    async def scenario(harness: Harness) -> None:
        query = dict(how)
        if query.pop("before", False):
            query["resourceVersion"] = harness.core.version
        write(harness.core, "a")
        commit_only(harness.core)
        stream = await harness.watch(MAPS, allowWatchBookmarks="true", **query)
        harness.core._publish()
        await harness.ok("POST", MAPS, configmap("b"))
        (found,) = await read_all(harness, stream)
        changes = [item for item in found if item["type"] != "BOOKMARK"]
        assert types_and_names(changes) == [("ADDED", "a"), ("ADDED", "b")]

    play(data_dir, scenario)


def test_a_watch_from_a_list_before_publish_does_not_repeat_its_objects(data_dir: DataDir) -> None:
    async def scenario(harness: Harness) -> None:
        write(harness.core, "a")
        commit_only(harness.core)
        listed = await harness.ok("GET", MAPS)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
        version = listed["metadata"]["resourceVersion"]
        stream = await harness.watch(MAPS, resourceVersion=version)
        harness.core._publish()
        write(harness.core, "b")
        commit_only(harness.core)
        harness.core._publish()
        (found,) = await read_all(harness, stream)
        assert types_and_names(found) == [("ADDED", "b")]

    play(data_dir, scenario)


def test_a_bookmark_is_neither_ahead_of_published_events_nor_behind_the_first_lines(
    data_dir: DataDir,
) -> None:
    async def scenario(harness: Harness) -> None:
        core, before = harness.core, harness.core.version
        bookmarks = {"allowWatchBookmarks": "true"}
        early = await harness.watch(MAPS, resourceVersion=before, **bookmarks)
        write(core, "a")
        commit_only(core)
        late = await harness.watch(MAPS, resourceVersion=core.version, **bookmarks)
        await harness.clock.sleep(harness.core.settings.bookmark_every)
        marks = [await events(stream, count=1) for stream in (early, late)]
        versions = [mark["object"]["metadata"]["resourceVersion"] for (mark,) in marks]
        assert versions == [str(before), str(core.version)]
        core._publish()
        found, nothing = await read_all(harness, early, late)
        assert types_and_names(found) == [("ADDED", "a")]
        assert nothing == []

    play(data_dir, scenario, bookmark_every=10.0)


def test_events_are_published_in_commit_order(data_dir: DataDir) -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        write(harness.core, "a")
        commit_only(harness.core)
        write(harness.core, "b")
        harness.core.tick()  # commits and publishes both
        (found,) = await read_all(harness, stream)
        assert types_and_names(found) == [("ADDED", "a"), ("ADDED", "b")]

    play(data_dir, scenario)


@pytest.mark.parametrize("end", ["close_watches", "expire_watches"])
def test_a_watch_ended_before_publish_gets_its_events_first(data_dir: DataDir, end: str) -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        write(harness.core, "a")
        commit_only(harness.core)
        getattr(harness.core, end)()
        found = await events(stream)
        assert types_and_names(found)[0] == ("ADDED", "a")
        assert [item["type"] for item in found[1:]] == ["ERROR"] * (end == "expire_watches")

    play(data_dir, scenario)


def test_stored_events_are_published_before_a_failing_disk_ends_the_watches(
    data_dir: DataDir,
) -> None:
    class Failing(Journal):
        failed = False

        def commit(self, version: int, rows: Any) -> None:
            if self.failed:
                raise JournalError("the disk failed", fix="")
            super().commit(version, rows)

    async def main() -> None:
        journal = Failing(data_dir.path)
        harness = Harness(journal=journal)
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        write(harness.core, "kept")
        commit_only(harness.core)
        journal.failed = True
        await harness.send("POST", MAPS, configmap("lost"))
        assert types_and_names(await events(stream)) == [("ADDED", "kept")]
        journal.close()

    run_virtual(main())


def test_an_encoding_error_ends_only_the_watches_of_its_kind(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That watch ends, so its client lists again; watches of other kinds get later events."""
    usual = Event.line

    def line(event: Event, change: Any) -> bytes:
        if event.record.name == "poison":
            raise RuntimeError("cannot be encoded")
        return usual(event, change)

    monkeypatch.setattr(Event, "line", line)

    async def scenario(harness: Harness) -> None:
        core = harness.core
        maps = await harness.watch(MAPS, resourceVersion=core.version)
        secrets = await harness.watch(MAPS.replace("configmaps", "secrets"), resourceVersion=0)
        write(core, "poison")
        answers = await asyncio.gather(
            harness.call("POST", MAPS, configmap("fine")),
            harness.call("POST", MAPS.replace("configmaps", "secrets"), configmap("s")),
        )
        assert [answer.status for answer in answers] == [201, 201], (
            "a committed write gets a success response"
        )
        assert types_and_names(await events(maps)) == []
        assert types_and_names(await events(secrets, count=1)) == [("ADDED", "s")]
        assert not core._store.unpublished

    play(data_dir, scenario, failures=1)


def test_deletions_are_published_before_the_watches_of_a_removed_kind_end(
    data_dir: DataDir,
) -> None:
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "e.x", "scope": "Namespaced", "names": names, "versions": [version]}
    things = "/apis/e.x/v1/namespaces/default/things"

    async def scenario(harness: Harness) -> None:
        made = {"metadata": {"name": "things.e.x"}, "spec": spec}
        await harness.ok("POST", DEFINITIONS, made)
        thing = {"kind": "Thing", "apiVersion": "e.x/v1", **configmap("t")}
        await harness.ok("POST", things, thing)
        stream = await harness.watch(things, resourceVersion=harness.core.version)
        await harness.ok("DELETE", f"{DEFINITIONS}/things.e.x")
        assert types_and_names(await events(stream)) == [("DELETED", "t")]
        assert (await harness.call("GET", things)).status == 404

    play(data_dir, scenario)


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


async def _step(
    harness: Harness, kind: str, number: int, group: asyncio.TaskGroup
) -> Reader | None:
    core, name = harness.core, f"m{number}"
    there = core.find("configmaps", "default", name) is not None
    if kind == "post":
        group.create_task(harness.send("POST", MAPS, configmap(name)))
    elif kind == "delete":
        group.create_task(harness.send("DELETE", f"{MAPS}/{name}"))
    elif kind == "write" and not there:
        write(core, name)
    elif (
        kind == "keep"
        and core._persistence is not None
        and core._persistence.outbox
        and not core._pending
    ):
        commit_only(core)
    elif kind == "tell":
        core._publish()
    elif kind == "tick":
        core.tick()
    elif kind == "turn":
        await asyncio.sleep(0)
    elif kind == "wait":
        await harness.clock.sleep(10.0)
    elif kind == "watch":
        version = int((await harness.ok("GET", MAPS))["metadata"]["resourceVersion"])
        query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        reader = Reader(await harness.watch(MAPS, **query), version)
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
        harness = Harness(journal=journal, bookmark_every=10.0)
        async with asyncio.TaskGroup() as group:
            for kind, number in steps:
                reader = await _step(harness, kind, number, group)
                readers.extend([reader] if reader is not None else [])
            await asyncio.sleep(0)
            harness.core.tick()
            await harness.ok("GET", MAPS)
            await harness.clock.sleep(1.0)
            harness.core.close_watches()
        assert not harness.core.failures and not harness.core._store.unpublished
        journal.close()
        return [event.version for event in harness.core._store.tables["configmaps"].history]

    happened = run_virtual(main(), seed=seed)
    for reader in readers:
        changes = [version for kind, version in reader.lines if kind != "BOOKMARK"]
        assert changes == [version for version in happened if version > reader.after]
        seen = reader.after
        for kind, version in reader.lines:
            missing = [each for each in happened if seen < each <= version]
            assert missing == ([version] if kind != "BOOKMARK" else []), "an event was skipped"
            assert version >= seen, "versions only increase"
            seen = version
