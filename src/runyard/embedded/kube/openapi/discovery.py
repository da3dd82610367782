"""Serves the discovery documents: groups, versions and resources.

Documents are rendered from the catalogue and cached as bytes until it changes. Clients can read one group at a time,
or all groups in the aggregated form that newer clients prefer.
"""

from collections.abc import Callable

import msgspec

from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.openapi.documents import OpenApi
from runyard.embedded.kube.resources import NAMESPACES, Object, Resource
from runyard.http.messages import Request, Response

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+runyard",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "embedded",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]
# Subresources with their own verbs or kind.
_SUBRESOURCES: dict[str, tuple[list[str], Object]] = {
    "binding": (["create"], {"kind": "Binding"}),
    "eviction": (["create"], {"group": "policy", "version": "v1", "kind": "Eviction"}),
    "log": (["get"], {}),
    "exec": (["create", "get"], {"kind": "PodExecOptions"}),
    "attach": (["create", "get"], {"kind": "PodAttachOptions"}),
    "portforward": (["create", "get"], {"kind": "PodPortForwardOptions"}),
    "token": (
        ["create"],
        {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
    ),
    "scale": (_STATUS_VERBS, {"group": "autoscaling", "version": "v1", "kind": "Scale"}),
}
_HEALTH = ("/healthz", "/livez", "/readyz")
_CHECKS = (
    "ping",
    "log",
    "etcd",
    "poststarthook/rbac/bootstrap-roles",
)  # each served on its own path
_READY_CHECKS = ("informer-sync", "shutdown")
_HEALTHY = dict.fromkeys(
    (
        *_HEALTH,
        *(f"{path}/{check}" for path in _HEALTH for check in _CHECKS),
        *(f"/readyz/{check}" for check in _READY_CHECKS),
    )
)
_TEXT = (("content-type", "text/plain; charset=utf-8"),)
_JSON = (("content-type", "application/json"),)
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_DEEPEST = 5  # slashes in the longest path of a document
_PREFIXES = ("/api", "/apis", "/openapi", "/version", *_HEALTH)


class Discovery:
    """Serves documents about the server itself."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._openapi = OpenApi(catalogue)
        self._edition = -1
        self._cache: dict[str, Response] = {}

    def document(self, request: Request) -> Response | None:
        """The document at that path, or None if there is none."""
        path = request.path
        if path.count("/") > _DEEPEST or not path.startswith(_PREFIXES):
            return None
        path = path.rstrip("/")
        if path in _HEALTHY:
            return Response(status=200, headers=_TEXT, body=b"ok")
        if path.startswith("/openapi"):
            return self._openapi.document(path, request)
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in request.header("accept"):
            path = f"{path} aggregated"
        return self._cached(path)

    def _cached(self, path: str) -> Response | None:
        if self._edition != self._catalogue.edition:
            self._edition = self._catalogue.edition
            self._cache = {path: _answer(make()) for path, make in self._makers().items()}
            for root in ("api", "apis"):
                found = _aggregated(self._catalogue, core=root == "api")
                headers = (("content-type", _AGGREGATED),)
                body = msgspec.json.encode(found)
                answer = Response(status=200, headers=headers, body=body)
                self._cache[f"/{root} aggregated"] = answer
        return self._cache.get(path)

    def _makers(self) -> dict[str, Callable[[], Object]]:
        rows = self._catalogue
        makers: dict[str, Callable[[], Object]] = {
            "/version": lambda: VERSION,
            "/api": lambda: {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": lambda: _groups(rows),
        }
        for group, version in rows.groups:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            makers[path] = lambda group=group, version=version: _resources(rows, group, version)  # type: ignore[misc]  # bound per turn
            if group:
                makers[f"/apis/{group}"] = lambda group=group: (
                    {  # type: ignore[misc]  # bound per turn
                        "kind": "APIGroup",
                        "apiVersion": "v1",
                    }
                    | _group(rows, group)
                )
        return makers


def _answer(value: Object) -> Response:
    return Response(status=200, headers=_JSON, body=msgspec.json.encode(value))


def _groups(catalogue: Catalogue) -> Object:
    names = dict.fromkeys(group for group, _ in catalogue.groups if group)
    found = [_group(catalogue, group) for group in names]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def _group(catalogue: Catalogue, group: str) -> Object:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for name, version in catalogue.groups
        if name == group
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(catalogue: Catalogue, group: str, version: str) -> Object:
    rows = [
        row
        for resource in catalogue.served
        if (resource.group, resource.version) == (group, version)
        for row in _rows(resource)
    ]
    named = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": named,
        "resources": rows,
    }


def verbs_of(resource: Resource) -> list[str]:
    """The verbs of a kind."""
    if not resource.stored:
        return ["create"]
    if resource is NAMESPACES:  # namespaces cannot be deleted as a collection
        return [verb for verb in _VERBS if verb != "deletecollection"]
    return _CUSTOM_VERBS if resource.custom else _VERBS


def _rows(resource: Resource) -> list[Object]:
    row: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs_of(resource),
    }
    if resource.short:
        row["shortNames"] = list(resource.short)
    if resource.categories:
        row["categories"] = list(resource.categories)
    return [row, *(_subrow(resource, name) for name in resource.subresources)]


def _subrow(resource: Resource, name: str) -> Object:
    verbs, kind = _SUBRESOURCES.get(name, (_STATUS_VERBS, {}))
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    } | kind


# ---- aggregated discovery


def _aggregated(catalogue: Catalogue, *, core: bool) -> Object:
    groups = dict.fromkeys(group for group, _ in catalogue.groups if bool(group) != core)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(catalogue, group) for group in groups],
    }


def _aggregated_group(catalogue: Catalogue, group: str) -> Object:
    versions = [
        {
            "version": version,
            "resources": [
                _aggregated_row(item)
                for item in catalogue.served
                if (item.group, item.version) == (group, version)
            ],
            "freshness": "Current",
        }
        for name, version in catalogue.groups
        if name == group
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _aggregated_row(resource: Resource) -> Object:
    group, version = (resource.group, resource.version) if resource.custom else ("", "")
    kind = {"group": group, "version": version, "kind": resource.kind}  # empty: that of the row
    row: Object = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": verbs_of(resource),
    }
    if resource.short:
        row["shortNames"] = list(resource.short)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.subresources:
        row["subresources"] = [_aggregated_sub(kind, name) for name in resource.subresources]
    return row


def _aggregated_sub(parent: Object, name: str) -> Object:
    verbs, kind = _SUBRESOURCES.get(name, (_STATUS_VERBS, {}))
    return {"subresource": name, "responseKind": parent | kind, "verbs": verbs}
