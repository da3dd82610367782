"""Objects of custom resources: validation, defaults, pruning and columns."""

from typing import Any

import pytest
from tests.embedded.kube.coresupport import MERGE, POOLS, Harness, play, pool
from tests.embedded.kube.crdsupport import DEFINITIONS, NAME, WIDGETS, definition, widget

from runyard.http.messages import Request, Response

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def shop(harness: Harness) -> None:
    await harness.ok("POST", DEFINITIONS, definition())


def test_unknown_fields_are_dropped_and_defaults_filled_in() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        body = widget(extra=1, parts=[{"n": 1, "x": 2}, {}], free={"a": {"b": 1}}, port="http")
        made = await harness.ok("POST", WIDGETS, body | {"more": 1, "status": {"size": 9}})
        assert made["spec"] == {
            "size": 3,
            "parts": [{"n": 1}, {"n": 7}],
            "free": {"a": {"b": 1}},
            "port": "http",
            "colour": "red",
        }
        assert "more" not in made and "status" not in made
        patched = await harness.merge(f"{WIDGETS}/a", {"spec": {"colour": None, "junk": 1}})
        assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    play(scenario)


ONE_OF = "must validate one and only one schema (oneOf)"
WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "type": (
        {"size": "x"},
        "spec.size",
        'Invalid value: "string": spec.size in body must be of type integer: "string"',
        "FieldValueTypeInvalid",
    ),
    "too small": (
        {"size": 0},
        "spec.size",
        "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        "FieldValueInvalid",
    ),
    "too large": (
        {"size": 11},
        "spec.size",
        "Invalid value: 11: spec.size in body should be less than or equal to 10",
        "FieldValueInvalid",
    ),
    "not listed": (
        {"colour": "green"},
        "spec.colour",
        'Unsupported value: "green": supported values: "red", "blue"',
        "FieldValueNotSupported",
    ),
    "too short": (
        {"word": "a"},
        "spec.word",
        'Invalid value: "a": spec.word in body should be at least 2 chars long',
        "FieldValueInvalid",
    ),
    "too long": (
        {"word": "abcdef"},
        "spec.word",
        "Too long: may not be more than 5 bytes",
        "FieldValueTooLong",
    ),
    "pattern": (
        {"word": "AB"},
        "spec.word",
        "Invalid value: \"AB\": spec.word in body should match '^[a-z]+$'",
        "FieldValueInvalid",
    ),
    "item": (
        {"tags": ["a", 1]},
        "spec.tags[1]",
        'Invalid value: "integer": spec.tags[1] in body must be of type string: "integer"',
        "FieldValueTypeInvalid",
    ),
    "twice in a set": (
        {"tags": ["a", "a"]},
        "spec.tags[1]",
        'Duplicate value: "a"',
        "FieldValueDuplicate",
    ),
    "too many": (
        {"parts": [{}] * 4},
        "spec.parts",
        "Too many: 4: must have at most 3 items",
        "FieldValueTooMany",
    ),
    "member of a map": (
        {"weights": {"a": "b"}},
        "spec.weights.a",
        'Invalid value: "string": spec.weights.a in body must be of type number: "string"',
        "FieldValueTypeInvalid",
    ),
    "neither number nor text": (
        {"port": True},
        "spec.port",
        'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
        "FieldValueTypeInvalid",
    ),
    "format": (
        {"since": "yesterday"},
        "spec.since",
        'Invalid value: "yesterday": spec.since in body must be of type date-time: "yesterday"',
        "FieldValueTypeInvalid",
    ),
    "both alternatives": (
        {"either": {"a": "1", "b": "2"}},
        "<nil>",
        f'Invalid value: "": "spec.either" {ONE_OF}. Found 2 valid alternatives',
        "FieldValueInvalid",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_schema_violation_has_the_message_of_a_real_server(case: str) -> None:
    spec, field, message, reason = WRONG[case]

    async def scenario(harness: Harness) -> None:
        await shop(harness)
        answer = await harness.call("POST", WIDGETS, widget(**spec))
        assert answer.status == 422
        found = answer.json()
        assert {"field": field, "message": message, "reason": reason} in found["details"]["causes"]
        assert found["details"]["kind"] == "Widget" and found["details"]["name"] == "a"
        assert found["message"].startswith('Widget.shop.example.com "a" is invalid: ')
        assert (await harness.ok("GET", WIDGETS))["items"] == []

    play(scenario)


def test_a_missing_field_is_named() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        body = widget()
        del body["spec"]["size"]
        answer = await harness.call("POST", WIDGETS, body)
        assert answer.json()["details"]["causes"] == [
            {"field": "spec.size", "message": "Required value", "reason": "FieldValueRequired"}
        ]

    play(scenario)


def test_status_and_scale_are_written_apart() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        await harness.ok("POST", WIDGETS, widget())
        body = {"status": {"size": 2, "junk": 1}, "spec": {"size": 9}}
        found = await harness.merge(f"{WIDGETS}/a/status", body)
        assert found["status"] == {"size": 2} and found["spec"]["size"] == 3
        assert found["metadata"]["generation"] == 1
        scale = await harness.ok("GET", f"{WIDGETS}/a/scale")
        assert (scale["kind"], scale["spec"], scale["status"]) == (
            "Scale",
            {"replicas": 3},
            {"replicas": 2},
        )
        scale = await harness.merge(f"{WIDGETS}/a/scale", {"spec": {"replicas": 7}})
        assert scale["spec"] == {"replicas": 7}
        scale["spec"]["replicas"] = 4
        await harness.ok("PUT", f"{WIDGETS}/a/scale", scale)
        found = await harness.ok("GET", f"{WIDGETS}/a")
        assert found["spec"]["size"] == 4 and found["metadata"]["generation"] == 3
        patch = {"spec": {"replicas": 99}}
        refused = await harness.refused("PATCH", f"{WIDGETS}/a/scale", patch, kind=MERGE)
        assert refused == (422, "Invalid")
        scale["metadata"]["resourceVersion"] = "1"
        assert await harness.refused("PUT", f"{WIDGETS}/a/scale", scale) == (409, "Conflict")

    play(scenario)


def test_columns_are_those_of_the_definition() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        await harness.ok("POST", WIDGETS, widget())
        await harness.merge(f"{WIDGETS}/a/status", {"status": {"seen": "not a time"}})
        await harness.ok("POST", WIDGETS, widget("b"))
        answer = await harness.core.handle(
            Request(method="GET", path=WIDGETS, headers=(("accept", TABLE),))
        )
        assert isinstance(answer, Response)
        found = answer.json()
        columns = found["columnDefinitions"]
        assert [item["name"] for item in columns] == ["Name", "Size", "Seen", "Colour"]
        assert [item["priority"] for item in columns] == [0, 0, 0, 1]
        assert [row["cells"] for row in found["rows"]] == [
            ["a", 3, "<invalid>", "red"],
            ["b", 3, None, "red"],
        ]

    play(scenario)


def test_only_declared_fields_can_be_selected_by() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        await harness.ok("POST", WIDGETS, widget())
        await harness.ok("POST", WIDGETS, widget("b", colour="blue"))
        found = await harness.ok("GET", WIDGETS, fieldSelector="spec.colour=blue")
        assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
        assert (await harness.refused("GET", WIDGETS, fieldSelector="spec.size=3"))[0] == 400

    play(scenario)


NOT_SERVED: dict[str, dict[str, Any]] = {
    "rules in CEL": {
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
        }
    },
}


@pytest.mark.parametrize("case", NOT_SERVED)
def test_unsupported_schema_keywords_are_refused_not_ignored(case: str) -> None:
    async def scenario(harness: Harness) -> None:
        body = definition(**NOT_SERVED[case])
        assert await harness.refused("POST", DEFINITIONS, body) == (501, "NotImplemented")

    play(scenario)


def test_conversion_and_several_served_versions_are_not_served() -> None:
    async def scenario(harness: Harness) -> None:
        body = definition()
        body["spec"]["versions"].append(
            body["spec"]["versions"][0] | {"name": "v2", "storage": False}
        )
        assert (await harness.refused("POST", DEFINITIONS, body))[0] == 501
        body["spec"]["versions"][1]["served"] = False
        made = await harness.ok("POST", DEFINITIONS, body)
        assert made["status"]["storedVersions"] == ["v1"]
        body = definition("others", "Other")
        body["spec"]["conversion"] = {"strategy": "Webhook"}
        assert (await harness.refused("POST", DEFINITIONS, body))[0] == 501

    play(scenario)


def test_a_definition_in_use_keeps_its_scope_and_names() -> None:
    async def scenario(harness: Harness) -> None:
        await shop(harness)
        for patch in ({"scope": "Cluster"}, {"names": {"kind": "Other"}}):
            body = {"spec": patch}
            refused = await harness.refused("PATCH", f"{DEFINITIONS}/{NAME}", body, kind=MERGE)
            assert refused == (422, "Invalid")

    play(scenario)


POOL_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown system": ({"os": "windows"}, "spec.os"),
    "negative": ({"replicas": -1}, "spec.replicas"),
    "more than all": ({"rollout": {"maxConcurrentPercent": 101}}, "spec.rollout"),
    "none at once": ({"provisioning": {"maxConcurrentPerFleetSelector": 0}}, "spec.provisioning"),
    "beyond 32 bits": ({"podCPUMilli": 2**31}, "<nil>"),
}


@pytest.mark.parametrize("case", POOL_WRONG)
def test_a_pool_that_no_operator_could_read_is_refused(case: str) -> None:
    spec, field = POOL_WRONG[case]

    async def scenario(harness: Harness) -> None:
        answer = await harness.call("POST", POOLS, pool(**spec))
        assert answer.status == 422
        causes = answer.json()["details"]["causes"]
        assert causes and all(item["field"].lstrip(".").startswith(field) for item in causes)

    play(scenario)
