"""The host fence: a stolen credential of one host cannot harm the others."""

from typing import Any

import pytest
from tests.embedded.kube_access.accesssupport import (
    ACCOUNTS,
    BOSS,
    MERGE,
    PODS,
    RBAC,
    SPACE,
    RbacHarness,
    play,
    pod,
    rule,
)
from tests.embedded.kube_access.certificaterequests import request_for

from runyard.wire import names, rights

HOST = (f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:tart-kubelet-mini-1",)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
EVENTS = f"/api/v1/namespaces/{SPACE}/events"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
FINALIZERS = {"metadata": {"finalizers": [names.VM_FINALIZER]}}


async def create_hosts(harness: RbacHarness) -> None:
    """Creates two hosts with a Pod each; host 1 has its shipped roles."""
    for obj in rights.granted({rights.host_account("mini-1"): rights.HOST}):
        meta = obj["metadata"]
        where = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        await harness.ok(BOSS, "POST", f"{RBAC}{where}/{obj['kind'].lower()}s", obj)
    for number in (1, 2):
        status = {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}]}
        node = {"metadata": {"name": f"mini-{number}"}, "status": status}
        await harness.ok(BOSS, "POST", "/api/v1/nodes", node)
        await harness.ok(BOSS, "POST", ACCOUNTS, {"metadata": {"name": f"pod-{number}"}})
        spec = {"nodeName": f"mini-{number}", "serviceAccountName": f"pod-{number}"}
        await harness.ok(BOSS, "POST", PODS, pod(f"pod-{number}", **spec))
    await harness.ok(BOSS, "POST", LEASES, {"metadata": {"name": "mini-2"}, "spec": {}})


def bound(name: str) -> dict[str, Any]:
    ref = {"kind": "Pod", "apiVersion": "v1", "name": name}
    return {"spec": {"audiences": ["x"], "boundObjectRef": ref}}


def event_about(kind: str, name: str) -> dict[str, Any]:
    space = {"namespace": SPACE} if kind == "Pod" else {}
    return {
        "metadata": {"name": f"e-{name}"},
        "involvedObject": {"kind": kind, "name": name, **space},
        "reason": "r",
        "type": "Normal",
    }


ALLOWED = {
    "its lease": ("POST", LEASES, {"metadata": {"name": "mini-1"}, "spec": {}}),
    "its Node": ("PATCH", "/api/v1/nodes/mini-1", {"metadata": {"labels": {"a": "b"}}}),
    "its Node's status": ("PATCH", "/api/v1/nodes/mini-1/status", {"status": {"phase": "x"}}),
    "its Pod's status": ("PATCH", f"{PODS}/pod-1/status", {"status": {"phase": "Running"}}),
    "our finalizer": ("PATCH", f"{PODS}/pod-1", FINALIZERS),
    "the end of its Pod": ("DELETE", f"{PODS}/pod-1", None),
    "its Pod's token": ("POST", f"{ACCOUNTS}/pod-1/token", bound("pod-1")),
    "an Event about its Pod": ("POST", EVENTS, event_about("Pod", "pod-1")),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_a_host_does_its_work_with_the_shipped_roles(case: str) -> None:
    method, path, body = ALLOWED[case]

    async def scenario(harness: RbacHarness) -> None:
        await create_hosts(harness)
        kind = MERGE if method == "PATCH" else "application/json"
        await harness.ok(HOST, method, path, body, kind=kind)

    play(scenario)


REFUSED: dict[str, tuple[str, str, Any]] = {
    "another's Node": ("PATCH", "/api/v1/nodes/mini-2", {"spec": {"unschedulable": True}}),
    "another's Node's status": ("PATCH", "/api/v1/nodes/mini-2/status", {"status": {}}),
    "a Node of another name": ("POST", "/api/v1/nodes", {"metadata": {"name": "mini-3"}}),
    "the end of a Node": ("DELETE", "/api/v1/nodes/mini-2", None),
    "another's lease": ("PATCH", f"{LEASES}/mini-2", {"spec": {"holderIdentity": "x"}}),
    "a lease of another name": ("POST", LEASES, {"metadata": {"name": "mini-3"}, "spec": {}}),
    "another's Pod": ("PATCH", f"{PODS}/pod-2", FINALIZERS),
    "another's Pod's status": ("PATCH", f"{PODS}/pod-2/status", {"status": {"phase": "Failed"}}),
    "the end of another's Pod": ("DELETE", f"{PODS}/pod-2", None),
    "a shell in another's VM": ("GET", f"{PODS}/pod-2/exec", None),
    "a port of another's VM": ("GET", f"{PODS}/pod-2/portforward", None),
    "a Pod": ("POST", PODS, pod("pod-3")),
    "an eviction": ("POST", f"{PODS}/pod-1/eviction", {}),
    "a stamp": ("PATCH", f"{PODS}/pod-1", {"metadata": {"labels": {names.POOL_OWNER: "x"}}}),
    "another finalizer": ("PATCH", f"{PODS}/pod-1", {"metadata": {"finalizers": ["a.b/c"]}}),
    "an owner": (
        "PATCH",
        f"{PODS}/pod-1",
        {
            "metadata": {
                "ownerReferences": [{"kind": "A", "apiVersion": "v1", "name": "x", "uid": "u"}]
            }
        },
    ),
    "a token without a Pod": (
        "POST",
        f"{ACCOUNTS}/pod-1/token",
        {"spec": {"audiences": ["x"]}},
    ),
    "a token of another's Pod": ("POST", f"{ACCOUNTS}/pod-2/token", bound("pod-2")),
    "an account": ("POST", ACCOUNTS, {"metadata": {"name": "x"}}),
    "an Event about another's Pod": ("POST", EVENTS, event_about("Pod", "pod-2")),
    "an Event about another host": (
        "POST",
        "/api/v1/namespaces/default/events",
        event_about("Node", "mini-2"),
    ),
    "a role": ("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": []}),
    "a Secret": (
        "POST",
        f"/api/v1/namespaces/{SPACE}/secrets",
        {"metadata": {"name": "x"}},
    ),
    "the certificate of another": ("POST", REQUESTS, request_for("mini-2")),
    "a certificate for another's address": (
        "POST",
        REQUESTS,
        request_for("mini-1", addresses=("10.0.0.2",)),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_host_writes_nothing_of_others_even_with_all_permissions(case: str) -> None:
    method, path, body = REFUSED[case]

    async def scenario(harness: RbacHarness) -> None:
        await create_hosts(harness)
        await harness.grant_cluster_wide(HOST[0], rule("*", "*", groups="*"))
        before = harness.core.version
        kind = MERGE if method == "PATCH" else "application/json"
        why = await harness.refused(HOST, method, path, body, kind=kind)
        assert "cannot" not in why.partition("forbidden")[2].split("User")[0], why
        assert harness.core.version == before

    play(scenario)


def test_a_host_requests_its_own_certificate_for_its_own_addresses() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await create_hosts(harness)
        await harness.grant_cluster_wide(
            HOST[0], rule("certificatesigningrequests", "create", groups="certificates.k8s.io")
        )
        body = request_for("mini-1", addresses=("10.0.0.1",), hostnames=("mini-1",))
        made = await harness.ok(HOST, "POST", REQUESTS, body)
        assert made["spec"]["username"] == HOST[0]

    play(scenario)


@pytest.mark.parametrize("path", ["/api/v1/secrets", f"/api/v1/namespaces/{SPACE}/secrets"])
def test_a_host_reads_no_secrets(path: str) -> None:
    async def scenario(harness: RbacHarness) -> None:
        await create_hosts(harness)
        assert 'cannot list resource "secrets"' in await harness.refused(HOST, "GET", path)

    play(scenario)


def test_a_node_identity_by_certificate_is_a_host_too() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await create_hosts(harness)
        node = ("system:node:mini-1", "system:nodes")
        await harness.grant_cluster_wide(node[0], rule("*", "*", groups="*"))
        body = {"status": {"phase": "x"}}
        await harness.ok(node, "PATCH", "/api/v1/nodes/mini-1/status", body, kind=MERGE)
        await harness.refused(node, "PATCH", "/api/v1/nodes/mini-2/status", body, kind=MERGE)

    play(scenario)
