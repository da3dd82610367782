"""Lists: selectors and pages."""

import pytest
from tests.embedded.kube.coresupport import MAPS, NODES, PODS, Harness, node, play, pod

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


async def populated(harness: Harness) -> None:
    labels = {
        "a": {"app": "x", "tier": "one"},
        "b": {"app": "x", "tier": "two"},
        "c": {"app": "y", "empty": ""},
        "d": {},
    }
    await harness.ok("POST", NODES, node())
    for name, marks in labels.items():
        await harness.ok("POST", PODS, pod(name, meta={"labels": marks}))
    await harness.ok(
        "POST", f"{PODS}/d/binding", {"metadata": {"name": "d"}, "target": {"name": "n1"}}
    )
    await harness.merge(f"{PODS}/d/status", {"status": {"phase": "Running"}})


@pytest.mark.parametrize("case", SELECTORS)
def test_a_selector_finds_exactly_its_objects(case: str) -> None:
    parameter, text, expected = SELECTORS[case]

    async def scenario(harness: Harness) -> None:
        await populated(harness)
        found = await harness.ok("GET", PODS, **{parameter: text})
        assert [item["metadata"]["name"] for item in found["items"]] == expected
        everywhere = await harness.ok("GET", "/api/v1/pods", **{parameter: text})
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
    async def scenario(harness: Harness) -> None:
        assert await harness.refused("GET", PODS, **{parameter: text}) == (400, "BadRequest")

    play(scenario)


def test_pages_show_one_snapshot_while_objects_change() -> None:
    async def scenario(harness: Harness) -> None:
        for index in range(10):
            await harness.ok(
                "POST", MAPS, {"metadata": {"name": f"m{index}"}, "data": {"v": "old"}}
            )
        page = await harness.ok("GET", MAPS, limit=4)
        version = page["metadata"]["resourceVersion"]
        assert page["metadata"]["remainingItemCount"] == 6
        names = [item["metadata"]["name"] for item in page["items"]]
        await harness.ok("DELETE", f"{MAPS}/m5")
        await harness.merge(f"{MAPS}/m6", {"data": {"v": "new"}})
        await harness.ok("POST", MAPS, {"metadata": {"name": "m55"}})
        while token := page["metadata"].get("continue"):
            page = await harness.ok("GET", MAPS, limit=4, **{"continue": token})
            assert page["metadata"]["resourceVersion"] == version
            assert all(item["data"] == {"v": "old"} for item in page["items"])
            names += [item["metadata"]["name"] for item in page["items"]]
        assert names == [f"m{index}" for index in range(10)]

    play(scenario)


def test_a_page_from_before_compaction_gets_410() -> None:
    async def scenario(harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.ok("POST", MAPS, {"metadata": {"name": name}})
        page = await harness.ok("GET", MAPS, limit=1)
        await harness.ok("DELETE", f"{MAPS}/c")
        harness.core.compact()
        token = page["metadata"]["continue"]
        assert await harness.refused("GET", MAPS, limit=1, **{"continue": token}) == (
            410,
            "Expired",
        )

    play(scenario)


def test_an_expired_page_can_continue_inconsistently() -> None:
    """The 410 has a token that continues in the current state, which is consistent from then on."""

    async def scenario(harness: Harness) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await harness.ok("POST", MAPS, {"metadata": {"name": name}})
        page = await harness.ok("GET", MAPS, limit=2)
        await harness.ok("DELETE", f"{MAPS}/c")
        harness.core.compact()
        token = page["metadata"]["continue"]
        answer = (await harness.call("GET", MAPS, limit=1, **{"continue": token})).json()
        assert (answer["code"], answer["reason"]) == (410, "Expired")
        inconsistent_token = answer["metadata"]["continue"]
        rest = await harness.ok("GET", MAPS, limit=1, **{"continue": inconsistent_token})
        assert [item["metadata"]["name"] for item in rest["items"]] == ["d"]
        assert rest["metadata"]["resourceVersion"] == str(harness.core.version)
        await harness.ok("DELETE", f"{MAPS}/e")
        last = await harness.ok("GET", MAPS, **{"continue": rest["metadata"]["continue"]})
        assert [item["metadata"]["name"] for item in last["items"]] == ["e"]

    play(scenario)


@pytest.mark.parametrize("query", [{"limit": 1}, {"resourceVersionMatch": "Exact"}])
def test_a_version_older_than_history_cannot_be_listed(query: dict[str, object]) -> None:
    async def scenario(harness: Harness) -> None:
        old = harness.core.version
        await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        harness.core.compact()
        answer = await harness.refused("GET", MAPS, resourceVersion=old, **query)
        assert answer == (410, "Expired")
        newer = await harness.ok("GET", MAPS, resourceVersion=old)
        assert newer["metadata"]["resourceVersion"] == str(harness.core.version)

    play(scenario)


def test_an_empty_list_has_a_version_to_watch_from() -> None:
    async def scenario(harness: Harness) -> None:
        found = await harness.ok("GET", PODS)
        assert found["items"] == [] and found["kind"] == "PodList"
        assert int(found["metadata"]["resourceVersion"]) == harness.core.version
        too_new = str(harness.core.version + 1)
        assert await harness.refused("GET", PODS, resourceVersion=too_new) == (504, "Timeout")

    play(scenario)
