"""Paths: from `/api/v1/namespaces/x/pods/y/status` to what is meant by it."""

from functools import lru_cache

import msgspec

from runyard.embedded.kube.resources import (
    ALL,
    BY_PATH,
    NAMESPACES,
    UNSERVED_CORE,
    UNSERVED_GROUPS,
    UNSERVED_SUBRESOURCES,
    Resource,
)
from runyard.embedded.kube.status import not_served, unknown_path

_SERVED_GROUPS = tuple(dict.fromkeys(resource.group for resource in ALL))


class Target(msgspec.Struct, frozen=True):
    """What a request is about."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=16384)
def parse(path: str) -> Target:
    """The target of a path; raises 404 for no path of ours, 501 for one that we know and refuse."""
    steps = path.split("/")[1:]
    if steps and not steps[-1]:
        steps.pop()
    if len(steps) >= 3 and steps[0] == "api" and steps[1] == "v1":
        return _under("", "v1", steps[2:])
    if len(steps) >= 4 and steps[0] == "apis":
        return _under(steps[1], steps[2], steps[3:])
    raise unknown_path()


def _under(group: str, version: str, steps: list[str]) -> Target:
    _check_group(group, version)
    if "" in steps:
        raise unknown_path()
    if steps[0] == "watch":
        raise not_served("the paths under watch/; use the query parameter watch=true")
    if steps[0] == "namespaces" and len(steps) >= 3:
        if len(steps) == 3 and not group and steps[2] in ("status", "finalize"):
            return _target(NAMESPACES, "", steps[1:])
        resource = _resource(group, version, steps[2])
        if not resource.namespaced:
            raise unknown_path()
        return _target(resource, steps[1], steps[3:])
    return _target(_resource(group, version, steps[0]), "", steps[1:])


def _check_group(group: str, version: str) -> None:
    if group in UNSERVED_GROUPS:
        raise not_served(f"the group {group}")
    if group not in _SERVED_GROUPS:
        raise unknown_path()


def _resource(group: str, version: str, plural: str) -> Resource:
    resource = BY_PATH.get((group, version, plural))
    if resource is not None:
        return resource
    if not group and plural in UNSERVED_CORE:
        raise not_served(plural)
    raise unknown_path()


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
