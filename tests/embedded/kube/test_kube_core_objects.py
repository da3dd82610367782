"""Creating, reading, patching and replacing objects."""

import pytest
from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    MAPS,
    MERGE,
    NODES,
    PODS,
    POOLS,
    STRATEGIC,
    Harness,
    node,
    play,
    pod,
    pool,
)


def test_a_created_object_has_identity_and_defaults() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", PODS, pod("a", limits={"cpu": "2"}))
        meta = made["metadata"]
        assert meta["namespace"] == "default" and meta["generation"] == 1
        assert len(meta["uid"]) == 36 and int(meta["resourceVersion"]) > 0
        assert made["status"]["phase"] == "Pending"
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
        assert made["spec"]["serviceAccountName"] == "default"
        read = await harness.ok("GET", f"{PODS}/a")
        assert read["metadata"]["uid"] == meta["uid"]
        assert await harness.refused("POST", PODS, pod("a")) == (409, "AlreadyExists")

    play(scenario)


def test_generated_names_are_distinct_and_replayable() -> None:
    async def scenario(harness: Harness) -> list[str]:
        body = {"metadata": {"generateName": "job-"}}
        return [(await harness.ok("POST", MAPS, body))["metadata"]["name"] for _ in range(20)]

    first = play(scenario)
    assert len(dict.fromkeys(first)) == 20 and all(name.startswith("job-") for name in first)
    assert first == play(scenario)


INVALID = {
    "no name": (MAPS, {"metadata": {}}, 422),
    "upper case name": (MAPS, {"metadata": {"name": "Bad"}}, 422),
    "name too long": (MAPS, {"metadata": {"name": "a" * 254}}, 422),
    "bad label key": (MAPS, {"metadata": {"name": "a", "labels": {"-x": "y"}}}, 422),
    "bad label value": (MAPS, {"metadata": {"name": "a", "labels": {"x": "y z"}}}, 422),
    "label not text": (MAPS, {"metadata": {"name": "a", "labels": {"x": 1}}}, 400),
    "bad finalizer": (MAPS, {"metadata": {"name": "a", "finalizers": ["a b"]}}, 422),
    "owner without uid": (
        MAPS,
        {
            "metadata": {
                "name": "a",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}],
            }
        },
        422,
    ),
    "pod without containers": (PODS, {"metadata": {"name": "a"}, "spec": {"containers": []}}, 422),
    "pod without spec": (PODS, {"metadata": {"name": "a"}}, 422),
    "bad quantity": (PODS, pod("a", limits={"cpu": "much"}), 400),
    "two containers of a name": (
        PODS,
        {
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
        },
        422,
    ),
    "bad taint": (NODES, node("a", spec={"taints": [{"key": "k", "effect": "Sometimes"}]}), 422),
    "pool without image": (POOLS, pool("a") | {"spec": {}}, 422),
    "pool without kind": (POOLS, {"metadata": {"name": "a"}, "spec": {}}, 400),
    "pool of an unknown system": (POOLS, pool("a", os="amiga"), 422),
    "negative replicas": (POOLS, pool("a", replicas=-1), 422),
    "roll of more than all": (POOLS, pool("a", rollout={"maxConcurrentPercent": 101}), 422),
    "another kind": (MAPS, {"kind": "Pod", "metadata": {"name": "a"}}, 400),
    "another namespace": (MAPS, {"metadata": {"name": "a", "namespace": "tuist"}}, 400),
    "a version": (MAPS, {"metadata": {"name": "a", "resourceVersion": "3"}}, 500),
    "metadata is a list": (MAPS, {"metadata": []}, 400),
    "not an object": (MAPS, [], 400),
    "not JSON": (MAPS, b"{", 400),
    "no such namespace": (
        "/api/v1/namespaces/nowhere/configmaps",
        {"metadata": {"name": "a"}},
        404,
    ),
    "no such account": (PODS, pod("a", serviceAccountName="nobody"), 403),
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_object_is_refused_and_leaves_no_trace(case: str) -> None:
    path, body, code = INVALID[case]

    async def scenario(harness: Harness) -> None:
        before = harness.core.version
        status = (await harness.call("POST", path, body)).json()
        assert status["code"] == code and status["status"] == "Failure"
        if code == 422:
            assert all(cause["field"] for cause in status["details"]["causes"])
        assert harness.core.version == before

    play(scenario)


def test_a_merge_patch_changes_only_what_it_names() -> None:
    async def scenario(harness: Harness) -> None:
        body = {"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "data": {"k": "v"}}
        made = await harness.ok("POST", MAPS, body)
        patch = {"metadata": {"labels": {"x": None, "z": "3"}}, "data": {"n": "w"}}
        after = await harness.merge(f"{MAPS}/a", patch)
        assert after["metadata"]["labels"] == {"y": "2", "z": "3"}
        assert after["data"] == {"k": "v", "n": "w"}
        assert after["metadata"]["uid"] == made["metadata"]["uid"]
        assert int(after["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])

    play(scenario)


def test_a_patch_that_changes_nothing_makes_no_version() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", POOLS, pool(replicas=3))
        before = harness.core.version
        for patch in ({}, {"spec": {"replicas": 3}}, {"status": {"observedReplicas": 1}}):
            await harness.merge(f"{POOLS}/mac", patch)
        await harness.merge(f"{POOLS}/mac/status", {"spec": {"replicas": 9}})
        assert harness.core.version == before

    play(scenario)


def test_status_and_spec_are_written_apart() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", POOLS, pool() | {"status": {"observedReplicas": 5}})
        assert "status" not in made
        patch = {"spec": {"replicas": 4}, "status": {"observedReplicas": 2}}
        plain = await harness.merge(f"{POOLS}/mac", patch)
        assert plain["spec"]["replicas"] == 4 and "status" not in plain
        assert plain["metadata"]["generation"] == 2
        patch = {
            "spec": {"replicas": 9},
            "status": {"observedReplicas": 2},
            "metadata": {"labels": {"a": "b"}},
        }
        status = await harness.merge(f"{POOLS}/mac/status", patch)
        assert status["spec"]["replicas"] == 4 and status["status"] == {"observedReplicas": 2}
        assert "labels" not in status["metadata"] and status["metadata"]["generation"] == 2

    play(scenario)


@pytest.mark.parametrize("key", ["uid", "resourceVersion"])
def test_a_stale_plan_is_a_conflict_and_no_damage(key: str) -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        path = f"{MAPS}/a"
        stale = {"metadata": {key: "1"}, "data": {"k": "w"}}
        expected = (422, "Invalid") if key == "uid" else (409, "Conflict")
        assert await harness.refused("PATCH", path, stale, kind=MERGE) == expected
        options = {"preconditions": {key: "1"}}
        assert await harness.refused("DELETE", path, options) == (409, "Conflict")
        stale["metadata"]["name"] = "a"
        assert await harness.refused("PUT", path, stale) == (409, "Conflict")
        assert (await harness.ok("GET", path))["data"] == {"k": "v"}
        fresh = {"metadata": {key: made["metadata"][key]}, "data": {"k": "w"}}
        after = await harness.merge(path, fresh)
        assert after["data"] == {"k": "w"}
        await harness.ok("DELETE", path, {"preconditions": {key: after["metadata"][key]}})

    play(scenario)


def test_server_owned_fields_cannot_be_written() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", PODS, pod("a"))
        patch = {
            "metadata": {
                "creationTimestamp": "2020-01-01T00:00:00Z",
                "generation": 9,
                "deletionTimestamp": "2020-01-01T00:00:00Z",
                "labels": {"k": "v"},
            }
        }
        after = await harness.merge(f"{PODS}/a", patch)
        for key in ("creationTimestamp", "generation", "uid"):
            assert after["metadata"][key] == made["metadata"][key]
        assert "deletionTimestamp" not in after["metadata"]
        for body, code in (
            ({"metadata": {"name": "b"}}, 400),
            ({"metadata": {"namespace": "b"}}, 400),
            ({"metadata": None}, 400),
            ({"kind": "Node"}, 422),
            ({"metadata": {"creationTimestamp": "x"}}, 422),
        ):
            assert (await harness.refused("PATCH", f"{PODS}/a", body, kind=MERGE))[0] == code

    play(scenario)


def test_a_running_pods_spec_is_fixed_except_its_images() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", PODS, pod("a"))
        image = {"spec": {"containers": [{"name": "runner", "image": "vm:2"}]}}
        after = await harness.ok("PATCH", f"{PODS}/a", image, kind=STRATEGIC)
        assert after["spec"]["containers"][0]["image"] == "vm:2"
        for spec in (
            {"nodeName": "n1"},
            {"serviceAccountName": "x"},
            {"containers": [{"name": "b", "image": "i"}]},
        ):
            code = await harness.refused("PATCH", f"{PODS}/a", {"spec": spec}, kind=MERGE)
            assert code == (422, "Invalid")

    play(scenario)


def test_a_replace_must_be_of_the_version_that_was_read() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        after = await harness.ok("PUT", f"{MAPS}/a", made | {"data": {"n": "w"}})
        assert after["data"] == {"n": "w"}
        assert await harness.refused("PUT", f"{MAPS}/a", made) == (409, "Conflict")

    play(scenario)


ELSEWHERE = {
    "unknown resource": ("GET", "/api/v1/namespaces/default/widgets", 404),
    "missing object": ("GET", f"{PODS}/nobody", 404),
    "known and not served: services": ("GET", "/api/v1/services", 501),
    "known and not served: deployments": ("GET", "/apis/apps/v1/deployments", 501),
    "log of a missing Pod": ("GET", f"{PODS}/a/log", 404),
    "delete of a log": ("DELETE", f"{PODS}/a/log", 405),
    "known and not served: resize": ("PATCH", f"{PODS}/a/resize", 501),
    "all namespaces": ("DELETE", "/api/v1/namespaces", 405),
    "Pods of all namespaces": ("DELETE", "/api/v1/pods", 405),
    "unknown method": ("BREW", PODS, 405),
    "create on an object": ("POST", f"{PODS}/a", 405),
    "create without a namespace": ("POST", "/api/v1/pods", 405),
    "patch of a collection": ("PATCH", PODS, 405),
    "reading a token": ("GET", f"{ACCOUNTS}/default/token", 405),
    "reading reviews": ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
    "empty name": ("GET", f"{PODS}//", 404),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_each_unsupported_request_has_its_status(case: str) -> None:
    method, path, code = ELSEWHERE[case]

    async def scenario(harness: Harness) -> None:
        assert (await harness.refused(method, path))[0] == code

    play(scenario)


@pytest.mark.parametrize("path", ["/nothing", "/apis/example.com/v1/things"])
def test_a_path_without_a_group_is_page_not_found(path: str) -> None:
    async def scenario(harness: Harness) -> None:
        answer = await harness.call("GET", path)
        assert (answer.status, answer.body) == (404, b"404 page not found\n")

    play(scenario)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
def test_an_unknown_patch_type_is_not_guessed_at(kind: str) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert (await harness.refused("PATCH", f"{MAPS}/a", {}, kind=kind))[0] == 415

    play(scenario)


def test_every_write_is_reported_once_in_order() -> None:
    async def scenario(harness: Harness) -> None:
        harness.writes.clear()
        made = await harness.ok("POST", MAPS, {"metadata": {"name": "a"}})
        await harness.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        await harness.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        await harness.ok("DELETE", f"{MAPS}/a")
        uid = made["metadata"]["uid"]
        verbs = ("create", "update", "delete")
        assert harness.writes == [(verb, "ConfigMap", "default/a", uid) for verb in verbs]

    play(scenario)


def test_discovery_names_every_kind_that_is_served() -> None:
    async def scenario(harness: Harness) -> None:
        core = await harness.ok("GET", "/api/v1")
        names = [row["name"] for row in core["resources"]]
        assert "pods/status" in names and "serviceaccounts/token" in names
        groups = [group["name"] for group in (await harness.ok("GET", "/apis"))["groups"]]
        assert groups == [
            "coordination.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "certificates.k8s.io",
            "rbac.authorization.k8s.io",
            "node.k8s.io",
            "apiextensions.k8s.io",
            "tuist.dev",
        ]
        assert (await harness.call("GET", "/readyz")).body == b"ok"
        assert (await harness.ok("GET", "/version"))["major"] == "1"

    play(scenario)


def test_a_late_status_cannot_restart_a_terminated_container() -> None:
    def status(phase: str, state: str) -> dict[str, object]:
        return {
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": "c", "state": {state: {"x": "y"}}}],
            }
        }

    async def scenario(harness: Harness) -> None:
        body = pod("a")
        body["spec"]["restartPolicy"] = "Never"
        await harness.ok("POST", PODS, body)
        await harness.merge(f"{PODS}/a/status", status("Running", "running"))
        await harness.merge(f"{PODS}/a/status", status("Succeeded", "terminated"))
        late = await harness.refused(
            "PATCH", f"{PODS}/a/status", status("Running", "running"), kind=MERGE
        )
        assert late == (422, "Invalid")
        assert (await harness.ok("GET", f"{PODS}/a"))["status"]["phase"] == "Succeeded"

    play(scenario)
