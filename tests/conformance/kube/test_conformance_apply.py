"""Server-side apply: ownership of fields, conflicts, and removal of fields."""

from typing import Any

import pytest
from tests.conformance.kube.kit import APPLY, MERGE, Api, Json, causes, config, pod


def owned(obj: Json, manager: str, operation: str = "Apply") -> Json:
    """The fields that a manager owns; empty if none."""
    for entry in obj["metadata"].get("managedFields", ()):
        if (entry["manager"], entry["operation"]) == (manager, operation):
            fields: Json = entry["fieldsV1"]
            return fields
    return {}


def managers(obj: Json) -> list[tuple[str, str, str]]:
    return [
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in obj["metadata"]["managedFields"]
    ]


async def test_an_apply_creates_and_then_updates(api: Api) -> None:
    answer = await api.call(
        "PATCH", api.maps("c"), config(data={"a": "1"}), kind=APPLY, fieldManager="one"
    )
    assert answer.status == 201
    made = answer.json()
    assert owned(made, "one") == {"f:data": {"f:a": {}}}
    answer = await api.call(
        "PATCH", api.maps("c"), config(data={"a": "2"}), kind=APPLY, fieldManager="one"
    )
    assert answer.status == 200
    assert answer.json()["data"] == {"a": "2"}


async def test_an_entry_has_manager_operation_and_version(api: Api) -> None:
    made = await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    (entry,) = made["metadata"]["managedFields"]
    assert entry.pop("time")
    assert entry == {
        "manager": "one",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }


async def test_a_repeated_apply_changes_nothing(api: Api) -> None:
    made = await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    again = await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    assert again == made


async def test_a_field_left_out_is_removed(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1", "b": "2"}), "one")
    after = await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    assert after["data"] == {"a": "1"}
    assert owned(after, "one") == {"f:data": {"f:a": {}}}


async def test_a_field_of_another_manager_stays(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    after = await api.apply(api.maps("c"), config(data={"b": "2"}), "two")
    assert after["data"] == {"a": "1", "b": "2"}
    after = await api.apply(api.maps("c"), config(data={}), "two")
    assert after["data"] == {"a": "1"}


async def test_a_field_owned_twice_survives_one_of_its_owners(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    await api.apply(api.maps("c"), config(data={"a": "1"}), "two")
    after = await api.apply(api.maps("c"), config(), "one")
    assert after["data"] == {"a": "1"}


async def test_another_value_for_an_owned_field_conflicts(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    result = await api.why(
        "PATCH", api.maps("c"), config(data={"a": "2"}), kind=APPLY, fieldManager="two"
    )
    assert (result["code"], result["reason"]) == (409, "Conflict")
    assert causes(result) == [("FieldManagerConflict", ".data.a")]
    assert result["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert result["details"]["causes"][0]["message"] == 'conflict with "one"'


async def test_force_takes_a_field_over(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1", "b": "1"}), "one")
    after = await api.apply(api.maps("c"), config(data={"a": "2"}), "two", force="true")
    assert after["data"] == {"a": "2", "b": "1"}
    assert owned(after, "one") == {"f:data": {"f:b": {}}}
    assert owned(after, "two") == {"f:data": {"f:a": {}}}


async def test_a_manager_without_fields_has_no_entry(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    after = await api.apply(api.maps("c"), config(data={"a": "2"}), "two", force="true")
    # the map itself stays with whoever set it
    assert "two" in [name for name, _, _ in managers(after)]
    assert "f:a" not in owned(after, "one").get("f:data", {})


async def test_an_update_takes_ownership_without_force(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    after = await api.patch(api.maps("c"), {"data": {"a": "2"}}, fieldManager="hand")
    assert owned(after, "hand", "Update") == {"f:data": {"f:a": {}}}
    assert "f:a" not in owned(after, "one").get("f:data", {})
    result = await api.why(
        "PATCH", api.maps("c"), config(data={"a": "1"}), kind=APPLY, fieldManager="one"
    )
    assert result["reason"] == "Conflict"
    assert 'conflict with "hand" using v1' in result["message"]


async def test_a_create_owns_what_it_wrote(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}), agent="maker")
    assert managers(made) == [("maker", "Update", "")]
    assert owned(made, "maker", "Update") == {"f:data": {".": {}, "f:a": {}}}


async def test_a_named_manager_precedes_the_user_agent(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}), fieldManager="named")
    assert managers(made) == [("named", "Update", "")]


async def test_an_apply_needs_a_manager(api: Api) -> None:
    result = await api.why("PATCH", api.maps("c"), config(), kind=APPLY)
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [("FieldValueRequired", "fieldManager")]


async def test_force_is_for_applies_only(api: Api) -> None:
    await api.create(api.maps(), config())
    result = await api.why("PATCH", api.maps("c"), {"data": {}}, kind=MERGE, force="true")
    assert (result["code"], causes(result)) == (422, [("FieldValueForbidden", "force")])


async def test_an_apply_must_not_contain_managed_fields(api: Api) -> None:
    body = config(managedFields=[{"manager": "x", "operation": "Apply"}])
    result = await api.refused("PATCH", api.maps("c"), body, kind=APPLY, fieldManager="one")
    assert result == (400, "BadRequest")


async def test_an_apply_needs_kind_and_version(api: Api) -> None:
    body = {"metadata": {"name": "c"}}
    result = await api.refused("PATCH", api.maps("c"), body, kind=APPLY, fieldManager="one")
    assert result == (400, "BadRequest")


async def test_an_apply_may_be_yaml(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: 'yes'\n"
    made = await api.apply(api.maps("c"), body, "one")  # type: ignore[arg-type]  # raw on purpose
    assert made["data"] == {"a": "yes"}


async def test_labels_are_owned_one_by_one(api: Api) -> None:
    await api.apply(api.maps("c"), config(labels={"a": "1"}), "one")
    after = await api.apply(api.maps("c"), config(labels={"b": "2"}), "two")
    assert after["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert owned(after, "two") == {"f:metadata": {"f:labels": {"f:b": {}}}}


async def test_containers_are_owned_by_their_names(api: Api) -> None:
    made = await api.apply(api.pods("p"), pod(), "one")
    fields = owned(made, "one")["f:spec"]["f:containers"]
    assert fields == {'k:{"name":"runner"}': {".": {}, "f:image": {}, "f:name": {}}}


async def test_status_is_owned_apart(api: Api) -> None:
    await api.apply(api.pods("p"), pod(), "one")
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    after = await api.apply(api.pods("p", "status"), body, "agent")
    assert ("agent", "Apply", "status") in managers(after)
    fields = owned(after, "agent")["f:status"]
    assert fields["f:conditions"] == {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}
    after = await api.apply(api.pods("p"), pod(), "one")
    assert after["status"]["phase"] == "Running"


async def test_an_item_left_out_of_a_keyed_list_is_removed(api: Api) -> None:
    await api.create(api.pods(), pod())
    path = api.pods("p", "status")

    def status_with(*kinds: str) -> Json:
        conditions = [{"type": kind, "status": "True"} for kind in kinds]
        status: dict[str, Any] = {"conditions": conditions}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": status}

    await api.apply(path, status_with("Ready", "Initialized"), "one")
    after = await api.apply(path, status_with("Ready"), "one")
    assert [item["type"] for item in after["status"]["conditions"]] == ["Ready"]


async def test_an_apply_for_another_uid_is_refused(api: Api) -> None:
    await api.create(api.maps(), config())
    body = config(uid="another")
    result = await api.refused("PATCH", api.maps("c"), body, kind=APPLY, fieldManager="one")
    assert result == (422, "Invalid")
    body = config("fresh", uid="another")
    result = await api.refused("PATCH", api.maps("fresh"), body, kind=APPLY, fieldManager="one")
    assert result == (409, "Conflict")


async def test_an_apply_for_a_stale_version_conflicts(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    await api.patch(api.maps("c"), {"data": {"a": "2"}})
    body = config(data={"b": "1"}, resourceVersion=made["metadata"]["resourceVersion"])
    result = await api.refused("PATCH", api.maps("c"), body, kind=APPLY, fieldManager="one")
    assert result == (409, "Conflict")


async def test_a_duplicate_in_a_keyed_list_is_refused(api: Api) -> None:
    twice = [{"name": "a", "image": "vm:1"}, {"name": "a", "image": "vm:2"}]
    body = pod(containers=twice)
    answer = await api.call("PATCH", api.pods("p"), body, kind=APPLY, fieldManager="one")
    assert answer.status in (400, 422, 500)


async def test_clearing_managed_fields_resets_them(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    after = await api.patch(api.maps("c"), {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in after["metadata"]


@pytest.mark.parametrize("manager", ["x" * 129, "a\nb"], ids=["long", "unprintable"])
async def test_the_name_of_a_manager_has_a_grammar(api: Api, manager: str) -> None:
    result = await api.refused("PATCH", api.maps("c"), config(), kind=APPLY, fieldManager=manager)
    assert result == (422, "Invalid")
