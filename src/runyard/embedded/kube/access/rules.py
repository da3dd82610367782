"""Evaluates RBAC rules: what one allows, and whether some rules together cover another.

A rule allows verbs on resources of groups, optionally only under some names, or verbs on paths. `*` stands for
everything in its place; `*/status` for that subresource of everything; a path may end in `*`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from runyard.embedded.kube.access.auth import Action

EVERYTHING = "*"
_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
_SHOWN = {"apiGroups": "APIGroups", "nonResourceURLs": "NonResourceURLs"}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows(self, action: Action) -> bool:
        """Whether this rule allows that action."""
        if self.names and action.name not in self.names:
            return False
        return self.matches_except_name(action)

    def matches_except_name(self, action: Action) -> bool:
        """Whether this rule allows that action on some object, ignoring its name."""
        if action.verb not in self.verbs and EVERYTHING not in self.verbs:
            return False
        if (path := action.path) is not None:
            return any(_path_matches(pattern, path) for pattern in self.paths)
        if action.group not in self.groups and EVERYTHING not in self.groups:
            return False
        return _resource_matches(self.resources, action.resource, action.subresource)

    def parts(self) -> list["Rule"]:
        """Splits this rule into rules of one verb on one resource each."""
        named: list[tuple[str, ...]] = [(name,) for name in self.names]
        one = [
            Rule(verbs=(verb,), groups=(group,), resources=(resource,), names=names)
            for group in self.groups
            for resource in self.resources
            for names in (named or [()])
            for verb in self.verbs
        ]
        return one + [
            Rule(verbs=(verb,), paths=(path,)) for path in self.paths for verb in self.verbs
        ]

    def as_object(self) -> dict[str, list[str]]:
        """Returns the rule as it is written in a manifest."""
        given = (self.verbs, self.groups, self.resources, self.names, self.paths)
        return {key: list(value) for key, value in zip(_FIELDS, given, strict=True) if value}

    def __str__(self) -> str:
        ordered = ("apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs")
        given = self.as_object()
        shown = (
            f"{_SHOWN.get(key, key[0].upper() + key[1:])}:[{' '.join(_quoted(given[key]))}]"
            for key in ordered
            if key in given
        )
        return "{" + ", ".join(shown) + "}"


def _quoted(values: list[str]) -> list[str]:
    return [f'"{value}"' for value in values]


def rule_of(given: Any) -> Rule:
    """Parses a rule of an object; an invalid one allows nothing."""
    if not isinstance(given, dict):
        return Rule()
    verbs, groups, resources, names, paths = (_texts(given.get(field)) for field in _FIELDS)
    return Rule(verbs=verbs, groups=groups, resources=resources, names=names, paths=paths)


def rules_of(role: dict[str, Any]) -> tuple[Rule, ...]:
    """The rules of a Role or ClusterRole."""
    given = role.get("rules")
    return tuple(rule_of(each) for each in given) if isinstance(given, list) else ()


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(each for each in value if isinstance(each, str))


def _path_matches(pattern: str, path: str) -> bool:
    if pattern in (EVERYTHING, path):
        return True
    return pattern.endswith(EVERYTHING) and path.startswith(pattern.rstrip(EVERYTHING))


def _resource_matches(known: tuple[str, ...], resource: str, subresource: str) -> bool:
    if resource in known or EVERYTHING in known:
        return True
    return bool(subresource) and f"*/{subresource}" in known


def uncovered(wanted: Iterable[Rule], held: Iterable[Rule]) -> list[Rule]:
    """The parts of the wanted rules that the held ones do not allow."""
    owned = tuple(held)
    parts = [part for rule in wanted for part in rule.parts()]
    return [part for part in parts if not any(_covers(rule, part) for rule in owned)]


def _covers(rule: Rule, part: Rule) -> bool:
    if EVERYTHING not in rule.verbs and part.verbs[0] not in rule.verbs:
        return False
    if part.paths:
        return any(_path_covers(pattern, part.paths[0]) for pattern in rule.paths)
    if EVERYTHING not in rule.groups and part.groups[0] not in rule.groups:
        return False
    resource = part.resources[0]
    subresource = resource.partition("/")[2]
    if not _resource_matches(rule.resources, resource, subresource):
        return False
    return not rule.names or (bool(part.names) and part.names[0] in rule.names)


def _path_covers(pattern: str, path: str) -> bool:
    return pattern in (EVERYTHING, path) or (
        pattern.endswith(EVERYTHING) and path.startswith(pattern.rstrip(EVERYTHING))
    )
