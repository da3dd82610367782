"""The host fence: built into the embedded API, and shipped as an admission policy for a cluster.

The host of these scripts has every right, so that the fence refuses, not a missing role.
"""

from typing import Any

import pytest
from tests.conformance.kube.kit import MERGE, Api, Json, config, pod
from tests.conformance.kube.protobuf import KIND, envelope, field
from tests.embedded.kube_access.certificaterequests import request_for

from runyard.wire import manifests, names, rights

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
SPACE = names.RUNNERS_NAMESPACE
PODS = f"/api/v1/namespaces/{SPACE}/pods"
ACCOUNTS = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
EVENTS = f"/api/v1/namespaces/{SPACE}/events"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

pytestmark = pytest.mark.since(1, 30)


class Hosts:
    """Two hosts with a Pod each; `host` is the client of the first one, which has every right that a role can give."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.mine, self.other = api.own("a"), api.own("b")
        self.host = api

    async def create(self) -> None:
        await self._install()
        for name in (self.mine, self.other):
            await self.api.create("/api/v1/nodes", {"metadata": {"name": name}})
            await self.api.create(ACCOUNTS, {"metadata": {"name": name}})
            given = {"annotations": {"note": "1"}, "labels": {"l": "1"}}
            body = pod(name, meta=given, nodeName=name, serviceAccountName=name)
            await self.api.create(PODS, body)
            await self.api.create(LEASES, {"metadata": {"name": name}, "spec": {}})
        await self.api.create(EVENTS, self.event(self.api.own("event"), self.other))
        await self._grant_everything()
        await self.api.eventually(self._in_effect)

    async def remove(self) -> None:
        for name in (self.mine, self.other):
            for path in (f"{PODS}/{name}", f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
                await self.api.call("DELETE", path, {"gracePeriodSeconds": 0})
            await self.api.call("DELETE", f"{ACCOUNTS}/{name}")
        await self.api.call("DELETE", f"{RBAC}/clusterrolebindings/{self.mine}")

    async def _install(self) -> None:
        """Installs what the embedded API has built in and a cluster has not."""
        for space in (SPACE, names.CONTROLLER_NAMESPACE):
            await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        if (await self.api.call("GET", POLICIES)).status == 200:
            for obj in manifests.admission():
                answer = await self.api.call("POST", f"{POLICIES}/{PLURALS[obj['kind']]}", obj)
                assert answer.status in (201, 409), answer.body

    async def _grant_everything(self) -> None:
        account = rights.host_account(self.mine)
        home = f"/api/v1/namespaces/{names.CONTROLLER_NAMESPACE}/serviceaccounts"
        await self.api.create(home, {"metadata": {"name": account}})
        subject = {"kind": "ServiceAccount", "name": account}
        binding = {
            "metadata": {"name": self.mine},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{**subject, "namespace": names.CONTROLLER_NAMESPACE}],
        }
        await self.api.create(f"{RBAC}/clusterrolebindings", binding)
        made = await self.api.create(f"{home}/{account}/token", {"spec": {}})
        self.host = self.api.as_caller(made["status"]["token"])

    async def _in_effect(self) -> bool | None:
        """Whether roles and policies are known to the server by now."""
        tries = [
            await self.host.call("POST", *self.token(self.other)),
            await self.host.call("POST", self.api.maps(), config("try"), dryRun="All"),
        ]
        return all(answer.status == 403 for answer in tries) or None

    def token(self, name: str) -> tuple[str, Json]:
        ref = {"kind": "Pod", "apiVersion": "v1", "name": name}
        return f"{ACCOUNTS}/{name}/token", {"spec": {"boundObjectRef": ref}}

    def request(self) -> Json:
        wanted = request_for(self.mine, signer="kubernetes.io/kube-apiserver-client")
        return wanted | {"metadata": {"name": self.api.own("c")}}

    def event(self, name: str, about: str, kind: str = "Pod") -> Json:
        space = {"namespace": SPACE} if kind == "Pod" else {}
        return {
            "metadata": {"name": name, "namespace": SPACE if kind == "Pod" else "default"},
            "involvedObject": {"kind": kind, "name": about, "apiVersion": "v1", **space},
            "reason": "Told",
            "type": "Normal",
        }


async def test_a_host_does_its_work(api: Api) -> None:
    hosts = Hosts(api)
    try:
        await hosts.create()
        host, mine = hosts.host, hosts.mine
        await host.patch(f"/api/v1/nodes/{mine}", {"metadata": {"labels": {"a": "b"}}})
        await host.patch(f"/api/v1/nodes/{mine}/status", {"status": {"phase": "Running"}})
        await host.patch(f"{LEASES}/{mine}", {"spec": {"holderIdentity": mine}})
        await host.patch(f"{PODS}/{mine}/status", {"status": {"phase": "Running"}})
        started = {"annotations": {names.START_PROGRESS_AT: "1", "note": "1"}}
        await host.patch(
            f"{PODS}/{mine}", {"metadata": {"finalizers": [names.VM_FINALIZER], **started}}
        )
        await host.create(*hosts.token(mine))
        ref = field(1, b"Pod") + field(2, b"v1") + field(3, mine.encode())
        spec = field(2, field(3, ref))
        body = envelope("TokenRequest", spec, version="authentication.k8s.io/v1")
        await host.create(f"{ACCOUNTS}/{mine}/token", body, kind=KIND)  # as kubectl does
        await host.create(EVENTS, hosts.event(api.own("e"), mine))
        await host.patch(f"{PODS}/{mine}", {"metadata": {"finalizers": None}})
        await host.ok("DELETE", f"{PODS}/{mine}", {"gracePeriodSeconds": 0})
    finally:
        await hosts.remove()


def attempts(hosts: Hosts) -> dict[str, tuple[str, str, Any]]:
    mine, other = hosts.mine, hosts.other
    nobody: Json = {"spec": {"audiences": []}}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}

    def change(**meta: Any) -> tuple[str, str, Any]:
        return "PATCH", f"{PODS}/{mine}", {"metadata": meta}

    def aside(**meta: Any) -> tuple[str, str, Any]:
        return "PATCH", f"{PODS}/{mine}/status", {"metadata": meta}

    return {
        "another's Node": ("PATCH", f"/api/v1/nodes/{other}", {"spec": {"unschedulable": True}}),
        "another's status": ("PATCH", f"/api/v1/nodes/{other}/status", {"status": {"phase": "x"}}),
        "a new Node": ("POST", "/api/v1/nodes", {"metadata": {"name": hosts.api.own("c")}}),
        "the end of a Node": ("DELETE", f"/api/v1/nodes/{other}", None),
        "another's lease": ("PATCH", f"{LEASES}/{other}", {"spec": {"holderIdentity": "x"}}),
        "another's Pod": ("PATCH", f"{PODS}/{other}", {"metadata": {"annotations": {"a": "b"}}}),
        "the status of it": ("PATCH", f"{PODS}/{other}/status", {"status": {"phase": "Failed"}}),
        "the end of it": ("DELETE", f"{PODS}/{other}", {"gracePeriodSeconds": 0}),
        "a new Pod": ("POST", PODS, pod(hosts.api.own("c"), serviceAccountName=mine)),
        "a stamp": change(labels={names.POOL_OWNER: "x"}),
        "a finalizer": change(finalizers=["example.com/mine"]),
        "an owner": change(ownerReferences=[owner]),
        "a note": change(annotations={"note": "2"}),
        "a note less": change(annotations={"note": None}),
        "an empty note": change(annotations={"empty": ""}),
        "a stamp beside a status": aside(labels={names.POOL_OWNER: "x"}),
        "a finalizer beside a status": aside(finalizers=["example.com/mine"]),
        "a note beside a status": aside(annotations={"note": "2"}),
        "all Nodes": ("DELETE", "/api/v1/nodes?dryRun=All", None),
        "all leases": ("DELETE", f"{LEASES}?dryRun=All", None),
        "all Pods": ("DELETE", f"{PODS}?dryRun=All", None),
        "all Events": ("DELETE", f"{EVENTS}?dryRun=All", None),
        "the end of an Event": ("DELETE", f"{EVENTS}/{hosts.api.own('event')}", None),
        "another's Event": (
            "PATCH",
            f"{EVENTS}/{hosts.api.own('event')}",
            {"involvedObject": {"name": mine}},
        ),
        "a shell in another's VM": ("POST", f"{PODS}/{other}/exec?command=id&stdout=1", None),
        "a certificate to log in with": ("POST", REQUESTS, hosts.request()),
        "a token of another's Pod": ("POST", *hosts.token(other)),
        "a token without a Pod": ("POST", f"{ACCOUNTS}/{mine}/token", nobody),
        "an Event about another's Pod": ("POST", EVENTS, hosts.event(hosts.api.own("e"), other)),
        "an Event about another host": (
            "POST",
            "/api/v1/namespaces/default/events",
            hosts.event(hosts.api.own("e"), other, "Node"),
        ),
        "an account": ("POST", ACCOUNTS, {"metadata": {"name": hosts.api.own("c")}}),
        "a Secret": (
            "POST",
            f"/api/v1/namespaces/{SPACE}/secrets",
            {"metadata": {"name": hosts.api.own("c")}},
        ),
        "a role": (
            "POST",
            f"{RBAC}/clusterroles",
            {"metadata": {"name": hosts.api.own("c")}, "rules": []},
        ),
    }


async def test_a_host_writes_nothing_of_others_even_with_all_permissions(api: Api) -> None:
    hosts = Hosts(api)
    try:
        await hosts.create()
        before = await api.get(f"{PODS}/{hosts.mine}")
        for case, (method, path, body) in attempts(hosts).items():
            kind = MERGE if method == "PATCH" else "application/json"
            path, _, result = path.partition("?")
            query = dict(part.split("=") for part in result.split("&") if part)
            refused = await hosts.host.refused(method, path, body, kind=kind, **query)
            assert refused == (403, "Forbidden"), case
        assert await api.get(f"{PODS}/{hosts.mine}") == before
    finally:
        await hosts.remove()
