"""Lists: selectors and pages."""

import pytest
from tests.embedded.kube.coresupport import MAPS, NODES, PODS, World, node, play, pod

SELECTORS = {
    "equal": ("labelSelector", "app=x", ["a", "b"]),
    "double equal": ("labelSelector", "app==x", ["a", "b"]),
    "not equal matches absence": ("labelSelector", "app!=x", ["c", "d"]),
    "in": ("labelSelector", "tier in (one, two)", ["a", "b"]),
    "notin": ("labelSelector", "tier notin (one)", ["b", "c", "d"]),
    "exists": ("labelSelector", "tier", ["a", "b"]),
    "absent": ("labelSelector", "!tier", ["c", "d"]),
    "several": ("labelSelector", "app=x,tier in (two),!gone", ["b"]),
    "empty value": ("labelSelector", "empty=", ["c"]),
    "name": ("fieldSelector", "metadata.name=b", ["b"]),
    "not name": ("fieldSelector", "metadata.name!=b", ["a", "c", "d"]),
    "node": ("fieldSelector", "spec.nodeName=n1", ["d"]),
    "no node": ("fieldSelector", "spec.nodeName=", ["a", "b", "c"]),
    "phase": ("fieldSelector", "status.phase!=Pending", ["d"]),
    "namespace": ("fieldSelector", "metadata.namespace=default,metadata.name=a", ["a"]),
}


async def populated(world: World) -> None:
    labels = {
        "a": {"app": "x", "tier": "one"},
        "b": {"app": "x", "tier": "two"},
        "c": {"app": "y", "empty": ""},
        "d": {},
    }
    await world.ok("POST", NODES, node())
    for name, marks in labels.items():
        await world.ok("POST", PODS, pod(name, meta={"labels": marks}))
    await world.ok(
        "POST", f"{PODS}/d/binding", {"metadata": {"name": "d"}, "target": {"name": "n1"}}
    )
    await world.merge(f"{PODS}/d/status", {"status": {"phase": "Running"}})


@pytest.mark.parametrize("case", SELECTORS)
def test_a_selector_finds_exactly_its_objects(case: str) -> None:
    parameter, text, expected = SELECTORS[case]

    async def scenario(world: World) -> None:
        await populated(world)
        found = await world.ok("GET", PODS, **{parameter: text})
        assert [item["metadata"]["name"] for item in found["items"]] == expected
        everywhere = await world.ok("GET", "/api/v1/pods", **{parameter: text})
        assert everywhere["items"] == found["items"]

    play(scenario, schedule=False)


BAD = [
    ("labelSelector", "a=b=c"),
    ("labelSelector", "a in b"),
    ("labelSelector", ","),
    ("labelSelector", "a=b c"),
    ("fieldSelector", "spec.color=red"),
    ("fieldSelector", "metadata.name"),
    ("limit", "many"),
    ("resourceVersion", "-1"),
    ("continue", "???"),
    ("continue", "e30="),
]


@pytest.mark.parametrize(("parameter", "text"), BAD)
def test_a_malformed_parameter_is_a_400(parameter: str, text: str) -> None:
    async def scenario(world: World) -> None:
        assert await world.refused("GET", PODS, **{parameter: text}) == (400, "BadRequest")

    play(scenario)


def test_pages_show_one_snapshot_while_objects_change() -> None:
    async def scenario(world: World) -> None:
        for index in range(10):
            await world.ok("POST", MAPS, {"metadata": {"name": f"m{index}"}, "data": {"v": "old"}})
        page = await world.ok("GET", MAPS, limit=4)
        version = page["metadata"]["resourceVersion"]
        assert page["metadata"]["remainingItemCount"] == 6
        names = [item["metadata"]["name"] for item in page["items"]]
        await world.ok("DELETE", f"{MAPS}/m5")
        await world.merge(f"{MAPS}/m6", {"data": {"v": "new"}})
        await world.ok("POST", MAPS, {"metadata": {"name": "m55"}})
        while token := page["metadata"].get("continue"):
            page = await world.ok("GET", MAPS, limit=4, **{"continue": token})
            assert page["metadata"]["resourceVersion"] == version
            assert all(item["data"] == {"v": "old"} for item in page["items"])
            names += [item["metadata"]["name"] for item in page["items"]]
        assert names == [f"m{index}" for index in range(10)]

    play(scenario)


def test_a_page_from_before_compaction_gets_410() -> None:
    async def scenario(world: World) -> None:
        for name in ("a", "b", "c"):
            await world.ok("POST", MAPS, {"metadata": {"name": name}})
        page = await world.ok("GET", MAPS, limit=1)
        await world.ok("DELETE", f"{MAPS}/c")
        world.core.compact()
        token = page["metadata"]["continue"]
        assert await world.refused("GET", MAPS, limit=1, **{"continue": token}) == (410, "Expired")

    play(scenario)


def test_an_expired_page_can_continue_inconsistently() -> None:
    """The refusal carries a token that shows the rest as it is now, and then is consistent again."""

    async def scenario(world: World) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await world.ok("POST", MAPS, {"metadata": {"name": name}})
        page = await world.ok("GET", MAPS, limit=2)
        await world.ok("DELETE", f"{MAPS}/c")
        world.core.compact()
        token = page["metadata"]["continue"]
        told = (await world.call("GET", MAPS, limit=1, **{"continue": token})).json()
        assert (told["code"], told["reason"]) == (410, "Expired")
        seam = told["metadata"]["continue"]
        rest = await world.ok("GET", MAPS, limit=1, **{"continue": seam})
        assert [item["metadata"]["name"] for item in rest["items"]] == ["d"]
        assert rest["metadata"]["resourceVersion"] == str(world.core.version)
        await world.ok("DELETE", f"{MAPS}/e")
        last = await world.ok("GET", MAPS, **{"continue": rest["metadata"]["continue"]})
        assert [item["metadata"]["name"] for item in last["items"]] == ["e"]

    play(scenario)


@pytest.mark.parametrize("query", [{"limit": 1}, {"resourceVersionMatch": "Exact"}])
def test_a_version_older_than_history_cannot_be_listed(query: dict[str, object]) -> None:
    async def scenario(world: World) -> None:
        old = world.core.version
        await world.ok("POST", MAPS, {"metadata": {"name": "a"}})
        world.core.compact()
        told = await world.refused("GET", MAPS, resourceVersion=old, **query)
        assert told == (410, "Expired")
        newer = await world.ok("GET", MAPS, resourceVersion=old)
        assert newer["metadata"]["resourceVersion"] == str(world.core.version)

    play(scenario)


def test_an_empty_list_has_a_version_to_watch_from() -> None:
    async def scenario(world: World) -> None:
        found = await world.ok("GET", PODS)
        assert found["items"] == [] and found["kind"] == "PodList"
        assert int(found["metadata"]["resourceVersion"]) == world.core.version
        too_new = str(world.core.version + 1)
        assert await world.refused("GET", PODS, resourceVersion=too_new) == (504, "Timeout")

    play(scenario)
