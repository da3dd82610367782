"""The core answers any input, and its objects and invariants stay intact."""

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    APPLY,
    JSON_PATCH,
    MAPS,
    MERGE,
    NODE_LEASES,
    NODES,
    PODS,
    POOLS,
    REVIEWS,
    STRATEGIC,
    Harness,
    node,
    play,
    pod,
    pool,
    with_type,
)
from tests.tiers import examples

from runyard.clock import RealClock
from runyard.embedded.kube.access.auth import Action, Decision, User, bearer
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.messages import Request, Response, Stream

KEYS = st.sampled_from(
    [
        *(
            "metadata",
            "spec",
            "status",
            "data",
            "stringData",
            "kind",
            "apiVersion",
            "target",
            "token",
        ),
        *("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "managedFields"),
        *("labels", "annotations", "finalizers", "ownerReferences", "preconditions"),
        *("containers", "resources", "limits", "cpu", "nodeName", "tolerations", "affinity"),
        *("nodeAffinity", "taints", "key", "effect", "unschedulable", "allocatable", "conditions"),
        *("type", "phase", "renewTime", "involvedObject", "audiences", "gracePeriodSeconds"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["a", "n1", "True", "Ready", "v1", "Pod", "example.com/x", "1", "500m", "Running"]
    )
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=5)
COLLECTIONS = (
    MAPS,
    NODES,
    PODS,
    POOLS,
    ACCOUNTS,
    NODE_LEASES,
    REVIEWS,
    "/api/v1/namespaces",
    "/api/v1/pods",
)
KNOWN = (
    *(f"{PODS}/a", f"{PODS}/a/status", f"{PODS}/n1", f"{PODS}/n1/status"),
    *(f"{NODES}/n1", f"{NODES}/n1/status", f"{POOLS}/mac", f"{POOLS}/mac/status"),
    *(f"{MAPS}/a", f"{MAPS}/held", f"{NODE_LEASES}/n1", "/api/v1/namespaces/default"),
)
WRITABLE = st.sampled_from(KNOWN)
PATHS = st.one_of(
    WRITABLE,
    WRITABLE,
    st.sampled_from(COLLECTIONS),
    st.tuples(
        st.sampled_from(COLLECTIONS),
        st.sampled_from(["/a", "/n1", "/held", "/default", "/mac"]),
        st.sampled_from(["", "/status", "/token", "/binding", "/log"]),
    ).map("".join),
    st.text(max_size=20).map(lambda text: "/" + text),
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"])
KINDS = st.sampled_from(
    [MERGE, MERGE, MERGE, APPLY, APPLY, STRATEGIC, JSON_PATCH, "application/json", "", "text/x"]
)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        [
            "watch",
            "labelSelector",
            "fieldSelector",
            "limit",
            "continue",
            "resourceVersion",
            "fieldManager",
            "force",
        ]
    ),
    st.sampled_from(
        ["true", "1", "a=b", "a in (b)", "spec.nodeName=n1", "x", "", "999999", "!a", "é"]
    ),
    max_size=3,
)

CONDITIONS = [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "True"}]
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "x", "controller": True}
TEMPLATES = (
    pod(
        "b",
        limits={"cpu": "1"},
        tolerations=[{"key": "k", "operator": "Exists"}],
        nodeSelector={"a": "b"},
    ),
    node("n2", labels={"a": "b"}, spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    pool("linux", replicas=2, autoscaling={"enabled": True}),
    {
        "metadata": {"name": "b", "labels": {"a": "b"}, "ownerReferences": [OWNER]},
        "data": {"k": "v"},
    },
    {
        "metadata": {"labels": {"a": "c"}, "finalizers": ["example.com/y"]},
        "status": {"conditions": CONDITIONS},
    },
    {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "holderIdentity": "n1"}},
    {"status": {"phase": "Succeeded", "allocatable": {"pods": "4"}, "conditions": CONDITIONS[:1]}},
    {"spec": {"unschedulable": True, "replicas": 7}},
    {
        "spec": {"audiences": ["x"], "expirationSeconds": 600, "token": "x"},
        "target": {"name": "n1"},
    },
    {"gracePeriodSeconds": 0},
)


@st.composite
def corrupted(draw: st.DrawFn) -> Any:
    """A valid body in which at most one value is replaced by an arbitrary one."""
    body = json.loads(json.dumps(draw(st.sampled_from(TEMPLATES))))
    spot: Any = body
    while draw(st.booleans()):
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if isinstance(spot[key], dict | list) and draw(st.booleans()):
            spot = spot[key]
            continue
        spot[key] = draw(JSON)
        break
    return body


REQUESTS = st.tuples(METHODS, PATHS, KINDS, PARAMETERS, corrupted() | corrupted() | OBJECTS)


async def populate(harness: Harness) -> None:
    await harness.ok("POST", NODES, node("n1", pods="1"))
    await harness.ok("POST", PODS, pod("a", limits={"cpu": "1"}))
    await harness.ok("POST", PODS, pod("n1"))
    await harness.ok(
        "POST", MAPS, {"metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"k": "v"}}
    )
    await harness.ok("POST", MAPS, {"metadata": {"name": "held", "finalizers": ["example.com/x"]}})
    await harness.ok("POST", POOLS, pool())
    await harness.ok("POST", NODE_LEASES, {"metadata": {"name": "n1"}})


def encode(value: Any) -> bytes:
    """JSON of anything, with integers that the fast encoder would refuse."""
    return json.dumps(value).encode()


def check_objects(core: KubeCore) -> None:
    """Checks every stored object."""
    versions: list[int] = []
    for plural in (
        "namespaces",
        "nodes",
        "pods",
        "serviceaccounts",
        "configmaps",
        "leases",
        "runnerpools",
    ):
        for obj in core.objects(plural):
            meta = obj["metadata"]
            assert meta["name"] and len(meta["uid"]) == 36
            assert core.find(plural, meta.get("namespace", ""), meta["name"]) is obj
            versions.append(int(meta["resourceVersion"]))
    assert len(versions) == len(dict.fromkeys(versions)) and max(versions) <= core.version


@settings(max_examples=examples(200))
@given(st.lists(REQUESTS, max_size=12))
def test_no_request_breaks_the_core(
    requests: list[tuple[str, str, str, dict[str, str], Any]],
) -> None:
    async def scenario(harness: Harness) -> None:
        await populate(harness)
        for method, path, kind, query, body in requests:
            before = harness.core.version
            answer = await harness.send(method, path, encode(body), kind=kind, **query)
            if isinstance(answer, Stream):
                await answer.aclose()
            else:
                assert 200 <= answer.status < 505 and b"InternalError" not in answer.body
                if answer.status >= 400:
                    page = answer.body == b"404 page not found\n"
                    assert page or answer.json()["kind"] == "Status"
                    assert harness.core.version == before
            harness.core.tick()
            check_objects(harness.core)
        assert all(harness.core.watcher_count(plural) == 0 for plural in ("pods", "configmaps"))

    play(scenario)


WRITES = st.tuples(
    st.sampled_from(["PATCH", "PATCH", "PATCH", "PUT", "DELETE"]),
    WRITABLE,
    st.sampled_from([MERGE, APPLY, STRATEGIC]),
    st.sampled_from(["one", "two"]),
    st.sampled_from(["true", "false"]),
    corrupted() | OBJECTS,
)


@settings(max_examples=examples(200))
@given(st.lists(WRITES, min_size=1, max_size=12))
def test_no_write_leaves_an_object_broken(
    writes: list[tuple[str, str, str, str, str, Any]],
) -> None:
    async def scenario(harness: Harness) -> None:
        await populate(harness)
        for method, path, kind, manager, force, body in writes:
            before = harness.core.version
            query = {"fieldManager": manager}
            if kind == APPLY and method == "PATCH":
                query["force"] = force
                body = with_type(path, body) if isinstance(body, dict) else body
            answer = await harness.call(method, path, encode(body), kind=kind, **query)
            assert answer.status in (200, 201) or harness.core.version == before
            harness.core.tick()
            check_objects(harness.core)
            for plural, collection in (("pods", PODS), ("nodes", NODES), ("configmaps", MAPS)):
                listed = (await harness.ok("GET", collection))["items"]
                assert [with_type(collection, item) for item in listed] == list(
                    harness.core.objects(plural)
                )

    play(scenario)


@given(st.binary(max_size=60), PATHS, METHODS, KINDS)
def test_no_bytes_break_the_core(body: bytes, path: str, method: str, kind: str) -> None:
    async def scenario(harness: Harness) -> None:
        await populate(harness)
        answer = await harness.send(method, path, body, kind=kind)
        if isinstance(answer, Stream):
            await answer.aclose()
        else:
            assert b"InternalError" not in answer.body

    play(scenario)


@example(patch={"metadata": {"managedFields": []}}, path=f"{PODS}/a")
@settings(max_examples=examples(200))
@given(
    patch=OBJECTS, path=st.sampled_from([f"{PODS}/a", f"{NODES}/n1", f"{MAPS}/a", f"{POOLS}/mac"])
)
def test_a_patch_is_idempotent(patch: Any, path: str) -> None:
    async def scenario(harness: Harness) -> None:
        await populate(harness)
        first = await harness.call("PATCH", path, encode(patch), kind=MERGE)
        with_state_taints = await harness.call("GET", path)
        if first.status == 200 and with_state_taints.status == 200:
            version = harness.core.version
            assert (await harness.call("PATCH", path, encode(patch), kind=MERGE)).status in (
                200,
                409,
            )
            assert harness.core.version == version

    play(scenario)


@pytest.mark.parametrize(
    "shape",
    [b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"[" * 100_000, b'"\\ud800"'],
    ids=["deep maps", "deep lists", "half a character"],
)
def test_a_body_built_to_exhaust_is_a_400(shape: bytes) -> None:
    async def scenario(harness: Harness) -> None:
        await populate(harness)
        for kind in (MERGE, APPLY):
            answer = await harness.call("PATCH", f"{MAPS}/a", shape, kind=kind, fieldManager="x")
            assert answer.status == 400
        assert (await harness.call("POST", MAPS, shape)).status == 400

    play(scenario)


def test_a_body_over_the_limit_is_not_read() -> None:
    async def scenario(harness: Harness) -> None:
        body = {"metadata": {"name": "big"}, "data": {"k": "x" * 200}}
        assert await harness.refused("POST", MAPS, body) == (413, "RequestEntityTooLarge")

    play(scenario, body_limit=100)


def test_a_defect_inside_is_a_counted_500() -> None:
    def broken(request: Request) -> User | None:
        raise KeyError("defect")

    async def scenario() -> None:
        core = KubeCore(
            clock=RealClock(), rng=random.Random(1), security=Security(authenticate=broken)
        )
        answer = await core.handle(Request(method="GET", path="/api"))
        assert isinstance(answer, Response) and answer.status == 500
        assert core.failures == {"KeyError": 1}

    asyncio.run(scenario())


def test_unauthenticated_and_unauthorized_requests_are_refused() -> None:
    def known(request: Request) -> User | None:
        return User(name=bearer(request)) if bearer(request) else None

    def readers_only(user: User, action: Action) -> Decision:
        return Decision(action.verb in ("get", "list", "watch"))

    async def scenario() -> None:
        core = KubeCore(
            clock=RealClock(),
            rng=random.Random(1),
            security=Security(authenticate=known, authorize=readers_only),
        )
        request = Request(method="GET", path=MAPS)
        answer = await core.handle(request)
        assert isinstance(answer, Response) and answer.status == 401
        signed = (("authorization", "Bearer sesame"),)
        for method, code in (("GET", 200), ("POST", 403)):
            answer = await core.handle(
                Request(method=method, path=MAPS, headers=signed, body=b"{}")
            )
            assert isinstance(answer, Response) and answer.status == code
        assert answer.json()["reason"] == "Forbidden"

    asyncio.run(scenario())


def test_the_same_requests_give_the_same_state() -> None:
    async def scenario(harness: Harness) -> bytes:
        await populate(harness)
        for index in range(20):
            await harness.call(
                "POST", PODS, {"metadata": {"generateName": "g-"}} | {"spec": pod()["spec"]}
            )
            await harness.call("DELETE", f"{PODS}/a", {"gracePeriodSeconds": index % 2})
            await harness.pass_time(10)
        return msgspec.json.encode([harness.writes, harness.core.objects("pods")])

    assert play(scenario) == play(scenario)
