"""Validates security contexts, and fields that depend on the operating system."""

import re
from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    invalid_value,
    relative_path,
    required,
    unsupported,
)
from runyard.embedded.kube.status import Cause

_LARGEST = 2**31 - 1
_SYSTEMS = ("linux", "windows")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC = ("Default", "Unmasked")
_ENUMS = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("Recursive",),
}
_SYSCTL = re.compile(r"([a-z0-9]([a-z0-9_-]*[a-z0-9])?[./])*[a-z0-9]([a-z0-9_-]*[a-z0-9])?")
_OF_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_OF_NETWORK = ("net.",)
_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_NOT_ON_LINUX = "windows options cannot be set for a linux pod"
_SHARED = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "runAsUser", "runAsGroup")
_POD_ONLY = (
    *_SHARED,
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_ONLY = (
    *_SHARED,
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
)


def check(spec: Object) -> list[Cause]:
    """Validates a Pod's security context."""
    causes: list[Cause] = []
    given = spec.get("securityContext")
    if given:
        causes += _pod(given, spec)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid_value("spec.securityContext.shareProcessNamespace", True, why))
    if spec.get("hostUsers") is False:
        causes += _user_namespace(spec)
    if (system := spec.get("os")) is not None:
        causes += _system(system.get("name", ""), spec)
    return causes


def container(path: str, given: Object, spec: Object) -> list[Cause]:
    """Validates a container's security context."""
    causes = _profiles(path, given) + _identities(path, given, ("runAsUser", "runAsGroup"))
    proc = given.get("procMount")
    if proc is not None and proc not in _PROC:
        causes.append(unsupported(f"{path}.procMount", proc, _PROC))
    elif proc == "Unmasked" and spec.get("hostUsers") is not False:
        why = "`hostUsers` must be false to use `Unmasked`"
        causes.append(invalid(f"{path}.procMount", proc, why))
    if given.get("allowPrivilegeEscalation") is False:
        added = (given.get("capabilities") or {}).get("add") or ()
        if given.get("privileged"):
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            causes.append(invalid_value(path, given, why))
        if "CAP_SYS_ADMIN" in added:
            why = "cannot set `allowPrivilegeEscalation` to false and add CAP_SYS_ADMIN"
            causes.append(invalid_value(path, given, why))
    return causes


def _pod(given: Object, spec: Object) -> list[Cause]:
    path = "spec.securityContext"
    causes = _profiles(path, given)
    causes += _identities(path, given, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(given.get("supplementalGroups") or ()):
        causes += _identity(f"{path}.supplementalGroups[{index}]", group)
    for key, among in _ENUMS.items():
        if (value := given.get(key)) is not None and value not in among:
            causes.append(unsupported(f"{path}.{key}", value, among))
    if given.get("sysctls"):
        causes += _sysctls(f"{path}.sysctls", given["sysctls"], spec)
    return causes


def _identities(path: str, given: Object, keys: tuple[str, ...]) -> list[Cause]:
    return [
        cause
        for key in keys
        if given.get(key) is not None
        for cause in _identity(f"{path}.{key}", given[key])
    ]


def _identity(field: str, number: int) -> list[Cause]:
    fits = 0 <= number <= _LARGEST
    why = f"must be between 0 and {_LARGEST}, inclusive"
    return [] if fits else [invalid_value(field, number, why)]


def _sysctls(field: str, found: Any, spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    names: dict[str, None] = {}
    for index, item in enumerate(found):
        here, name = f"{field}[{index}].name", item.get("name", "")
        if not name:
            causes.append(required(here))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            causes.append(invalid(here, name, "must be parts of a name, joined by '.' or '/'"))
        elif name in names:
            causes.append(duplicate(here, name))
        plain = name.replace("/", ".")
        for key, taken in (("hostNetwork", _OF_NETWORK), ("hostIPC", _OF_IPC)):
            if spec.get(key) and plain.startswith(taken):
                causes.append(invalid(here, name, f"may not be specified when '{key}' is true"))
        names[name] = None
    return causes


# ---- profiles


def _profiles(path: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    if (profile := given.get("seccompProfile")) is not None:
        causes += _profile(f"{path}.seccompProfile", profile, "seccomp")
        file = profile.get("localhostProfile") or ""
        if profile.get("type") == "Localhost" and (why := relative_path(file)):
            causes.append(invalid(f"{path}.seccompProfile.localhostProfile", file, why))
    if (profile := given.get("appArmorProfile")) is not None:
        causes += _profile(f"{path}.appArmorProfile", profile, "AppArmor")
        file = profile.get("localhostProfile") or ""
        if profile.get("type") == "Localhost" and file.strip() != file:
            why = "must not be padded with whitespace"
            causes.append(invalid(f"{path}.appArmorProfile.localhostProfile", file, why))
    return causes


def _profile(path: str, given: Object, what: str) -> list[Cause]:
    kind, file = given.get("type", ""), given.get("localhostProfile")
    field = f"{path}.localhostProfile"
    causes: list[Cause] = []
    if not kind:
        member = path.rpartition(".")[2]
        causes.append(required(f"{path}.type", f"type is required when {member} is set"))
    elif kind not in _PROFILES:
        causes.append(unsupported(f"{path}.type", kind, _PROFILES))
    if kind == "Localhost" and file is None:
        causes.append(required(field, f"must be set when {what} type is Localhost"))
    elif kind != "Localhost" and file is not None:
        why = f"can only be set when {what} type is Localhost"
        causes.append(invalid(field, file, why))
    return causes


# ---- fields that depend on the operating system


def _user_namespace(spec: Object) -> list[Cause]:
    """A Pod with a user namespace cannot share the host's namespaces."""
    why = "when `hostUsers` is false"
    shared = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    causes = [forbidden(f"spec.{shown}", why) for key, shown in shared if spec.get(key)]
    for part in ("containers", "initContainers"):
        for index, item in enumerate(spec.get(part) or ()):
            if item.get("volumeDevices"):
                causes.append(forbidden(f"spec.{part}[{index}].volumeDevices", why))
    return causes


def _system(name: str, spec: Object) -> list[Cause]:
    if not name:
        return [required("spec.os.name")]
    if name not in _SYSTEMS:
        return [unsupported("spec.os", name, _SYSTEMS)]
    return _windows(spec) if name == "windows" else _linux(spec)


def _contexts(spec: Object) -> list[tuple[str, Object]]:
    return [
        (f"spec.{part}[{index}].securityContext", item["securityContext"])
        for part in ("containers", "initContainers")
        for index, item in enumerate(spec.get(part) or ())
        if item.get("securityContext")
    ]


def _linux(spec: Object) -> list[Cause]:
    found = [("spec.securityContext", spec.get("securityContext") or {}), *_contexts(spec)]
    return [
        forbidden(f"{path}.windowsOptions", _NOT_ON_LINUX)
        for path, given in found
        if given.get("windowsOptions") is not None
    ]


def _windows(spec: Object) -> list[Cause]:
    own = spec.get("securityContext") or {}
    causes = [
        forbidden(f"spec.securityContext.{key}", _NOT_ON_WINDOWS)
        for key in _POD_ONLY
        if own.get(key) is not None
    ]
    shared = [key for key in ("hostPID", "hostIPC") if spec.get(key)]
    shared += [key for key in ("shareProcessNamespace", "hostUsers") if spec.get(key) is not None]
    causes += [forbidden(f"spec.{key}", _NOT_ON_WINDOWS) for key in shared]
    if spec.get("resources") is not None:
        causes.append(forbidden("spec.resources", "may not be set for a windows pod"))
    return causes + [
        forbidden(f"{path}.{key}", _NOT_ON_WINDOWS)
        for path, given in _contexts(spec)
        for key in _CONTAINER_ONLY
        if given.get(key) is not None
    ]
