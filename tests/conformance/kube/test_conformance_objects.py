"""Creating, reading, replacing: codes, reasons, versions, and what belongs to the server."""

import pytest
from tests.conformance.kube.kit import Api, causes, config, pod


async def test_a_created_object_has_the_servers_fields(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")
    assert meta["namespace"] == api.space and meta["uid"] and meta["creationTimestamp"]
    assert int(meta["resourceVersion"]) > 0
    assert "generation" not in meta and "selfLink" not in meta
    assert await api.get(api.maps("c")) == made


async def test_a_duplicate_name_is_refused(api: Api) -> None:
    await api.create(api.maps(), config())
    result = await api.why("POST", api.maps(), config())
    assert (result["code"], result["reason"]) == (409, "AlreadyExists")
    assert result["details"] == {"name": "c", "kind": "configmaps"}
    assert result["message"] == 'configmaps "c" already exists'


async def test_generated_names_differ_and_keep_their_beginning(api: Api) -> None:
    body = config()
    body["metadata"] = {"generateName": "many-"}
    names = [(await api.create(api.maps(), body))["metadata"]["name"] for _ in range(5)]
    assert len(set(names)) == 5
    assert all(name.startswith("many-") and len(name) == 10 for name in names)


async def test_a_missing_object_is_not_found(api: Api) -> None:
    result = await api.why("GET", api.maps("nothing"))
    assert (result["code"], result["reason"]) == (404, "NotFound")
    assert result["details"] == {"name": "nothing", "kind": "configmaps"}
    assert result["message"] == 'configmaps "nothing" not found'


async def test_a_group_is_part_of_a_refusal(api: Api) -> None:
    path = api.path("leases", "none", group="coordination.k8s.io/v1")
    result = await api.why("GET", path)
    assert result["details"] == {"name": "none", "group": "coordination.k8s.io", "kind": "leases"}
    assert result["message"] == 'leases.coordination.k8s.io "none" not found'


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nonsense", "/apis/nobody.example/v1/things", "/api/v1/namespaces/default/nonsense/x"],
)
async def test_an_unknown_path_is_not_found(api: Api, path: str) -> None:
    answer = await api.call("GET", path)
    assert answer.status == 404


async def test_a_namespace_that_does_not_exist_takes_no_objects(api: Api) -> None:
    path = "/api/v1/namespaces/surely-nothing/configmaps"
    result = await api.why("POST", path, config())
    assert (result["code"], result["reason"]) == (404, "NotFound")
    assert result["details"] == {"name": "surely-nothing", "kind": "namespaces"}
    assert await api.names(path) == []


async def test_the_namespace_of_the_body_must_be_that_of_the_path(api: Api) -> None:
    result = await api.why("POST", api.maps(), config(namespace="default"))
    assert (result["code"], result["reason"]) == (400, "BadRequest")


async def test_an_object_to_be_created_has_no_version(api: Api) -> None:
    result = await api.why("POST", api.maps(), config(resourceVersion="5"))
    assert result["message"] == "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize("name", ["UPPER", "under_score", "-dash", "dash-", "sp ace", "a" * 254])
async def test_a_name_must_be_a_dns_name(api: Api, name: str) -> None:
    result = await api.why("POST", api.maps(), config(name))
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [("FieldValueInvalid", "metadata.name")]
    assert result["details"]["kind"] == "ConfigMap" and result["details"]["name"] == name


async def test_an_object_needs_a_name(api: Api) -> None:
    result = await api.why("POST", api.maps(), {"metadata": {}})
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [("FieldValueRequired", "metadata.name")]


async def test_labels_have_a_grammar(api: Api) -> None:
    bad = config(labels={"a": "not a label!"})
    result = await api.why("POST", api.maps(), bad)
    assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "metadata.labels")])
    worse = config(labels={"/": "x"})
    assert (await api.refused("POST", api.maps(), worse)) == (422, "Invalid")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"'], ids=["empty", "cut", "list", "null", "text"]
)
async def test_a_body_that_is_no_object_is_refused(api: Api, body: bytes) -> None:
    answer = await api.call("POST", api.maps(), body)
    assert answer.status in (400, 422)


async def test_another_kind_in_the_body_is_refused(api: Api) -> None:
    body = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}
    assert await api.refused("POST", api.maps(), body) == (400, "BadRequest")


async def test_kind_and_version_may_be_left_out(api: Api) -> None:
    made = await api.create(api.maps(), {"metadata": {"name": "bare"}})
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_field_of_the_wrong_type_is_refused(api: Api) -> None:
    assert await api.refused("POST", api.maps(), config(data={"a": 1})) == (400, "BadRequest")
    wrong = pod(terminationGracePeriodSeconds="soon")
    assert await api.refused("POST", api.pods(), wrong) == (400, "BadRequest")


async def test_unknown_fields_are_dropped(api: Api) -> None:
    made = await api.create(api.maps(), {**config(), "surprise": 1})
    assert "surprise" not in made


async def test_strict_field_validation_names_unknown_fields(api: Api) -> None:
    body = {**config(), "surprise": 1}
    result = await api.why("POST", api.maps(), body, fieldValidation="Strict")
    assert (result["code"], result["reason"]) == (400, "BadRequest")
    assert 'unknown field "surprise"' in result["message"]
    assert (await api.call("GET", api.maps("c"))).status == 404


async def test_warnings_name_unknown_fields(api: Api) -> None:
    body = {**config(), "surprise": 1}
    answer = await api.call("POST", api.maps(), body, fieldValidation="Warn")
    assert answer.status == 201
    assert answer.header("warning") == '299 - "unknown field \\"surprise\\""'


async def test_a_replacement_bumps_the_version_and_keeps_the_uid(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    made["data"] = {"b": "2"}
    after = await api.ok("PUT", api.maps("c"), made)
    assert after["data"] == {"b": "2"}
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(after["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_replacement_that_changes_nothing_keeps_the_version(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    after = await api.ok("PUT", api.maps("c"), made)
    assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_stale_replacement_conflicts(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    await api.ok("PUT", api.maps("c"), {**made, "data": {"a": "2"}})
    result = await api.why("PUT", api.maps("c"), {**made, "data": {"a": "3"}})
    assert (result["code"], result["reason"]) == (409, "Conflict")
    assert result["details"] == {"name": "c", "kind": "configmaps"}
    assert result["message"] == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_a_replacement_without_a_version_wins(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    after = await api.ok("PUT", api.maps("c"), config(data={"a": "2"}))
    assert after["data"] == {"a": "2"}


async def test_a_replacement_of_another_uid_conflicts(api: Api) -> None:
    await api.create(api.maps(), config())
    result = await api.why("PUT", api.maps("c"), config(uid="another"))
    assert (result["code"], result["reason"]) == (409, "Conflict")


async def test_a_put_of_a_missing_object_is_not_found(api: Api) -> None:
    lease = {"metadata": {"name": "none"}, "spec": {}}
    assert await api.refused("PUT", api.pods("none"), pod("none")) == (404, "NotFound")
    assert (await api.call("PUT", api.path("serviceaccounts", "none"), lease)).status == 404


async def test_the_name_of_the_body_must_be_that_of_the_path(api: Api) -> None:
    await api.create(api.maps(), config())
    assert await api.refused("PUT", api.maps("c"), config("d")) == (400, "BadRequest")


async def test_server_owned_fields_cannot_be_written(api: Api) -> None:
    made = await api.create(api.maps(), config())
    server_fields = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "/x"}
    patch = {"metadata": {**server_fields, "labels": {"a": "b"}}}
    after = await api.patch(api.maps("c"), patch)
    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert after["metadata"]["labels"] == {"a": "b"}


async def test_an_unsupported_method_is_not_allowed(api: Api) -> None:
    answer = await api.call("POST", api.maps("c"), config())
    assert answer.status == 405
    assert (await api.call("PUT", api.maps(), config())).status == 405


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    made = await api.create(api.maps(), config(), dryRun="All")
    assert made["metadata"]["uid"] and made["metadata"]["name"] == "c"
    assert (await api.call("GET", api.maps("c"))).status == 404
    kept = await api.create(api.maps(), config(data={"a": "1"}))
    tried = await api.patch(api.maps("c"), {"data": {"a": "2"}}, dryRun="All")
    assert tried["data"] == {"a": "2"}
    await api.ok("DELETE", api.maps("c"), dryRun="All")
    assert await api.get(api.maps("c")) == kept


async def test_a_dry_run_other_than_all_is_an_error(api: Api) -> None:
    assert await api.refused("POST", api.maps(), config(), dryRun="Some") == (422, "Invalid")


async def test_an_immutable_map_cannot_be_changed(api: Api) -> None:
    await api.create(api.maps(), {**config(data={"a": "1"}), "immutable": True})
    result = await api.why(
        "PATCH", api.maps("c"), {"data": {"a": "2"}}, kind="application/merge-patch+json"
    )
    assert (result["code"], causes(result)) == (422, [("FieldValueForbidden", "data")])


async def test_a_secret_keeps_plain_strings_encoded(api: Api) -> None:
    body = {"metadata": {"name": "s"}, "stringData": {"a": "hello"}}
    made = await api.create(api.path("secrets"), body)
    assert made["data"] == {"a": "aGVsbG8="} and made["type"] == "Opaque"
    assert "stringData" not in made
