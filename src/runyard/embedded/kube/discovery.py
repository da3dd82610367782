"""What this server serves, for clients that ask before they speak."""

from runyard.embedded.kube.resources import ALL, GROUPS, Object, Resource

_VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0+runyard", "platform": "embedded"}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_HEALTH = ("/healthz", "/livez", "/readyz")


def document(path: str) -> Object | str | None:
    """The document at that path: JSON, plain text, or None if there is none."""
    path = path.rstrip("/") or "/"
    if path in _HEALTH:
        return "ok"
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [_group(group, version) for group, version in GROUPS if group]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for group, version in GROUPS:
        if path == (f"/apis/{group}/{version}" if group else f"/api/{version}"):
            return _resources(group, version)
        if group and path == f"/apis/{group}":
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, version)
    return None


def _group(group: str, version: str) -> Object:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(group: str, version: str) -> Object:
    rows = [
        row
        for resource in ALL
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


def _rows(resource: Resource) -> list[Object]:
    base: Object = {
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
    }
    verbs = _VERBS if resource.stored else ["create"]
    rows = [{"name": resource.plural, **base, "verbs": verbs, "shortNames": list(resource.short)}]
    for sub in resource.subresources:
        allowed = ["get", "patch", "update"] if sub == "status" else ["create"]
        rows.append({"name": f"{resource.plural}/{sub}", **base, "verbs": allowed})
    return rows
