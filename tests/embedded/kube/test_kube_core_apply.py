"""Server-side apply and the ownership of fields."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import (
    APPLY,
    MAPS,
    NODES,
    PODS,
    POOLS,
    Harness,
    node,
    play,
    pod,
    pool,
    with_type,
)

from runyard.embedded.kube.patches.fields import (
    Fields,
    applied,
    changes,
    minus,
    overlap,
    union,
    written,
)
from runyard.embedded.kube.patches.merging import merge, without
from runyard.embedded.kube.schema import model

A = f"{MAPS}/a"


def managers(obj: dict[str, Any]) -> dict[str, Any]:
    return {item["manager"]: item["fieldsV1"] for item in obj["metadata"].get("managedFields", [])}


def data(**values: str) -> dict[str, Any]:
    return {"data": values}


def test_an_apply_creates_then_owns_its_fields() -> None:
    async def scenario(harness: Harness) -> None:
        answer = await harness.call(
            "PATCH", A, with_type(A, data(x="1")), kind=APPLY, fieldManager="one"
        )
        assert answer.status == 201
        assert managers(answer.json()) == {"one": {"f:data": {"f:x": {}}}}
        before = harness.core.version
        await harness.apply(A, data(x="1"), "one")
        assert harness.core.version == before
        assert await harness.refused("PATCH", A, with_type(A, {}), kind=APPLY) == (422, "Invalid")
        code = await harness.refused("PATCH", A, {}, kind=APPLY, fieldManager="one")
        assert code == (400, "BadRequest")

    play(scenario)


def test_a_field_that_is_no_longer_applied_is_removed() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.apply(A, data(x="1", y="2"), "one")
        await harness.apply(A, data(y="2", z="3"), "two")
        after = await harness.apply(A, data(z="3"), "one")
        assert after["data"] == {"y": "2", "z": "3"}
        last = await harness.apply(A, {"metadata": {"labels": {"l": "v"}}}, "two")
        assert last["data"] == {"z": "3"}

    play(scenario)


def test_another_managers_field_is_a_conflict_unless_forced() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.apply(A, data(x="1", y="1"), "one")
        answer = await harness.call(
            "PATCH", A, with_type(A, data(x="2")), kind=APPLY, fieldManager="two"
        )
        assert answer.status == 409
        cause = answer.json()["details"]["causes"][0]
        assert cause == {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one"',
            "field": ".data.x",
        }
        taken = await harness.apply(A, data(x="2"), "two", force="true")
        assert taken["data"] == {"x": "2", "y": "1"}
        assert managers(taken) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}}}}

    play(scenario)


def test_a_patch_owns_the_fields_it_changes() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.apply(A, data(x="1", y="1"), "one")
        await harness.merge(A, data(x="2"), agent="hand")
        body = with_type(A, data(x="1", y="1"))
        code = await harness.refused("PATCH", A, body, kind=APPLY, fieldManager="one")
        assert code == (409, "Conflict")
        same = await harness.apply(A, data(x="2", y="1"), "one")
        assert managers(same)["one"] == {"f:data": {"f:x": {}, "f:y": {}}}
        gone = await harness.merge(A, {"data": {"x": None}}, agent="hand")
        assert managers(gone) == {"one": {"f:data": {"f:y": {}}}}

    play(scenario)


def test_list_items_are_owned_by_their_key() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        status = f"{NODES}/n1/status"

        def condition(kind: str, value: str) -> dict[str, Any]:
            return {"status": {"conditions": [{"type": kind, "status": value}]}}

        await harness.apply(status, condition("DiskPressure", "False"), "disk")
        after = await harness.apply(status, condition("Warm", "True"), "warm")
        kinds = [item["type"] for item in after["status"]["conditions"]]
        assert kinds == ["Ready", "DiskPressure", "Warm"]
        after = await harness.apply(status, condition("DiskPressure", "True"), "disk")
        assert [item["status"] for item in after["status"]["conditions"]] == ["True"] * 3
        after = await harness.apply(status, {"status": {}}, "warm")
        kinds = [item["type"] for item in after["status"]["conditions"]]
        assert kinds == ["Ready", "DiskPressure"]

    play(scenario)


def test_finalizers_are_a_set_that_managers_share() -> None:
    async def scenario(harness: Harness) -> None:
        one = {"metadata": {"finalizers": ["example.com/one"]}}
        await harness.apply(A, one, "one")
        two = {"metadata": {"finalizers": ["example.com/two"]}}
        both = await harness.apply(A, two, "two")
        assert both["metadata"]["finalizers"] == ["example.com/one", "example.com/two"]
        left = await harness.apply(A, data(x="1"), "one")
        assert left["metadata"]["finalizers"] == ["example.com/two"]

    play(scenario)


def test_lists_of_a_custom_resource_are_one_value() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.apply(f"{POOLS}/mac", pool(), "chart")
        body = {"spec": {"runnerLabels": ["other"]}}
        path = f"{POOLS}/mac"
        code = await harness.refused(
            "PATCH", path, with_type(path, body), kind=APPLY, fieldManager="hand"
        )
        assert code == (409, "Conflict")
        replicas = await harness.apply(path, {"spec": {"replicas": 4}}, "autoscaler")
        assert replicas["spec"]["replicas"] == 4 and replicas["metadata"]["generation"] == 2
        again = await harness.apply(path, pool(), "chart")
        assert again["spec"]["replicas"] == 4

    play(scenario)


def test_status_and_spec_are_applied_apart() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", PODS, pod("a"))
        body = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
        status = await harness.apply(f"{PODS}/a/status", body, "agent")
        assert status["status"]["phase"] == "Running"
        assert status["metadata"]["labels"] == {"x": "y"}
        plain = await harness.apply(f"{PODS}/a", body | {"status": {"phase": "Failed"}}, "agent")
        assert plain["status"]["phase"] == "Running" and plain["metadata"]["labels"] == {"x": "y"}
        found = [item for item in plain["metadata"]["managedFields"] if item["manager"] == "agent"]
        assert [item.get("subresource") for item in found] == [None, "status"]
        path = f"{PODS}/b/status"
        code = await harness.refused(
            "PATCH", path, with_type(path, {}), kind=APPLY, fieldManager="x"
        )
        assert code == (404, "NotFound")

    play(scenario, schedule=False)


def test_preconditions_hold_for_an_apply_too() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.apply(A, data(x="1"), "one")
        for key, expected in (("uid", (422, "Invalid")), ("resourceVersion", (409, "Conflict"))):
            body = with_type(A, {"metadata": {key: "1"}} | data(x="2"))
            code = await harness.refused("PATCH", A, body, kind=APPLY, fieldManager="one")
            assert code == expected
        await harness.ok("DELETE", A)
        again = with_type(A, {"metadata": {"uid": made["metadata"]["uid"]}} | data(x="2"))
        code = await harness.refused("PATCH", A, again, kind=APPLY, fieldManager="one")
        assert code == (409, "Conflict")

    play(scenario)


NAMES = st.sampled_from("abc")
WORDS = st.sampled_from(["1", "2"])
VARIABLES = st.dictionaries(NAMES, WORDS, max_size=3).map(
    lambda items: [{"name": name, "value": value} for name, value in items.items()]
)
CONTAINERS = st.dictionaries(NAMES, VARIABLES, max_size=3).map(
    lambda items: [{"name": name, "image": "i", "env": env} for name, env in items.items()]
)
POD_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": CONTAINERS,
        "nodeSelector": st.dictionaries(NAMES, WORDS, max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=2),
        "restartPolicy": WORDS,
    },
)
TREE = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "k:{}"]), inner),
    max_leaves=8,
)


@given(TREE, TREE)
def test_field_sets_obey_set_algebra(one: Fields, two: Fields) -> None:
    assert union(one, one) is one and union(one, {}) is one
    assert minus(one, one) == {} and minus(one, {}) is one
    assert overlap(minus(one, two), two) == {}
    assert minus(one, union(one, two)) == {}


@given(TREE, TREE, TREE)
def test_field_set_operations_do_not_depend_on_order(
    one: Fields, two: Fields, three: Fields
) -> None:
    assert union(one, two) == union(two, one)
    assert union(union(one, two), three) == union(one, union(two, three))
    assert minus(minus(one, two), three) == minus(one, union(two, three))
    assert overlap(one, two) == overlap(two, one)
    assert union(minus(one, two), overlap(one, two)) == one


@given(POD_SPECS, POD_SPECS, st.booleans())
def test_a_difference_is_empty_only_for_equal_objects(
    old: dict[str, Any], new: dict[str, Any], custom: bool
) -> None:
    kind = model.of_definition("Thing", None) if custom else model.named("Pod")
    before, after = {"metadata": {}, "spec": old}, {"metadata": {}, "spec": new}
    assert changes(kind, old=before, new=before) == ({}, {})
    changed, removed = changes(kind, old=before, new=after)
    assert (not changed and not removed) == (
        _sorted(old) == _sorted(new) if not custom else old == new
    )
    assert minus(changed, written(kind, after)) == {}
    assert minus(removed, written(kind, before)) == {}


@given(POD_SPECS, POD_SPECS)
def test_an_applied_value_is_present_and_can_be_removed_again(
    live: dict[str, Any], body: dict[str, Any]
) -> None:
    """After an apply all of its values are present; after their removal none of them is left."""
    kind = model.named("Pod")
    before, wanted = {"spec": {"dnsPolicy": "x"} | live}, {"spec": {"dnsPolicy": "y"} | body}
    merged = merge(kind, before, wanted)
    assert merge(kind, merged, wanted) is merged
    applied_fields, held = applied(kind, wanted) or {}, applied(kind, before) or {}
    assert minus(union(applied_fields, held), applied(kind, merged) or {}) == {}
    left = without(kind, merged, applied_fields, held)
    assert minus(applied(kind, left) or {}, union(held, {"f:spec": {}})) == {}


def _sorted(spec: dict[str, Any]) -> Any:
    """A spec with the lists that have keys in the order of their keys."""
    given = sorted(spec.get("containers", []), key=lambda item: item["name"])
    given = [item | {"env": sorted(item["env"], key=lambda var: var["name"])} for item in given]
    return spec | ({"containers": given} if "containers" in spec else {})
