"""RunnerPool as shipped: the requests of the components and of kubectl."""

from typing import Any

import pytest
from tests.conformance.kube.kit import APPLY, JSON_PATCH, TABLE, Api, Json, causes

from runyard.wire import manifests, names

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = f"{names.GROUP}/{names.VERSION}"


async def path_of(api: Api, name: str = "", sub: str = "") -> str:
    """Where pools are; the kind is installed where it does not come with the server."""
    path = api.path(names.POOL_PLURAL, group=GROUP)

    async def served() -> bool | None:
        return (await api.call("GET", path)).status == 200 or None

    if not await served():
        for definition in manifests.definitions():
            assert (await api.call("POST", CRDS, definition)).status in (201, 409)
        await api.eventually(served)
    return api.path(names.POOL_PLURAL, name, sub, group=GROUP)


def pool(name: str = "mac", **spec: Any) -> Json:
    wanted = {"image": "vm:1", "fleetSelector": "minis", "dispatchLabel": name, **spec}
    return {
        "apiVersion": GROUP,
        "kind": names.POOL_KIND,
        "metadata": {"name": name},
        "spec": {"runnerLabels": ["self-hosted"], **wanted},
    }


async def test_a_pool_has_its_defaults_and_only_known_fields(api: Api) -> None:
    made = await api.create(await path_of(api), pool(surprise=1), fieldValidation="Ignore")
    assert "surprise" not in made["spec"]
    assert (made["spec"]["replicas"], made["spec"]["os"]) == (0, "darwin")
    assert made["metadata"]["generation"] == 1
    found = await api.get(await path_of(api, "mac"))
    assert found == made


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"os": "windows"}, "spec.os"),
        ({"image": None}, "spec.image"),
        ({"runnerLabels": "one"}, "spec.runnerLabels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wrong_pool_is_refused_with_the_field(api: Api, spec: Json, field: str) -> None:
    answer = await api.why("POST", await path_of(api), pool(**spec))
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert field in [name for _, name in causes(answer)]


async def test_spec_and_status_are_written_separately(api: Api) -> None:
    await api.create(await path_of(api), pool())
    path = await path_of(api, "mac")
    both = {"spec": {"replicas": 2}, "status": {"observedReplicas": 9}}
    changed = await api.patch(path, both)
    assert changed["metadata"]["generation"] == 2 and "status" not in changed
    both["spec"]["replicas"] = 5
    changed = await api.patch(await path_of(api, "mac", "status"), both)
    assert changed["status"]["observedReplicas"] == 9 and changed["spec"]["replicas"] == 2
    assert changed["metadata"]["generation"] == 2
    answer = await api.get(await path_of(api, "mac", "status"))
    assert answer == changed
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert (await api.patch(path, steps, JSON_PATCH))["spec"]["replicas"] == 4


async def test_a_pool_is_scaled(api: Api) -> None:
    await api.create(await path_of(api), pool(replicas=1))
    seen = {"status": {"observedReplicas": 1}}
    await api.patch(await path_of(api, "mac", "status"), seen)
    scale = await api.get(await path_of(api, "mac", "scale"))
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 1},
    )
    answer = await api.patch(await path_of(api, "mac", "scale"), {"spec": {"replicas": 3}})
    assert answer["spec"] == {"replicas": 3}
    assert (await api.get(await path_of(api, "mac")))["spec"]["replicas"] == 3


async def test_a_pool_is_applied_by_two_conflicting_managers(api: Api) -> None:
    path = await path_of(api, "mac")
    await api.apply(path, pool(replicas=1), "chart")
    only = {"apiVersion": GROUP, "kind": names.POOL_KIND, "metadata": {"name": "mac"}}
    other = {**only, "spec": {"replicas": 7}}
    answer = await api.why("PATCH", path, other, kind=APPLY, fieldManager="somebody")
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    assert causes(answer) == [("FieldManagerConflict", ".spec.replicas")]
    forced = await api.apply(path, other, "somebody", force="true")
    assert forced["spec"]["replicas"] == 7 and forced["spec"]["image"] == "vm:1"
    again = await api.apply(path, other, "somebody")
    assert again["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]


async def test_pools_are_listed_watched_and_shown(api: Api) -> None:
    path = await path_of(api)
    listed = await api.get(path)
    assert listed["kind"] == f"{names.POOL_KIND}List" and listed["items"] == []
    start = listed["metadata"]["resourceVersion"]
    await api.create(path, pool(replicas=2))
    await api.patch(await path_of(api, "mac", "status"), {"status": {"observedReplicas": 1}})
    table = await api.get(path, accept=TABLE)
    heads = [item["name"] for item in table["columnDefinitions"] if not item["priority"]]
    assert heads == ["Name", "Replicas", "Observed", "DispatchLabel", "Age"]
    assert table["rows"][0]["cells"][:4] == ["mac", 2, 1, "mac"]
    await api.ok("DELETE", await path_of(api, "mac"))
    async with await api.watch(path, resourceVersion=start, timeoutSeconds=20) as watch:
        assert [kind for kind, _ in await watch.take(3)] == ["ADDED", "MODIFIED", "DELETED"]
    assert (await api.call("GET", await path_of(api, "mac"))).status == 404


@pytest.mark.parametrize(
    ("sub", "aside", "kept"),
    [
        ("", {"status": {"observedReplicas": "two"}}, False),
        ("status", {"spec": {"replicas": "two"}}, False),
        ("status", {"spec": {"runnerLabels": [1]}}, False),
        ("status", {"spec": {"runnerLabels": ["a", "a"]}}, True),
        ("status", {"spec": {"replicas": -1, "os": "plan9"}}, True),
    ],
)
async def test_an_invalid_unvalidated_part_drops_managed_fields(
    api: Api, sub: str, aside: Json, kept: bool
) -> None:
    made = await api.create(await path_of(api), pool())
    answer = await api.patch(await path_of(api, "mac", sub), aside)
    assert ("managedFields" in answer["metadata"]) is kept
    assert {key: answer[key] for key in ("spec", "kind")} == {
        "spec": made["spec"],
        "kind": "RunnerPool",
    }
    versions = [each["metadata"]["resourceVersion"] for each in (made, answer)]
    assert (versions[0] == versions[1]) is kept
    made = await api.create(await path_of(api), pool("new") | aside) if not sub else made
    assert sub or "managedFields" not in made["metadata"]
