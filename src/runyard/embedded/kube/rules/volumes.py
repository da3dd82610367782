"""Validates the volumes of a Pod, and how containers mount them."""

from collections.abc import Callable
from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules import environment
from runyard.embedded.kube.rules.grammar import (
    contains_dotdot,
    duplicate,
    forbidden,
    invalid,
    invalid_value,
    label,
    missing,
    relative_path,
    required,
    unsupported,
)
from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.status import Cause

_SOURCES = (  # in the order of a real server's checks
    "emptyDir",
    "hostPath",
    "gitRepo",
    "secret",
    "nfs",
    "iscsi",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "projected",
    "csi",
    "ephemeral",
    "image",
)
_PROJECTED = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
_NEEDED = {
    "gitRepo": ("repository",),
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "persistentVolumeClaim": ("claimName",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "image": ("reference",),
}
_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIONS = ("Disabled", "Enabled", "IfPossible")
_MODES = "must be a number between 0 and 0777 (octal), both inclusive"
_SHORTEST, _LONGEST = 600, 1 << 32  # the lifetime of a token in seconds


def check(found: Any) -> tuple[dict[str, Object], list[Cause]]:
    """The volumes that can be mounted, by their names, and what is wrong with the volumes."""
    mountable: dict[str, Object] = {}
    causes: list[Cause] = []
    for index, volume in enumerate(found):
        path, name = f"spec.volumes[{index}]", volume.get("name", "")
        wrong = _source(path, volume)
        if not name:
            wrong.append(required(f"{path}.name"))
        elif why := label(name):
            wrong.append(invalid(f"{path}.name", name, why))
        elif name in mountable:
            wrong.append(duplicate(f"{path}.name", name))
        if wrong:
            causes += wrong
        else:
            mountable[name] = volume
    return mountable, causes


def _source(path: str, volume: Object) -> list[Cause]:
    given = [key for key in _SOURCES if volume.get(key) is not None]
    if not given:
        return []
    key = given[0]
    check_one = _CHECKS.get(key)
    causes = check_one(f"{path}.{key}", volume[key]) if check_one else []
    for part in _NEEDED.get(key, ()):
        if not volume[key].get(part):
            causes.append(required(f"{path}.{key}.{part}"))
    why = "may not specify more than 1 volume type"
    return causes + [forbidden(f"{path}.{other}", why) for other in given[1:]]


# ---- one function per source


def _empty(path: str, given: Object) -> list[Cause]:
    limit = given.get("sizeLimit")
    try:
        if limit is None or quantity.milli(limit) >= 0:
            return []
    except ValueError as error:
        return [invalid(f"{path}.sizeLimit", str(limit), str(error))]
    return [forbidden(f"{path}.sizeLimit", "must not be less than zero")]


def _host(path: str, given: Object) -> list[Cause]:
    where, kind = given.get("path", ""), given.get("type") or ""
    if not where:
        return [required(f"{path}.path")]
    causes = []
    if contains_dotdot(where):
        causes.append(invalid(f"{path}.path", where, "must not contain '..'"))
    if kind not in _PATH_TYPES:
        causes.append(unsupported(f"{path}.type", kind, _PATH_TYPES))
    return causes


def _nfs(path: str, given: Object) -> list[Cause]:
    where = given.get("path", "")
    absolute = where.startswith("/")
    return [] if absolute else [invalid(f"{path}.path", where, "must be an absolute path")]


def _secret(path: str, given: Object) -> list[Cause]:
    return _keys(path, given, "secretName")


def _config(path: str, given: Object) -> list[Cause]:
    return _keys(path, given, "name")


def _keys(path: str, given: Object, named: str) -> list[Cause]:
    causes = [] if given.get(named) else [required(f"{path}.{named}")]
    causes += _mode(f"{path}.defaultMode", given)
    for index, item in enumerate(given.get("items") or ()):
        here = f"{path}.items[{index}]"
        if not item.get("key"):
            causes.append(required(f"{here}.key"))
        if not item.get("path"):
            causes.append(required(f"{here}.path"))
        causes += _file(f"{here}.path", item.get("path", "")) + _mode(f"{here}.mode", item)
    return causes


def _mode(field: str, given: Object) -> list[Cause]:
    mode = given.get(field.rpartition(".")[2])
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid_value(field, mode, _MODES)]


def _file(field: str, where: str) -> list[Cause]:
    """Validates the path of a file in its volume."""
    if why := relative_path(where):
        return [invalid(field, where, why)]
    return [invalid(field, where, "must not start with '..'")] if where.startswith("..") else []


def _downward(path: str, given: Object) -> list[Cause]:
    causes = _mode(f"{path}.defaultMode", given)
    for item in given.get("items") or ():
        where, field, amount = item.get("path"), item.get("fieldRef"), item.get("resourceFieldRef")
        causes += _file(f"{path}.path", where) if where else [required(f"{path}.path")]
        if field is not None:
            causes += environment.field_in_file(f"{path}.fieldRef", field)
            if amount is not None:
                why = "fieldRef and resourceFieldRef can not be specified simultaneously"
                causes.append(invalid(path, "resource", why))
        elif amount is not None:
            causes += environment.resource(f"{path}.resourceFieldRef", amount, named=True)
        else:
            causes.append(required(path, "one of fieldRef and resourceFieldRef is required"))
        causes += _mode(f"{path}.mode", item)
    return causes


def _projected(path: str, given: Object) -> list[Cause]:
    causes = _mode(f"{path}.defaultMode", given)
    taken: dict[str, None] = {}
    for index, source in enumerate(given.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        found = [key for key in _PROJECTED if source.get(key) is not None]
        for key in found[:1]:
            causes += _projection(path, f"{here}.{key}", key, source[key])
            causes += _duplicate_paths(path, key, source[key], taken)
        if len(found) > 1:
            causes.append(forbidden(here, "may not specify more than 1 volume type per source"))
    return causes


def _projection(volume: str, path: str, key: str, given: Object) -> list[Cause]:
    if key == "downwardAPI":
        return _downward(path, given)
    return _token(volume, path, given) if key == "serviceAccountToken" else _config(path, given)


def _duplicate_paths(path: str, key: str, given: Object, taken: dict[str, None]) -> list[Cause]:
    """Two files with the same path; a token's path is not checked."""
    causes: list[Cause] = []
    for item in given.get("items") or ():
        where = item.get("path", "")
        if where and where in taken:
            shown = given.get("name", "") if key != "downwardAPI" else where
            causes.append(invalid(path, shown, "conflicting duplicate paths"))
        taken[where] = None
    return causes


def _token(volume: str, path: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    seconds, where = given.get("expirationSeconds"), given.get("path")
    if seconds is not None and seconds < _SHORTEST:
        why = "may not specify a duration less than 10 minutes"
        causes.append(invalid_value(f"{path}.expirationSeconds", seconds, why))
    if seconds is not None and seconds > _LONGEST:
        why = "may not specify a duration larger than 2^32 seconds"
        causes.append(invalid_value(f"{path}.expirationSeconds", seconds, why))
    return causes + (_file(f"{volume}.path", where) if where else [required(f"{volume}.path")])


_CHECKS: dict[str, Callable[[str, Object], list[Cause]]] = {
    "emptyDir": _empty,
    "hostPath": _host,
    "nfs": _nfs,
    "secret": _secret,
    "configMap": _config,
    "downwardAPI": _downward,
    "projected": _projected,
}


# ---- mounts


def mounts(path: str, container: Object, volumes: dict[str, Object]) -> list[Cause]:
    """Validates how a container mounts volumes."""
    causes: list[Cause] = []
    paths: dict[str, None] = {}
    for index, mount in enumerate(container["volumeMounts"]):
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif name not in volumes:
            causes.append(missing(f"{path}[{index}].name", name))
        if not where:
            causes.append(required(f"{path}[{index}].mountPath"))
        if where in paths:
            causes.append(invalid(f"{path}[{index}].mountPath", where, "must be unique"))
        paths[where] = None
        if len(mount) > 2:
            causes += _mount_options(path, index, mount, container.get("securityContext") or {})
    return causes


def _mount_options(path: str, index: int, mount: Object, security: Object) -> list[Cause]:
    causes: list[Cause] = []
    for key in ("subPath", "subPathExpr"):
        if why := relative_path(mount.get(key, "")):
            causes.append(invalid(f"{path}.{key}", mount[key], why))
    if mount.get("subPath") and mount.get("subPathExpr"):
        why = "subPathExpr and subPath are mutually exclusive"
        causes.append(invalid(f"{path}[{index}].subPathExpr", mount["subPathExpr"], why))
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    field = f"{path}.mountPropagation"
    if propagation is not None and propagation not in _PROPAGATIONS:
        causes.append(unsupported(field, propagation, _PROPAGATIONS))
    if propagation == "Bidirectional" and not security.get("privileged"):
        why = "Bidirectional mount propagation is available only to privileged containers"
        causes.append(forbidden(field, why))
    return causes + _recursive_read_only(f"{path}.recursiveReadOnly", recursive, mount, propagation)


def _recursive_read_only(
    field: str, recursive: str | None, mount: Object, propagation: str | None
) -> list[Cause]:
    if recursive is None or recursive == "Disabled":
        return []
    if recursive not in _RECURSIONS:
        return [unsupported(field, recursive, _RECURSIONS)]
    if not mount.get("readOnly"):
        return [forbidden(field, "may only be specified when readOnly is true")]
    if propagation not in (None, "None"):
        why = "may only be specified when mountPropagation is None or not specified"
        return [forbidden(field, why)]
    return []


def devices(path: str, container: Object, volumes: dict[str, Object]) -> list[Cause]:
    """Validates the block devices of a container."""
    causes: list[Cause] = []
    for index, device in enumerate(container["volumeDevices"]):
        here, name = f"{path}[{index}]", device.get("name", "")
        volume = volumes.get(name)
        if not name:
            causes.append(required(f"{here}.name"))
        if volume is None:
            causes.append(missing(f"{here}.name", name))
        elif not (volume.get("persistentVolumeClaim") or volume.get("ephemeral")):
            why = "only a PersistentVolumeClaim or an Ephemeral volume can be a block device"
            causes.append(invalid(f"{here}.name", name, why))
        if not device.get("devicePath"):
            causes.append(required(f"{here}.devicePath"))
    return causes
