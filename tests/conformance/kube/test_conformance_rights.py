"""The authorized action is exactly the requested and the performed one."""

from typing import Any

import pytest
from tests.conformance.kube.kit import APPLY, Api, Json, config
from tests.conformance.kube.test_conformance_access import RBAC, account

LEASES = "coordination.k8s.io/v1"


def rule(resources: str, verbs: str, *, group: str = "", **more: list[str]) -> Json:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


async def is_watch(api: Api, *pairs: tuple[str, str]) -> bool:
    """Whether a read with those parameters is served as a watch."""
    answer = await api.call("GET", api.maps(), pairs=(("timeoutSeconds", "1"), *pairs))
    assert answer.status == 200, answer.body
    return b'"ADDED"' in answer.body and b'"ConfigMapList"' not in answer.body


WORDS = {
    "yes": ([("watch", "true")], True),
    "one": ([("watch", "1")], True),
    "no word": ([("watch", "")], True),
    "another word": ([("watch", "yes")], True),
    "no": ([("watch", "FALSE")], False),
    "zero": ([("watch", "0")], False),
    "yes and no": ([("watch", "true"), ("watch", "false")], True),
    "no and yes": ([("watch", "false"), ("watch", "true")], False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WORDS)
async def test_only_a_watch_needs_the_right_to_watch(api: Api, case: str) -> None:
    pairs, watches = WORDS[case]
    await api.create(api.maps(), config())
    reader = await account(api, "reader", [rule("configmaps", "list")])
    watcher = await account(api, "watcher", [rule("configmaps", "watch")])
    may, may_not = (watcher, reader) if watches else (reader, watcher)
    assert await is_watch(may, *pairs) is watches
    result = await may_not.why("GET", api.maps(), pairs=tuple(pairs))
    verb = "watch" if watches else "list"
    assert (result["code"], result["reason"]) == (403, "Forbidden")
    assert f'cannot {verb} resource "configmaps"' in result["message"]


SELECTORS: dict[str, tuple[list[str], int, str]] = {
    "the name": (["metadata.name=a"], 200, ""),
    "the name, in other words": (["metadata.name==a"], 200, ""),
    "another name": (["metadata.name=b"], 403, "b"),
    "any other name": (["metadata.name!=b"], 403, ""),
    "the name and more": (["metadata.name=a,metadata.name=b"], 200, ""),
    "the name first": (["metadata.name=a", "metadata.name=b"], 200, ""),
    "the name second": (["metadata.name=b", "metadata.name=a"], 403, "b"),
    "nothing first": (["", "metadata.name=a"], 403, ""),
    "a name with a comma": (["metadata.name=a\\,b"], 403, "a,b"),
    "a name with a space": (["metadata.name= a"], 403, " a"),
    "a field with a space": ([" metadata.name=a"], 403, ""),
}


@pytest.mark.parametrize("case", SELECTORS)
async def test_a_list_of_one_name_shows_that_name_alone(api: Api, case: str) -> None:
    selectors, code, name = SELECTORS[case]
    await api.create(api.maps(), config("a"))
    await api.create(api.maps(), config("b"))
    rules = [rule("configmaps", "get"), rule("configmaps", "list", resourceNames=["a"])]
    caller = await account(api, "named", rules)
    answer = await caller.call(
        "GET", caller.maps(), pairs=tuple(("fieldSelector", each) for each in selectors)
    )
    result: Json = answer.json()
    assert answer.status == code, result
    if code == 200:
        assert "b" not in [item["metadata"]["name"] for item in result["items"]]
    else:
        assert result["details"].get("name", "") == name


async def test_deletecollection_has_no_resource_name(api: Api) -> None:
    await api.create(api.maps(), config("a"))
    rules = [
        rule("configmaps", "get"),
        rule("configmaps", "deletecollection", resourceNames=["a"]),
    ]
    caller = await account(api, "named", rules)
    result = await caller.why("DELETE", caller.maps(), fieldSelector="metadata.name=a")
    assert result["message"].startswith("configmaps is forbidden: ")
    assert "a" in await api.names(api.maps())


def lease(**spec: Any) -> Json:
    return {"metadata": {"name": "x"}, "spec": spec}


def event(space: str) -> Json:
    about = {"kind": "Pod", "name": "p", "namespace": space}
    return {"metadata": {"name": "x"}, "involvedObject": about, "reason": "Test"}


MADE: dict[str, tuple[str, str]] = {
    "lease": ("leases", LEASES),
    "event": ("events", ""),
    "role": ("roles", RBAC),
}


@pytest.mark.parametrize("case", MADE)
async def test_a_put_that_creates_needs_the_right_to_create(api: Api, case: str) -> None:
    plural, group = MADE[case]
    body = {"lease": lease(), "event": event(api.space), "role": {"metadata": {"name": "x"}}}[case]
    kind = {"apiVersion": group or "v1", "kind": case.capitalize()}
    plain = group.partition("/")[0]
    caller = await account(api, "updater", [rule(plural, "update get", group=plain)])
    path = api.path(plural, "x", group=group)
    result = await caller.why("PUT", path, kind | body)
    assert result["code"] == 403
    assert f'cannot create resource "{plural}"' in result["message"]
    assert result["details"]["name"] == "x"
    assert (await api.call("GET", path)).status == 404
    assert (await api.call("PUT", path, kind | body)).status == 201
    changed = kind | body | {"metadata": {"name": "x", "labels": {"a": "b"}}}
    if case == "lease":
        version = (await api.get(path))["metadata"]["resourceVersion"]
        changed["metadata"]["resourceVersion"] = version
    assert (await caller.call("PUT", path, changed)).status == 200


async def test_validation_precedes_the_right_to_create(api: Api) -> None:
    rules = [rule("leases", "update", group="coordination.k8s.io")]
    caller = await account(api, "updater", rules)
    path = api.path("leases", "x", group=LEASES)
    wrong = {"apiVersion": LEASES, "kind": "Lease", **lease(leaseDurationSeconds=-1)}
    assert await caller.refused("PUT", path, wrong) == (422, "Invalid")


async def test_an_apply_that_creates_needs_the_right_to_create(api: Api) -> None:
    caller = await account(api, "patcher", [rule("configmaps", "patch")])
    body = config("x")
    for kind in (APPLY, f"{APPLY}; charset=utf-8"):
        result = await caller.why("PATCH", api.maps("x"), body, kind=kind, fieldManager="m")
        assert result["code"] == 403
        assert 'cannot create resource "configmaps"' in result["message"]
    await api.create(api.maps(), body)
    await caller.apply(api.maps("x"), body, "m")


@pytest.mark.parametrize("kind", ["Application/Apply-Patch+YAML", "Application/Merge-Patch+JSON"])
async def test_the_kind_of_a_patch_is_written_in_lower_case(api: Api, kind: str) -> None:
    answer = await api.call("PATCH", api.maps("x"), config("x"), kind=kind, fieldManager="m")
    assert answer.status == 415
    assert (await api.call("GET", api.maps("x"))).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/apis//v1/secrets",
        "/apis//v1/namespaces/{space}/secrets",
        "/api//v1/secrets",
        "/api/v1//secrets",
        "/api/v1/namespaces/{space}//secrets",
        "/api/v1/namespaces/{space}/configmaps//c",
        "/apis/coordination.k8s.io//leases",
    ],
)
async def test_a_path_with_an_empty_segment_is_not_found(api: Api, path: str) -> None:
    caller = await account(api, "anybody", [])
    assert (await caller.call("GET", path.format(space=api.space))).status in (403, 404)
    assert (await api.call("GET", path.format(space=api.space))).status == 404
