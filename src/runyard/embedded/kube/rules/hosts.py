"""Validates a Pod's host names and DNS settings."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    address,
    forbidden,
    invalid,
    invalid_value,
    label,
    required,
    subdomain,
    unsupported,
)
from runyard.embedded.kube.status import Cause

_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MOST_SERVERS, _MOST_SEARCHES, _LONGEST_SEARCHES = 3, 32, 2048


def check(spec: Object) -> list[Cause]:
    """Validates the host names and DNS settings of a Pod."""
    causes: list[Cause] = []
    if (name := spec.get("nodeName")) and (why := subdomain(name)):
        causes.append(invalid("spec.nodeName", name, why))
    for key in ("hostname", "subdomain"):
        if (name := spec.get(key)) and (why := label(name)):
            causes.append(invalid(f"spec.{key}", name, why))
    if spec.get("hostnameOverride") is not None:
        causes += _override(spec)
    if spec.get("hostAliases"):
        causes += _aliases(spec["hostAliases"])
    if (policy := spec.get("dnsPolicy", "")) not in _POLICIES:
        causes.append(unsupported("spec.dnsPolicy", policy, _POLICIES))
    config = spec.get("dnsConfig")
    if policy == "None" and not (config or {}).get("nameservers"):
        field = "spec.dnsConfig" if config is None else "spec.dnsConfig.nameservers"
        causes.append(required(field, "must be specified when `dnsPolicy` is None"))
    return causes + (_dns_config(config) if config else [])


def _override(spec: Object) -> list[Cause]:
    field, name = "spec.hostnameOverride", spec["hostnameOverride"]
    causes = [
        forbidden(field, f"may not be specified when {key} is true")
        for key in ("setHostnameAsFQDN", "hostNetwork")
        if spec.get(key)
    ]
    return [*causes, invalid(field, name, why)] if (why := subdomain(name)) else causes


def _aliases(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    for index, alias in enumerate(found):
        path = f"spec.hostAliases[{index}]"
        if why := address(alias.get("ip", "")):
            causes.append(invalid(f"{path}.ip", alias.get("ip", ""), why))
        for position, name in enumerate(alias.get("hostnames") or ()):
            if why := subdomain(name):
                causes.append(invalid(f"{path}.hostnames[{position}]", name, why))
    return causes


def _dns_config(config: Object) -> list[Cause]:
    path = "spec.dnsConfig"
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    causes: list[Cause] = []
    if len(servers) > _MOST_SERVERS:
        why = f"must not have more than {_MOST_SERVERS} nameservers"
        causes.append(invalid_value(f"{path}.nameservers", servers, why))
    for index, server in enumerate(servers):
        if why := address(server):
            causes.append(invalid(f"{path}.nameservers[{index}]", server, why))
    if len(searches) > _MOST_SEARCHES:
        why = f"must not have more than {_MOST_SEARCHES} search paths"
        causes.append(invalid_value(f"{path}.searches", searches, why))
    if len(" ".join(searches)) > _LONGEST_SEARCHES:
        why = f"must not have more than {_LONGEST_SEARCHES} characters (including spaces)"
        causes.append(invalid_value(f"{path}.searches", searches, why))
    for index, search in enumerate(searches):
        if search != "." and (why := subdomain(search.removesuffix(".").replace("_", "-"))):
            causes.append(invalid(f"{path}.searches[{index}]", search, why))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            causes.append(required(f"{path}.options[{index}]"))
    return causes
