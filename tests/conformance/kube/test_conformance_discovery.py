"""Discovery: versions, groups, kinds."""

import pytest
from tests.conformance.kube.kit import Api

from runyard.http.messages import Response


async def test_the_core_group_is_v1(api: Api) -> None:
    result = await api.get("/api")
    assert result["kind"] == "APIVersions" and result["versions"] == ["v1"]
    listed = await api.get("/api/v1")
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")


@pytest.mark.parametrize(
    ("group", "name", "kind", "namespaced", "short"),
    [
        ("", "pods", "Pod", True, ["po"]),
        ("", "nodes", "Node", False, ["no"]),
        ("", "namespaces", "Namespace", False, ["ns"]),
        ("", "configmaps", "ConfigMap", True, ["cm"]),
        ("", "serviceaccounts", "ServiceAccount", True, ["sa"]),
        ("", "events", "Event", True, ["ev"]),
        ("", "secrets", "Secret", True, []),
        ("coordination.k8s.io", "leases", "Lease", True, []),
        ("rbac.authorization.k8s.io", "roles", "Role", True, []),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", False, []),
        ("node.k8s.io", "runtimeclasses", "RuntimeClass", False, []),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            False,
            ["crd", "crds"],
        ),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            False,
            ["csr"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_kind_is_described(
    api: Api, group: str, name: str, kind: str, namespaced: bool, short: list[str]
) -> None:
    listed = await api.get(f"/apis/{group}/v1" if group else "/api/v1")
    (row,) = [row for row in listed["resources"] if row["name"] == name]
    assert (row["kind"], row["namespaced"]) == (kind, namespaced)
    assert row["singularName"] == kind.lower()
    assert row.get("shortNames", []) == short
    verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert set(row["verbs"]) - {"deletecollection"} == verbs


@pytest.mark.parametrize(
    ("name", "verbs"),
    [
        ("pods/status", ["get", "patch", "update"]),
        ("pods/binding", ["create"]),
        ("pods/eviction", ["create"]),
        ("pods/log", ["get"]),
        ("pods/exec", ["create", "get"]),
        ("serviceaccounts/token", ["create"]),
        ("nodes/status", ["get", "patch", "update"]),
    ],
)
async def test_a_subresource_is_described(api: Api, name: str, verbs: list[str]) -> None:
    listed = await api.get("/api/v1")
    (row,) = [row for row in listed["resources"] if row["name"] == name]
    assert sorted(row["verbs"]) == verbs


async def test_groups_are_listed(api: Api) -> None:
    result = await api.get("/apis")
    assert result["kind"] == "APIGroupList"
    groups = {group["name"]: group["preferredVersion"]["version"] for group in result["groups"]}
    for name in (
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
        "node.k8s.io",
    ):
        assert groups[name] == "v1"


async def test_the_version_is_served(api: Api) -> None:
    result = await api.get("/version")
    assert result["major"] == "1" and result["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_plain_text(api: Api, path: str) -> None:
    async def healthy() -> Response | None:  # a server on a busy machine may be late for a moment
        answer = await api.call("GET", path, accept="*/*")
        return answer if answer.status == 200 else None

    assert (await api.eventually(healthy)).body == b"ok"


async def test_openapi_lists_the_served_groups(api: Api) -> None:
    result = await api.get("/openapi/v3")
    for path in ("api/v1", "apis/coordination.k8s.io/v1"):
        assert result["paths"][path]["serverRelativeURL"].startswith(f"/openapi/v3/{path}")
