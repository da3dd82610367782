"""Custom kinds: defaults, pruning, checks, status, scale, columns, selectable fields."""

from typing import Any

import pytest
from tests.conformance.kube.kit import MERGE, STRATEGIC, TABLE, Api, Json, causes

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["image"],
            "properties": {
                "image": {"type": "string", "minLength": 1},
                "replicas": {"type": "integer", "minimum": 0, "default": 1},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "options": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "phase": {"type": "string"},
            },
        },
    },
}


class Kind:
    """A custom kind of one script, and where its objects are."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.group = f"{api.space}.example.com"
        self.name = f"gadgets.{self.group}"

    def path(self, name: str = "", sub: str = "") -> str:
        return self.api.path("gadgets", name, sub, group=f"{self.group}/v1")

    def crd(self, **version: Any) -> Json:
        served = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            **version,
        }
        names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["gd"]}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": names,
                "versions": [served],
            },
        }

    def gadget(self, name: str = "g", *, status: Json | None = None, **spec: Any) -> Json:
        body: Json = {
            "apiVersion": f"{self.group}/v1",
            "kind": "Gadget",
            "metadata": {"name": name},
            "spec": {"image": "vm:1", **spec},
        }
        return body if status is None else {**body, "status": status}

    async def install(self, **version: Any) -> "Kind":
        await self.api.create(CRDS, self.crd(**version))

        async def established() -> bool | None:
            found = await self.api.get(f"{CRDS}/{self.name}")
            given = {item["type"]: item["status"] for item in found["status"]["conditions"] or ()}
            if given.get("Established") != "True":
                return None
            return (await self.api.call("GET", self.path())).status == 200 or None

        await self.api.eventually(established)
        return self

    async def remove(self) -> None:
        await self.api.ok("DELETE", f"{CRDS}/{self.name}")


async def test_an_object_of_another_kind_is_invalid(api: Api) -> None:
    kind = await Kind(api).install()
    result = await api.why("POST", kind.path(), kind.gadget() | {"kind": "Other"})
    assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "kind")])
    assert await api.refused("POST", kind.path(), kind.gadget() | {"apiVersion": "v9"}) == (
        400,
        "BadRequest",
    )


async def test_a_custom_object_is_filled_in_and_pruned(api: Api) -> None:
    kind = await Kind(api).install()
    body = kind.gadget(surprise=1, free={"any": {"thing": 1}})
    made = await api.create(kind.path(), body)
    assert made["spec"] == {
        "image": "vm:1",
        "replicas": 1,
        "mode": "fast",
        "free": {"any": {"thing": 1}},
    }
    assert made["metadata"]["generation"] == 1
    await kind.remove()


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"image": None}, "FieldValueRequired", "spec.image"),
        ({"image": ""}, "FieldValueInvalid", "spec.image"),
        ({"replicas": -1}, "FieldValueInvalid", "spec.replicas"),
        ({"mode": "odd"}, "FieldValueNotSupported", "spec.mode"),
        ({"replicas": "two"}, "FieldValueTypeInvalid", "spec.replicas"),
        ({"tags": ["a", "b", "c"]}, "FieldValueTooMany", "spec.tags"),
        ({"options": {"a": 1}}, "FieldValueTypeInvalid", "spec.options.a"),
    ],
    ids=["missing", "empty", "negative", "enum", "type", "long", "map"],
)
async def test_a_custom_object_is_checked(api: Api, spec: Json, reason: str, field: str) -> None:
    kind = await Kind(api).install()
    body = kind.gadget(**spec)
    body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
    result = await api.why("POST", kind.path(), body)
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert (reason, field) in causes(result)
    await kind.remove()


async def test_status_is_written_through_its_subresource_only(api: Api) -> None:
    kind = await Kind(api).install(subresources={"status": {}})
    made = await api.create(kind.path(), kind.gadget(status={"phase": "early"}))
    assert "status" not in made
    result = await api.patch(
        kind.path("g", "status"), {"status": {"phase": "ready"}, "spec": {"image": "x"}}
    )
    assert result["status"] == {"phase": "ready"} and result["spec"]["image"] == "vm:1"
    assert result["metadata"]["generation"] == 1
    result = await api.patch(
        kind.path("g"), {"status": {"phase": "lost"}, "spec": {"image": "vm:2"}}
    )
    assert result["status"] == {"phase": "ready"} and result["spec"]["image"] == "vm:2"
    assert result["metadata"]["generation"] == 2
    result = await api.patch(kind.path("g"), {"metadata": {"labels": {"a": "b"}}})
    assert result["metadata"]["generation"] == 2
    await kind.remove()


async def test_without_the_subresource_status_is_plain(api: Api) -> None:
    kind = await Kind(api).install()
    made = await api.create(kind.path(), kind.gadget(status={"phase": "early"}))
    assert made["status"] == {"phase": "early"}
    assert (await api.call("GET", kind.path("g", "status"))).status == 404
    await kind.remove()


async def test_scale_shows_and_sets_replicas(api: Api) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    kind = await Kind(api).install(subresources={"status": {}, "scale": scale})
    await api.create(kind.path(), kind.gadget(replicas=3))
    result = await api.get(kind.path("g", "scale"))
    assert (result["kind"], result["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert result["spec"] == {"replicas": 3} and result["status"] == {"replicas": 0}
    result = await api.patch(kind.path("g", "scale"), {"spec": {"replicas": 5}})
    assert result["spec"] == {"replicas": 5}
    assert (await api.get(kind.path("g")))["spec"]["replicas"] == 5
    await kind.remove()


async def test_a_custom_kind_has_its_own_columns(api: Api) -> None:
    columns = [
        {"name": "Image", "type": "string", "jsonPath": ".spec.image"},
        {"name": "Wide", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    ]
    kind = await Kind(api).install(additionalPrinterColumns=columns)
    await api.create(kind.path(), kind.gadget())
    table = await api.get(kind.path(), accept=TABLE)
    assert [item["name"] for item in table["columnDefinitions"]] == ["Name", "Image", "Wide"]
    assert table["rows"][0]["cells"] == ["g", "vm:1", 1]
    await kind.remove()


async def test_without_columns_there_is_the_age(api: Api) -> None:
    kind = await Kind(api).install()
    await api.create(kind.path(), kind.gadget())
    table = await api.get(kind.path(), accept=TABLE)
    assert [item["name"] for item in table["columnDefinitions"]] == ["Name", "Age"]
    await kind.remove()


@pytest.mark.since(1, 32)
async def test_fields_that_are_selectable_select(api: Api) -> None:
    kind = await Kind(api).install(selectableFields=[{"jsonPath": ".spec.mode"}])
    await api.create(kind.path(), kind.gadget("a", mode="slow"))
    await api.create(kind.path(), kind.gadget("b"))
    assert await api.names(kind.path(), fieldSelector="spec.mode=slow") == ["a"]
    refused = await api.refused("GET", kind.path(), fieldSelector="spec.image=vm:1")
    assert refused == (400, "BadRequest")
    await kind.remove()


@pytest.mark.since(1, 30)
async def test_rules_are_enforced(api: Api) -> None:
    rule = {"rule": "self.spec.replicas <= 10", "message": "too many"}
    schema = {"openAPIV3Schema": {**SCHEMA, "x-kubernetes-validations": [rule]}}
    kind = Kind(api)
    answer = await api.call("POST", CRDS, kind.crd(schema=schema))
    if answer.status == 501:  # the embedded API may refuse CEL rules
        return
    await api.ok("DELETE", f"{CRDS}/{kind.name}")
    await api.gone(f"{CRDS}/{kind.name}")
    await kind.install(schema=schema)
    result = await api.why("POST", kind.path(), kind.gadget(replicas=11))
    assert (result["code"], result["reason"]) == (422, "Invalid")
    await kind.remove()


async def test_a_custom_object_takes_no_strategic_patch(api: Api) -> None:
    kind = await Kind(api).install()
    await api.create(kind.path(), kind.gadget())
    answer = await api.call("PATCH", kind.path("g"), {"spec": {"mode": "slow"}}, kind=STRATEGIC)
    assert answer.status == 415
    await kind.remove()


async def test_a_custom_object_is_applied(api: Api) -> None:
    kind = await Kind(api).install()
    await api.apply(kind.path("g"), kind.gadget(tags=["a"]), "one")
    result = await api.why(
        "PATCH",
        kind.path("g"),
        kind.gadget(tags=["b"]),
        kind="application/apply-patch+yaml",
        fieldManager="two",
    )
    assert (result["code"], causes(result)) == (409, [("FieldManagerConflict", ".spec.tags")])
    await kind.remove()


async def test_a_definition_is_named_by_plural_and_group(api: Api) -> None:
    kind = Kind(api)
    body = kind.crd()
    body["metadata"]["name"] = "wrong"
    result = await api.why("POST", CRDS, body)
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert ("FieldValueInvalid", "metadata.name") in causes(result)


async def test_a_schema_is_structural(api: Api) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}
    result = await api.why("POST", CRDS, Kind(api).crd(schema=schema))
    assert (result["code"], result["reason"]) == (422, "Invalid")


async def test_a_deleted_definition_deletes_its_objects(api: Api) -> None:
    kind = await Kind(api).install()
    await api.create(kind.path(), kind.gadget())
    await kind.remove()
    await api.gone(f"{CRDS}/{kind.name}")

    async def forgotten() -> bool | None:
        return (await api.call("GET", kind.path("g"))).status == 404 or None

    await api.eventually(forgotten)


async def test_a_custom_kind_is_discovered(api: Api) -> None:
    kind = await Kind(api).install(subresources={"status": {}})

    async def discovered() -> list[Json] | None:
        answer = await api.call("GET", f"/apis/{kind.group}/v1")
        return answer.json()["resources"] if answer.status == 200 else None

    rows = {row["name"]: row for row in await api.eventually(discovered)}
    assert rows["gadgets"]["kind"] == "Gadget" and rows["gadgets"]["shortNames"] == ["gd"]
    assert "gadgets/status" in rows
    await kind.remove()


async def test_a_watch_of_a_custom_kind(api: Api) -> None:
    kind = await Kind(api).install()
    listed = await api.get(kind.path())
    assert (listed["kind"], listed["apiVersion"]) == ("GadgetList", f"{kind.group}/v1")
    since = listed["metadata"]["resourceVersion"]
    async with await api.watch(kind.path(), resourceVersion=since) as watch:
        await api.create(kind.path(), kind.gadget())
        await api.patch(kind.path("g"), {"spec": {"mode": "slow"}}, kind=MERGE)
        await api.ok("DELETE", kind.path("g"))
        assert await watch.take(3) == [("ADDED", "g"), ("MODIFIED", "g"), ("DELETED", "g")]
    await kind.remove()
