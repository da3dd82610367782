"""Parses paths: from `/api/v1/namespaces/x/pods/y/status` to its resource, name and subresource."""

from collections.abc import Mapping

import msgspec

from runyard.embedded.kube.resources import (
    NAMESPACES,
    UNSERVED_CORE,
    UNSERVED_GROUPS,
    UNSERVED_SUBRESOURCES,
    Resource,
)
from runyard.embedded.kube.status import no_page, not_served, unknown_path

ByPath = Mapping[tuple[str, str, str], Resource]


class Target(msgspec.Struct, frozen=True):
    """The target of a request."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str, by_path: ByPath, groups: Mapping[str, None]) -> Target:
    """The target of a path; raises 404 for an unknown path, 501 for a known one that is not served."""
    steps = path.split("/")[1:]
    if steps and not steps[-1]:
        steps.pop()
    if "" in steps:
        raise unknown_path() if steps[0] == "api" else no_page()
    if len(steps) >= 3 and steps[0] == "api" and steps[1] == "v1":
        return _under(by_path, "", "v1", steps[2:])
    if len(steps) >= 4 and steps[0] == "apis":
        if steps[1] not in groups and steps[1] in UNSERVED_GROUPS:
            raise not_served(f"the group {steps[1]}")
        if steps[1] not in groups:
            raise no_page()
        return _under(by_path, steps[1], steps[2], steps[3:])
    known = len(steps) > 1 and (steps[0] == "api" or (steps[0] == "apis" and steps[1] in groups))
    raise unknown_path() if known else no_page()


def _under(by_path: ByPath, group: str, version: str, steps: list[str]) -> Target:
    if steps[0] == "watch":
        raise not_served("the paths under watch/; use the query parameter watch=true")
    if steps[0] == "namespaces" and len(steps) >= 3:
        if len(steps) == 3 and not group and steps[2] in ("status", "finalize"):
            return _target(NAMESPACES, "", steps[1:])
        resource = _resource(by_path, group, version, steps[2])
        if not resource.namespaced:
            raise unknown_path()
        return _target(resource, steps[1], steps[3:])
    return _target(_resource(by_path, group, version, steps[0]), "", steps[1:])


def _resource(by_path: ByPath, group: str, version: str, plural: str) -> Resource:
    resource = by_path.get((group, version, plural))
    if resource is not None:
        return resource
    if not group and plural in UNSERVED_CORE:
        raise not_served(plural)
    raise no_page() if _custom_group(by_path, group) else unknown_path()


def _custom_group(by_path: ByPath, group: str) -> bool:
    return any(row.custom and row.group == group for row in by_path.values())


def _target(resource: Resource, namespace: str, rest: list[str]) -> Target:
    name = rest[0] if rest else ""
    subresource = rest[1] if len(rest) > 1 else ""
    if subresource in UNSERVED_SUBRESOURCES.get(resource.plural, ()):
        raise not_served(f"{resource.plural}/{subresource}")
    if len(rest) > 2 or (subresource and subresource not in resource.subresources):
        raise unknown_path()
    if name and resource.namespaced and not namespace:
        raise unknown_path()  # one object of a namespaced kind needs its namespace
    return Target(resource, namespace, name, subresource)
