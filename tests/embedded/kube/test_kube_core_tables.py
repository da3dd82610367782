"""Tables: the form and cells that kubectl expects, and no object makes rendering fail."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import MAPS, PODS, Harness, events, node, play, pod

from runyard.embedded.kube import negotiation, resources
from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.status import StatusError
from runyard.embedded.kube.tables import cells, podcells, tables
from runyard.http.messages import Request, Response, Stream

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

ACCEPTS = {
    KUBECTL: "v1",
    TABLE: "v1",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io": "v1beta1",
    "application/json; as=Table; v=v1; g=meta.k8s.io": "v1",
    f"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,{TABLE}": "v1",
    f"application/json,{TABLE}": "",
    "application/json;as=Table;v=v9;g=meta.k8s.io,application/json": "",
    "application/json;as=Table;v=v1;g=elsewhere": "refused",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io": "refused",
    "as=Table": "refused",
    ",;=;as=Table,,": "refused",
    f"*/*;q=0.1,application/json;q=0.2,{TABLE}": "v1",
    f"{TABLE};q=0.5,application/json": "",
    f"*/*,{TABLE}": "v1",
    "application/json": "",
    "*/*": "",
    "": "",
}


@pytest.mark.parametrize("accept", ACCEPTS)
def test_a_table_is_served_only_on_request(accept: str) -> None:
    request = Request(method="GET", path="/", headers=(("accept", accept),))
    try:
        form = negotiation.table_of(request, negotiation.negotiated(request, resources.PODS))
        found = form.version if form else ""
    except StatusError as refusal:
        found = "refused" if refusal.code == 406 else ""
    assert found == ACCEPTS[accept]


async def get(harness: Harness, path: str, **query: Any) -> Response | Stream:
    pairs = tuple((key, str(value)) for key, value in query.items())
    headers = (("accept", KUBECTL),)
    return await harness.core.handle(Request(method="GET", path=path, query=pairs, headers=headers))


async def table(harness: Harness, path: str, **query: Any) -> dict[str, Any]:
    answer = await get(harness, path, **query)
    assert isinstance(answer, Response) and answer.status == 200
    found: dict[str, Any] = answer.json()
    assert found["kind"] == "Table" and found["apiVersion"] == "meta.k8s.io/v1"
    assert all(len(row["cells"]) == len(found["columnDefinitions"]) for row in found["rows"])
    return found


def test_pages_and_single_objects_are_tables_too() -> None:
    async def scenario(harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.ok("POST", PODS, pod(name))
        page = await table(harness, PODS, limit=2)
        assert [row["cells"][0] for row in page["rows"]] == ["a", "b"]
        assert page["metadata"]["remainingItemCount"] == 1
        rest = await table(harness, PODS, **{"continue": page["metadata"]["continue"]})
        assert [row["cells"][0] for row in rest["rows"]] == ["c"]
        one = await table(harness, f"{PODS}/b")
        made = harness.core.find("pods", "default", "b")
        assert made is not None
        assert one["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        missing = await get(harness, f"{PODS}/d")
        assert isinstance(missing, Response) and missing.json()["kind"] == "Status"

    play(scenario)


@pytest.mark.parametrize("include", ["", "Metadata", "Object", "None"])
def test_include_object_decides_what_a_row_contains(include: str) -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        query = {"includeObject": include} if include else {}
        (row,) = (await table(harness, MAPS, **query))["rows"]
        partial = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made["metadata"],
        }
        assert row.get("object") == {"Object": made, "None": None}.get(include, partial)

    play(scenario)


def test_a_watch_of_tables_has_every_change_and_its_columns_once() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        stream = await get(harness, MAPS, watch="true")
        assert isinstance(stream, Stream)
        await harness.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        await harness.ok("DELETE", f"{MAPS}/a")
        found = await events(stream, count=3)
        assert [item["type"] for item in found] == ["ADDED", "MODIFIED", "DELETED"]
        assert [item["object"]["kind"] for item in found] == ["Table"] * 3
        assert [bool(item["object"]["columnDefinitions"]) for item in found] == [True, False, False]
        assert [item["object"]["rows"][0]["cells"][1] for item in found] == [0, 1, 1]
        versions = [int(item["object"]["metadata"]["resourceVersion"]) for item in found]
        assert versions == sorted(versions) and versions[-1] == harness.core.version
        resumed = await get(harness, MAPS, watch="true", resourceVersion=versions[0])
        assert isinstance(resumed, Stream)
        assert [item["type"] for item in await events(resumed, count=2)] == ["MODIFIED", "DELETED"]
        await stream.aclose()
        await resumed.aclose()

    play(scenario)


AGES = {
    -5: "<invalid>",
    -1: "0s",
    0: "0s",
    119: "119s",
    120: "2m",
    125: "2m5s",
    600: "10m",
    10799: "179m",
    10800: "3h",
    11100: "3h5m",
    28800: "8h",
    172799: "47h",
    172800: "2d",
    190800: "2d5h",
    8 * 86400: "8d",
    2 * 365 * 86400: "2y",
    2 * 365 * 86400 + 86400: "2y1d",
    9 * 365 * 86400: "9y",
}


@pytest.mark.parametrize("seconds", AGES)
def test_an_age_has_the_form_of_kubectl(seconds: int) -> None:
    assert cells.duration(seconds) == AGES[seconds]


def container(**state: Any) -> dict[str, Any]:
    return {"name": "runner", "ready": "running" in state, "restartCount": 0, "state": state}


DELETED = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}
STATUSES: dict[str, tuple[dict[str, Any], str]] = {
    "waiting": ({"phase": "Pending"}, "Pending"),
    "pulling": (
        {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "Pulling"})]},
        "Pulling",
    ),
    "running": ({"phase": "Running", "containerStatuses": [container(running={})]}, "Running"),
    "done": (
        {
            "phase": "Succeeded",
            "containerStatuses": [container(terminated={"reason": "Completed"})],
        },
        "Completed",
    ),
    "failed": (
        {"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 3})]},
        "ExitCode:3",
    ),
    "killed": (
        {"phase": "Failed", "containerStatuses": [container(terminated={"signal": 9})]},
        "Signal:9",
    ),
    "with a reason": ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    "of init containers": (
        {
            "phase": "Pending",
            "initContainerStatuses": [container(terminated={"exitCode": 0}), container(running={})],
        },
        "Init:1/0",
    ),
    "waiting init container": (
        {"initContainerStatuses": [container(waiting={"reason": "CrashLoopBackOff"})]},
        "Init:CrashLoopBackOff",
    ),
}


@pytest.mark.parametrize("case", STATUSES)
def test_the_status_cell_shows_the_state_of_a_pod(case: str) -> None:
    status, word = STATUSES[case]
    assert podcells.status({"metadata": {"name": "p"}, "status": status}) == word
    ended = status.get("phase") in ("Succeeded", "Failed")
    expected = word if ended else "Terminating"
    assert podcells.status({"metadata": DELETED, "status": status}) == expected


def test_a_node_that_was_lost_makes_its_pods_unknown() -> None:
    lost = {"metadata": DELETED, "status": {"reason": "NodeLost", "phase": "Running"}}
    assert podcells.status(lost) == "Unknown"


def test_gates_and_sidecars_count() -> None:
    spec = {
        "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}],
        "containers": [{"name": "c"}],
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
    }
    beside = {"name": "s", "started": True, "ready": True, "restartCount": 4}
    status = {
        "conditions": [{"type": "b", "status": "True"}],
        "initContainerStatuses": [container(terminated={"exitCode": 0}), beside],
    }
    pod = {"spec": spec, "status": status}
    assert (podcells.gates(pod), podcells.ready(pod)) == ("1/2", "1/2")
    assert podcells.restarts(pod, 0) == "4"
    assert podcells.gates({}) == "<none>"


def test_restarts_show_the_time_of_the_last() -> None:
    ended = {"restartCount": 2, "lastState": {"terminated": {"finishedAt": "1970-01-01T00:00:00Z"}}}
    assert podcells.restarts({"status": {"containerStatuses": [ended]}}, 125) == "2 (2m5s ago)"
    assert podcells.restarts({}, 0) == "0"


@pytest.mark.parametrize(
    ("ready", "spec", "word"),
    [
        ("True", {}, "Ready"),
        ("False", {}, "NotReady"),
        ("Unknown", {}, "NotReady"),
        ("True", {"unschedulable": True}, "Ready,SchedulingDisabled"),
    ],
)
def test_a_node_is_ready_or_not(ready: str, spec: dict[str, Any], word: str) -> None:
    assert cells.node_status(node(ready=ready, spec=spec)) == word
    assert cells.node_status({}) == "Unknown"


KEYS = st.sampled_from(
    (
        *("status", "spec", "containers", "containerStatuses", "state", "terminated", "running"),
        *("conditions", "type", "addresses", "involvedObject", "series", "count", "reason", "data"),
        *("labels", "replicas", "lastState", "finishedAt", "lastTimestamp", "secrets", "nodeInfo"),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(obj=st.dictionaries(KEYS, JSON, max_size=5), kind=st.sampled_from(Catalogue().stored))
def test_no_object_however_odd_breaks_a_table(obj: dict[str, Any], kind: Any) -> None:
    meta = {"name": "x", "creationTimestamp": obj.get("reason"), "labels": obj.get("labels")}
    shown = tables.table(kind, [obj | {"metadata": meta}], tables.Form("v1", "None"), {}, now=0.0)
    (row,) = msgspec.json.decode(msgspec.json.encode(shown))["rows"]
    assert len(row["cells"]) == len(shown["columnDefinitions"])
    assert all(isinstance(cell, str | int) for cell in row["cells"])
