"""Watches: events, their order, the first version, and the end of a watch."""

from tests.conformance.kube.kit import OWN, TABLE, Api, config, pod


async def version(api: Api) -> str:
    listed = await api.get(api.maps())
    result: str = listed["metadata"]["resourceVersion"]
    return result


async def test_a_watch_has_every_event_after_its_version_in_order(api: Api) -> None:
    since = await version(api)
    async with await api.watch(api.maps(), resourceVersion=since) as watch:
        await api.create(api.maps(), config("a"))
        await api.create(api.maps(), config("b"))
        await api.patch(api.maps("a"), {"data": {"x": "1"}})
        await api.ok("DELETE", api.maps("b"))
        assert await watch.take(4) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("MODIFIED", "a"),
            ("DELETED", "b"),
        ]


async def test_versions_in_a_watch_grow(api: Api) -> None:
    since = await version(api)
    await api.create(api.maps(), config("a"))
    for number in range(3):
        await api.patch(api.maps("a"), {"data": {"x": str(number)}})
    await api.ok("DELETE", api.maps("a"))
    async with await api.watch(api.maps(), resourceVersion=since) as watch:
        events = [await watch.next() for _ in range(5)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)) and versions[0] > int(since)
    assert events[-1]["type"] == "DELETED" and events[-1]["object"]["data"] == {"x": "2"}


async def test_events_carry_whole_objects(api: Api) -> None:
    since = await version(api)
    made = await api.create(api.maps(), config("a", data={"x": "1"}))
    async with await api.watch(api.maps(), resourceVersion=since) as watch:
        event = await watch.next()
    assert event == {"type": "ADDED", "object": made}


async def test_a_watch_without_a_version_begins_with_the_current_objects(api: Api) -> None:
    await api.create(api.maps(), config("a"))
    await api.create(api.maps(), config("b"))
    for query in ({}, {"resourceVersion": "0"}):
        async with await api.watch(api.maps(), fieldSelector=OWN, **query) as watch:
            assert sorted(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
            await api.patch(api.maps("a"), {"data": {"x": str(query)}})
            assert await watch.take(1) == [("MODIFIED", "a")]


async def test_leaving_a_selection_is_a_deletion(api: Api) -> None:
    since = await version(api)
    async with await api.watch(api.maps(), resourceVersion=since, labelSelector="a=1") as watch:
        await api.create(api.maps(), config("c", labels={"a": "1"}))
        await api.create(api.maps(), config("never", labels={"a": "2"}))
        await api.patch(api.maps("c"), {"metadata": {"labels": {"a": "2"}}})
        await api.patch(api.maps("c"), {"data": {"unseen": "1"}})
        await api.patch(api.maps("c"), {"metadata": {"labels": {"a": "1"}}})
        assert await watch.take(3) == [("ADDED", "c"), ("DELETED", "c"), ("ADDED", "c")]


async def test_fields_select_in_a_watch(api: Api) -> None:
    listed = await api.get(api.pods())
    since = listed["metadata"]["resourceVersion"]
    field = f"spec.nodeName={api.own('mac-1')}"
    async with await api.watch(api.pods(), resourceVersion=since, fieldSelector=field) as watch:
        await api.create(api.pods(), pod("other", nodeName=api.own("mac-2")))
        await api.create(api.pods(), pod("mine", nodeName=api.own("mac-1")))
        assert await watch.take(1) == [("ADDED", "mine")]


async def test_one_object_can_be_watched(api: Api) -> None:
    await api.create(api.maps(), config("a"))
    since = await version(api)
    field = "metadata.name=a"
    async with await api.watch(api.maps(), resourceVersion=since, fieldSelector=field) as watch:
        await api.create(api.maps(), config("b"))
        await api.ok("DELETE", api.maps("a"))
        assert await watch.take(1) == [("DELETED", "a")]


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.create(api.maps(), config("a"))
    await api.create(api.maps(), config("b"))
    options = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with await api.watch(api.maps(), fieldSelector=OWN, **options) as watch:
        first = [await watch.next() for _ in range(2)]
        assert sorted(event["object"]["metadata"]["name"] for event in first) == ["a", "b"]
        assert {event["type"] for event in first} == {"ADDED"}
        mark = await watch.next()
        assert mark["type"] == "BOOKMARK" and mark["object"]["kind"] == "ConfigMap"
        meta = mark["object"]["metadata"]
        assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
        newest = max(int(event["object"]["metadata"]["resourceVersion"]) for event in first)
        assert int(meta["resourceVersion"]) >= newest
        await api.create(api.maps(), config("c"))
        assert await watch.take(1) == [("ADDED", "c")]


async def test_initial_events_need_a_match(api: Api) -> None:
    options = {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    assert await api.refused("GET", api.maps(), **options) == (422, "Invalid")


async def test_a_match_without_initial_events_is_no_watch(api: Api) -> None:
    options = {"watch": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}
    assert await api.refused("GET", api.maps(), **options) == (422, "Invalid")


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    since = await version(api)
    async with await api.watch(api.maps(), resourceVersion=since, timeoutSeconds=1) as watch:
        events = await watch.rest()
    assert [event for event in events if event["type"] != "BOOKMARK"] == []


async def test_a_watch_can_resume_from_any_event(api: Api) -> None:
    since = await version(api)
    for name in ("a", "b", "c"):
        await api.create(api.maps(), config(name))
    async with await api.watch(api.maps(), resourceVersion=since) as watch:
        first = await watch.next()
    middle = first["object"]["metadata"]["resourceVersion"]
    async with await api.watch(api.maps(), resourceVersion=middle) as watch:
        assert await watch.take(2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_an_invalid_version_is_refused(api: Api) -> None:
    answer = await api.call("GET", api.maps(), watch="true", resourceVersion="abc")
    assert answer.status >= 400


async def test_an_unsupported_field_cannot_be_watched(api: Api) -> None:
    result = await api.refused("GET", api.pods(), watch="true", fieldSelector="spec.nonsense=x")
    assert result == (400, "BadRequest")


async def test_a_watch_can_be_a_table(api: Api) -> None:
    since = await version(api)
    async with await api.watch(api.maps(), resourceVersion=since, accept=TABLE) as watch:
        await api.create(api.maps(), config("a", data={"x": "1"}))
        event = await watch.next()
        assert event["type"] == "ADDED" and event["object"]["kind"] == "Table"
        assert event["object"]["columnDefinitions"]
        assert event["object"]["rows"][0]["cells"][:2] == ["a", 1]
        await api.patch(api.maps("a"), {"data": {"y": "1"}})
        event = await watch.next()
        assert event["type"] == "MODIFIED"
        assert event["object"]["rows"][0]["cells"][:2] == ["a", 2]


async def test_the_last_event_of_a_pod_shows_its_deletion(api: Api) -> None:
    await api.create(api.pods(), pod("p", nodeName=api.own("mac-1")))
    listed = await api.get(api.pods())
    since = listed["metadata"]["resourceVersion"]
    async with await api.watch(api.pods(), resourceVersion=since) as watch:
        await api.ok("DELETE", api.pods("p"))
        first = await watch.next()
        assert first["type"] == "MODIFIED"
        assert first["object"]["metadata"]["deletionTimestamp"]
        await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
        events = [await watch.next()]
        while events[-1]["type"] != "DELETED":
            events.append(await watch.next())
        assert events[-1]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
