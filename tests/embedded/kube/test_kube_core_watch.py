"""Watches: order, completeness, selectors, bookmarks, ends and leaks."""

import asyncio
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import (
    MAPS,
    NODES,
    PODS,
    Harness,
    events,
    node,
    play,
    pod,
    types_and_names,
)

from runyard.http.messages import Stream


async def make(harness: Harness, name: str, **labels: str) -> dict[str, Any]:
    return await harness.ok("POST", MAPS, {"metadata": {"name": name, "labels": labels}})


def test_initial_events_and_bookmarks_are_optional() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a")
        query = {"resourceVersionMatch": "NotOlderThan", "timeoutSeconds": 5}
        declined = await harness.watch(MAPS, sendInitialEvents="false", **query)
        await make(harness, "b")
        assert types_and_names(await events(declined, count=1)) == [("ADDED", "b")]
        await declined.aclose()
        plain = await harness.watch(MAPS, sendInitialEvents="true", **query)
        assert types_and_names(await events(plain)) == [("ADDED", "a"), ("ADDED", "b")]

    play(scenario)


def test_a_watch_from_a_list_sees_every_later_change_once_and_in_order() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a")
        version = (await harness.ok("GET", MAPS))["metadata"]["resourceVersion"]
        await make(harness, "b")
        early = await harness.watch(MAPS, resourceVersion=version)
        await harness.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        await harness.ok("DELETE", f"{MAPS}/b")
        late = await harness.watch(MAPS, resourceVersion=version)
        first, second = await events(early, count=3), await events(late, count=3)
        assert types_and_names(first) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert first == second
        versions = [int(item["object"]["metadata"]["resourceVersion"]) for item in first]
        assert versions == sorted(versions) and len(dict.fromkeys(versions)) == 3
        await early.aclose()
        await late.aclose()

    play(scenario)


def test_a_watch_without_a_version_begins_with_the_current_objects() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a")
        await make(harness, "b")
        stream = await harness.watch(MAPS)
        assert types_and_names(await events(stream, count=2)) == [("ADDED", "a"), ("ADDED", "b")]
        await stream.aclose()

    play(scenario)


def test_initial_events_end_with_their_bookmark() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a")
        options = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
        refusal = await harness.call("GET", MAPS, watch="true", **options)
        assert refusal.status == 422
        stream = await harness.watch(MAPS, resourceVersionMatch="NotOlderThan", **options)
        found = await events(stream, count=2)
        assert types_and_names(found) == [("ADDED", "a"), ("BOOKMARK", "")]
        marks = found[1]["object"]["metadata"]["annotations"]
        assert marks == {"k8s.io/initial-events-end": "true"}
        await stream.aclose()

    play(scenario)


def test_leaving_a_selector_is_a_deletion_and_entering_it_an_addition() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a", app="x")
        stream = await harness.watch(
            MAPS, resourceVersion=harness.core.version, labelSelector="app=x"
        )
        await harness.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        left = await harness.merge(f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await harness.merge(f"{MAPS}/a", {"data": {"k": "w"}})
        await harness.merge(f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        await harness.ok("DELETE", f"{MAPS}/a")
        found = await events(stream, count=4)
        assert [item["type"] for item in found] == ["MODIFIED", "DELETED", "ADDED", "DELETED"]
        gone = found[1]["object"]
        assert gone["metadata"]["labels"] == {"app": "x"}
        assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        await stream.aclose()

    play(scenario)


def test_a_node_sees_its_own_pods_only() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("n1"))
        await harness.ok("POST", NODES, node("n2"))
        mine = await harness.watch(
            PODS, fieldSelector="spec.nodeName=n1", resourceVersion=harness.core.version
        )
        for name, place in (("a", "n1"), ("b", "n2"), ("c", "n1")):
            await harness.ok("POST", PODS, pod(name))
            body = {"metadata": {"name": name}, "target": {"name": place}}
            await harness.ok("POST", f"{PODS}/{name}/binding", body)
        await harness.merge(f"{PODS}/b/status", {"status": {"phase": "Running"}})
        await harness.merge(f"{PODS}/c/status", {"status": {"phase": "Running"}})
        expected = [("ADDED", "a"), ("ADDED", "c"), ("MODIFIED", "c")]
        assert types_and_names(await events(mine, count=3)) == expected
        await mine.aclose()

    play(scenario, schedule=False)


def test_a_watch_of_one_object_or_namespace_stays_inside_it() -> None:
    async def scenario(harness: Harness) -> None:
        version = harness.core.version
        one = await harness.watch(MAPS, fieldSelector="metadata.name=b", resourceVersion=version)
        place = await harness.watch(MAPS.replace("default", "tuist"), resourceVersion=version)
        for name in ("a", "b"):
            await make(harness, name)
            body = {"metadata": {"name": f"other-{name}"}}
            await harness.ok("POST", MAPS.replace("default", "tuist"), body)
        assert types_and_names(await events(one, count=1)) == [("ADDED", "b")]
        assert types_and_names(await events(place, count=2)) == [
            ("ADDED", "other-a"),
            ("ADDED", "other-b"),
        ]
        await one.aclose()
        await place.aclose()

    play(scenario)


def test_bookmarks_are_sent_when_idle_and_before_the_end() -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(
            MAPS,
            resourceVersion=harness.core.version,
            allowWatchBookmarks="true",
            timeoutSeconds=150,
        )
        begun = harness.clock.monotonic()
        found = await events(stream)
        assert [item["type"] for item in found] == ["BOOKMARK"] * 3
        assert harness.clock.monotonic() - begun == 150
        assert found[-1]["object"]["metadata"]["resourceVersion"] == str(harness.core.version)
        assert harness.core.watcher_count("configmaps") == 0
        await stream.aclose()

    play(scenario)


def test_a_watch_without_bookmarks_ends_without_a_last_line() -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version, timeoutSeconds=30)
        assert await events(stream) == []
        assert harness.clock.monotonic() == 30

    play(scenario)


def test_a_version_older_than_history_is_410_in_the_stream() -> None:
    async def scenario(harness: Harness) -> None:
        await make(harness, "a")
        old = harness.core.version
        await make(harness, "b")
        harness.core.compact()
        found = await events(await harness.watch(MAPS, resourceVersion=old))
        assert [(item["type"], item["object"]["code"]) for item in found] == [("ERROR", 410)]
        assert found[0]["object"]["reason"] == "Expired"
        current = await harness.watch(MAPS, resourceVersion=harness.core.version)
        await make(harness, "c")
        assert types_and_names(await events(current, count=1)) == [("ADDED", "c")]
        await current.aclose()

    play(scenario)


def test_a_version_older_than_history_is_410_as_a_status() -> None:
    async def scenario(harness: Harness) -> None:
        for index in range(5):
            await make(harness, f"m{index}")
        code = await harness.refused("GET", MAPS, watch="true", resourceVersion="1")
        assert code == (410, "Expired")
        code = await harness.refused("GET", MAPS, watch="true", resourceVersion="x")
        assert code == (500, "")

    play(scenario, history=3, gone_in_stream=False)


def test_open_watches_can_be_expired() -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        await make(harness, "a")
        harness.core.expire_watches()
        found = await events(stream)
        assert [item["type"] for item in found] == ["ADDED", "ERROR"]
        assert harness.core.watcher_count("configmaps") == 0

    play(scenario)


def test_a_disconnected_reader_is_removed() -> None:
    async def scenario(harness: Harness) -> None:
        streams = [await harness.watch(MAPS) for _ in range(3)]
        streams += [await harness.watch(PODS, fieldSelector="spec.nodeName=n1")]
        assert harness.core.watcher_count("configmaps") == 3
        assert harness.core.watcher_count("pods") == 1
        for stream in streams:
            await stream.aclose()
            await stream.aclose()
        assert harness.core.watcher_count("configmaps") == 0
        assert harness.core.watcher_count("pods") == 0
        await make(harness, "a")
        assert await events(streams[0]) == []

    play(scenario)


def test_a_slow_reader_is_cut_and_loses_nothing_by_resuming() -> None:
    async def scenario(harness: Harness) -> None:
        version = harness.core.version
        slow = await harness.watch(MAPS, resourceVersion=version)
        for index in range(4):
            await make(harness, f"m{index}")
        assert harness.core.watcher_count("configmaps") == 0
        assert await events(slow) == []
        again = await harness.watch(MAPS, resourceVersion=version)
        assert len(await events(again, count=4)) == 4
        await again.aclose()

    play(scenario, watch_buffer=3)


def test_an_idle_reader_wakes_for_a_write() -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(events(stream, count=1))
            await harness.clock.sleep(7)
            await make(harness, "a")
        assert types_and_names(reading.result()) == [("ADDED", "a")]
        assert harness.clock.monotonic() == 7
        await stream.aclose()

    play(scenario)


def test_all_watchers_share_the_encoded_line() -> None:
    async def scenario(harness: Harness) -> None:
        streams = [
            await harness.watch(MAPS, resourceVersion=harness.core.version) for _ in range(3)
        ]
        await make(harness, "a")
        chunks = [await anext(aiter(stream)) for stream in streams]
        assert chunks[0] is chunks[1] is chunks[2]
        for stream in streams:
            await stream.aclose()

    play(scenario)


def named(listed: dict[str, Any]) -> dict[str, Any]:
    """The items of a list by name, with kind and apiVersion."""
    what = {"kind": "ConfigMap", "apiVersion": "v1"}
    return {item["metadata"]["name"]: what | item for item in listed["items"]}


STEP = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["create", "label", "data", "delete", "look"])
)


@given(steps=st.lists(STEP, max_size=40), selective=st.booleans())
def test_replaying_a_watch_gives_the_list(steps: list[tuple[str, str]], *, selective: bool) -> None:
    """An earlier list plus the events since then give the current list."""
    selector = {"labelSelector": "on=yes"} if selective else {}

    async def scenario(harness: Harness) -> None:
        views: list[tuple[dict[str, Any], Stream]] = []
        versions = [harness.core.version]
        for index, (name, what) in enumerate(steps):
            path = f"{MAPS}/{name}"
            if what == "create":
                await harness.call(
                    "POST", MAPS, {"metadata": {"name": name, "labels": {"on": "yes"}}}
                )
            elif what == "delete":
                await harness.call("DELETE", path)
            elif what == "look":
                listed = await harness.ok("GET", MAPS, **selector)
                stream = await harness.watch(
                    MAPS,
                    resourceVersion=listed["metadata"]["resourceVersion"],
                    timeoutSeconds=10,
                    **selector,
                )
                views.append((named(listed), stream))
            elif what == "label":
                value = "yes" if index % 2 else "no"
                body = {"metadata": {"labels": {"on": value}}}
                await harness.call("PATCH", path, body, kind="application/merge-patch+json")
            else:
                body = {"data": {"n": str(index)}}
                await harness.call("PATCH", path, body, kind="application/merge-patch+json")
            versions.append(harness.core.version)
        assert versions == sorted(versions)
        now = await harness.ok("GET", MAPS, **selector)
        expected = named(now)
        for state, stream in views:
            seen = 0
            for event in await events(stream):
                name = event["object"]["metadata"]["name"]
                version = int(event["object"]["metadata"]["resourceVersion"])
                assert version > seen
                seen = version
                assert (event["type"] == "ADDED") == (name not in state)
                if event["type"] == "DELETED":
                    del state[name]
                else:
                    state[name] = event["object"]
            assert state == expected

    play(scenario)


def test_lines_are_newline_delimited_json() -> None:
    async def scenario(harness: Harness) -> None:
        stream = await harness.watch(MAPS, resourceVersion=harness.core.version)
        await make(harness, "a")
        await make(harness, "b")
        chunk = await anext(aiter(stream))
        assert chunk.endswith(b"\n")
        assert [msgspec.json.decode(line)["type"] for line in chunk.splitlines()] == ["ADDED"] * 2
        await stream.aclose()

    play(scenario)
