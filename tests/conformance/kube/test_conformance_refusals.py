"""Slightly wrong objects: accepted, or refused with the same status, reason and causes (refusals.yaml)."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conformance.kube.kit import MERGE, Api, Json, causes, config, pod, status_of

from runyard.http.messages import Response

pytestmark = pytest.mark.since(1, 36)  # whose rules the table has

TABLE: Json = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
DOZEN = 20  # objects in one script
NODES = "/api/v1/nodes"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MOST = 1 << 20  # bytes of data

Case = tuple[str, Json]


async def notation_of(answer: Response) -> list[str]:
    """An answer in the notation of the table."""
    if answer.status < 300:
        return []
    status = await status_of(answer)
    if (answer.status, status.get("reason")) != (422, "Invalid"):
        return [f"{answer.status} {status.get('reason', '')}".strip()]
    return [f"{reason.removeprefix('FieldValue')} {field}" for reason, field in causes(status)]


def dozens(cases: Json) -> list[list[Case]]:
    left = iter(cases.items())
    return list(iter(lambda: list(islice(left, DOZEN)), []))


def scripts() -> Iterator[Any]:
    for topic, cases in TABLE["pods"].items():
        for index, some in enumerate(dozens(cases)):
            yield pytest.param(some, id=f"{topic}-{index}")


async def found(api: Api, path: str, cases: Iterator[tuple[str, Json]]) -> dict[str, list[str]]:
    """The answers to a dry-run creation of each object."""
    return {
        name: await notation_of(await api.call("POST", path, body, dryRun="All"))
        for name, body in cases
    }


def expected(cases: list[Case]) -> dict[str, list[str]]:
    return {name: case["answer"] for name, case in cases}


@pytest.mark.parametrize("cases", list(scripts()))
async def test_slightly_invalid_pods_get_the_same_answer(api: Api, cases: list[Case]) -> None:
    bodies = ((name, pod(**case["spec"])) for name, case in cases)
    assert await found(api, api.pods(), bodies) == expected(cases)


@pytest.mark.parametrize("name", TABLE["changes"])
async def test_changes_of_a_pod_get_the_same_answer(api: Api, name: str) -> None:
    wanted = TABLE["changes"][name]
    await api.create(api.pods(), pod(**wanted["spec"]))
    answers = {}
    for what, case in wanted["become"].items():
        body = {"spec": case["spec"]}
        answer = await api.call("PATCH", api.pods("p"), body, kind=MERGE, dryRun="All")
        answers[what] = await notation_of(answer)
    assert answers == expected([*wanted["become"].items()])


@pytest.mark.parametrize("cases", dozens(TABLE["schemas"]))
async def test_slightly_invalid_schemas_get_the_same_answer(api: Api, cases: list[Case]) -> None:
    bodies = ((name, _definition(api, case)) for name, case in cases)
    assert await found(api, DEFINITIONS, bodies) == expected(cases)


def _definition(api: Api, case: Json) -> Json:
    group = f"{api.space}.example.com"
    version = {
        "name": case.get("version", "v1"),
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": case["schema"]},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [version],
        },
    }


@pytest.mark.parametrize("validation", ["Warn", "Strict"])
async def test_unknown_keywords_of_a_schema_are_reported(api: Api, validation: str) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "colour": "red"}}}
    body = _definition(api, {"schema": odd})
    answer = await api.call("POST", DEFINITIONS, body, dryRun="All", fieldValidation=validation)
    where = "spec.versions[0].schema.openAPIV3Schema.properties.a.colour"
    if validation == "Strict":
        refusal = await status_of(answer)
        assert refusal["code"] == 400
        assert refusal["message"].endswith(f'strict decoding error: unknown field "{where}"')
        return
    (version,) = answer.json()["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"]["properties"] == {"a": {"type": "string"}}
    warnings = [value for key, value in answer.headers if key.lower() == "warning"]
    assert len(warnings) == 1 and where in warnings[0]


async def test_secrets_have_the_keys_of_their_type(api: Api) -> None:
    cases = [*TABLE["secrets"].items()]
    bodies = ((name, _secret(case)) for name, case in cases)
    assert await found(api, api.path("secrets"), bodies) == expected(cases)


def _secret(case: Json) -> Json:
    meta = {"name": "s", "annotations": case.get("annotations", {})}
    held = {key: case[key] for key in ("type", "data", "stringData") if key in case}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, **held}


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("configmaps", {"data": {"a": "x" * MOST}}, []),
        ("configmaps", {"data": {"a" * 200: "x" * MOST}}, []),
        ("configmaps", {"data": {"a": "x" * (MOST + 1)}}, ["TooLong []"]),
        ("configmaps", {"data": {"a": "ä" * (MOST // 2), "b": "x"}}, ["TooLong []"]),
        ("configmaps", {"data": {"a": "x" * (MOST - 4)}, "binaryData": {"b": "QUFB"}}, []),
        (
            "configmaps",
            {"data": {"a": "x" * (MOST - 4)}, "binaryData": {"b": "QUFBQUE="}},
            ["TooLong []"],
        ),
        ("secrets", {"stringData": {"a": "x" * MOST}}, []),
        ("secrets", {"stringData": {"a": "x" * (MOST + 1)}}, ["TooLong data"]),
    ],
    ids=["map", "key", "map-over", "letters", "both", "both-over", "secret", "secret-over"],
)
async def test_data_is_limited_to_one_mebibyte(
    api: Api, path: str, body: Json, wanted: list[str]
) -> None:
    kind = "Secret" if path == "secrets" else "ConfigMap"
    answer = await api.call(
        "POST", api.path(path), {**config(), "kind": kind, **body}, dryRun="All"
    )
    assert await notation_of(answer) == wanted


async def test_an_event_with_a_time_needs_a_reporter(api: Api) -> None:
    cases = [*TABLE["events"].items()]
    about = {"involvedObject": {"namespace": api.space}, "metadata": {"name": "e"}}
    bodies = ((name, {**about, **case["event"]}) for name, case in cases)
    assert await found(api, api.path("events"), bodies) == expected(cases)


async def test_a_node_has_networks(api: Api) -> None:
    cases = [*TABLE["nodes"].items()]
    named = {"metadata": {"name": api.own("n")}}
    bodies = ((name, {**named, "spec": case["spec"]}) for name, case in cases)
    assert await found(api, NODES, bodies) == expected(cases)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"podCIDR": "10.1.0.0/24"}, ["Forbidden spec.podCIDRs"]),
        ({"podCIDR": "x"}, ["Forbidden spec.podCIDRs", "Invalid spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, ["Forbidden spec.podCIDRs"]),
        ({"podCIDR": None, "podCIDRs": None}, ["Forbidden spec.podCIDRs"]),
        ({"podCIDR": None}, []),
    ],
    ids=["other", "nonsense", "more", "none", "half"],
)
async def test_the_network_of_a_node_is_immutable(
    api: Api, change: Json, wanted: list[str]
) -> None:
    name = api.own("n")
    spec = {"podCIDR": "10.0.0.0/24"}
    await api.create(NODES, {"metadata": {"name": name}, "spec": spec})
    try:
        path = f"{NODES}/{name}"
        answer = await api.call("PATCH", path, {"spec": change}, kind=MERGE, dryRun="All")
        assert await notation_of(answer) == wanted
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


@pytest.mark.parametrize(
    ("name", "priority"),
    [("system-node-critical", 2000001000), ("system-cluster-critical", 2000000000)],
)
async def test_a_priority_class_sets_the_priority(api: Api, name: str, priority: int) -> None:
    made = await api.create(api.pods(), pod(priorityClassName=name), dryRun="All")
    assert made["spec"]["priority"] == priority
    assert made["spec"]["preemptionPolicy"] == "PreemptLowerPriority"


@pytest.mark.parametrize(
    ("target", "status"),
    [({"kind": "Pod", "name": "n"}, 500), ({"kind": "Node"}, 500), ({"name": "n"}, 201)],
    ids=["kind", "nameless", "kindless"],
)
async def test_a_pod_is_bound_to_a_node(api: Api, target: Json, status: int) -> None:
    await api.create(api.pods(), pod())
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    path = api.pods("p", "binding")
    assert (await api.call("POST", path, binding, dryRun="All")).status == status


async def test_a_pod_behind_gates_is_not_bound(api: Api) -> None:
    await api.create(api.pods(), pod(schedulingGates=[{"name": "g"}]))
    target = {"kind": "Node", "name": "n"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    refusal = await api.refused("POST", api.pods("p", "binding"), binding)
    assert refusal == (409, "Conflict")
