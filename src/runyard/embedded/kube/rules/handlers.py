"""Validates probes and lifecycle handlers of containers."""

import re
from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    forbidden,
    invalid,
    invalid_value,
    port,
    port_name,
    required,
    unsupported,
)
from runyard.embedded.kube.status import Cause

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_GRACE = "terminationGracePeriodSeconds"
_SCHEMES = ("HTTP", "HTTPS")
_HEADER = re.compile(r"[A-Za-z0-9-]+")


def check(path: str, container: Object, *, keeps_running: bool, grace: int) -> list[Cause]:
    """Validates the probes and the lifecycle of a container; an init container that is no sidecar has none."""
    causes: list[Cause] = []
    if not keeps_running:
        why = "may not be set for init containers without restartPolicy=Always"
        given = ("lifecycle", *PROBES)
        return [forbidden(f"{path}.{key}", why) for key in given if container.get(key) is not None]
    for key, given in (container.get("lifecycle") or {}).items():
        if key in ("postStart", "preStop") and given is not None:
            causes += _handler(f"{path}.lifecycle.{key}", given, grace)
    for key in PROBES:
        if (probe := container.get(key)) is not None:
            causes += _probe(f"{path}.{key}", key, probe, grace)
    return causes


def _probe(path: str, kind: str, probe: Object, grace: int) -> list[Cause]:
    causes = _handler(path, probe, grace)
    for key in _COUNTS:
        if (count := probe.get(key) or 0) < 0:
            causes.append(
                invalid_value(f"{path}.{key}", count, "must be greater than or equal to 0")
            )
    own_grace = probe.get(_GRACE)
    if own_grace is not None and own_grace <= 0:
        causes.append(invalid_value(f"{path}.{_GRACE}", own_grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if own_grace is not None:
            why = "must not be set for readinessProbes"
            causes.append(invalid_value(f"{path}.{_GRACE}", own_grace, why))
    elif probe.get("successThreshold") != 1:
        given = probe.get("successThreshold", 0)
        causes.append(invalid_value(f"{path}.successThreshold", given, "must be 1"))
    return causes


def _handler(path: str, given: Object, grace: int) -> list[Cause]:
    found = [key for key in _HANDLERS if given.get(key) is not None]
    if not found:
        return [required(path, "must specify a handler type")]
    causes = _action(f"{path}.{found[0]}", found[0], given[found[0]], grace)
    why = "may not specify more than 1 handler type"
    return causes + [forbidden(f"{path}.{key}", why) for key in found[1:]]


def _action(path: str, kind: str, given: Object, grace: int) -> list[Cause]:
    if kind == "exec":
        return [] if given.get("command") else [required(f"{path}.command")]
    if kind == "sleep":
        seconds = given.get("seconds", 0)
        if 0 <= seconds <= grace:
            return []
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid_value(path, seconds, why)]
    causes = _port(f"{path}.port", given.get("port", 0))
    return causes + _request(path, given) if kind == "httpGet" else causes


def _port(field: str, given: Any) -> list[Cause]:
    if isinstance(given, int):
        return port(field, given)
    why = port_name(given)
    return [invalid(field, given, why)] if why else []


def _request(path: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    if not given.get("path"):
        causes.append(required(f"{path}.path"))
    if (scheme := given.get("scheme", "")) not in _SCHEMES:
        causes.append(unsupported(f"{path}.scheme", scheme, _SCHEMES))
    for header in given.get("httpHeaders") or ():
        name = header.get("name", "")
        if not _HEADER.fullmatch(name):
            why = "a header has letters, digits and '-'"
            causes.append(invalid(f"{path}.httpHeaders", name, why))
    return causes
