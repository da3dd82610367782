"""Validates ConfigMaps and Secrets, and changes of them."""

import json
from base64 import b64decode

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    data_key,
    forbidden,
    invalid,
    required,
    too_long,
)
from runyard.embedded.kube.status import Cause

_IMMUTABLE = "field is immutable when `immutable` is set"
_MAX_BYTES = 1 << 20  # bytes of all values together
_ACCOUNT = "kubernetes.io/service-account.name"
_TOKEN = "kubernetes.io/service-account-token"
_BASIC, _SSH = "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"
_KEYS = {  # required keys of a type; their values are not checked
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_DOCKER = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_REDACTED = "<secret contents redacted>"


def config_map(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a ConfigMap."""
    plain, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = _keys("data", plain)
    causes += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in plain
        if key in binary
    ]
    causes += _keys("binaryData", binary)
    if sum(map(_bytes, plain.values())) + sum(map(_decoded, binary.values())) > _MAX_BYTES:
        causes.append(too_long("[]", _MAX_BYTES))  # a real server names no field
    return causes + _immutable_changes(obj, old, ("data", "binaryData"))


def secret(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a Secret."""
    found = obj.get("data") or {}
    causes = _keys("data", found)
    if sum(map(_decoded, found.values())) > _MAX_BYTES:
        causes.append(too_long("data", _MAX_BYTES))
    causes += _typed(obj, found)
    if old is not None and obj.get("type") != old.get("type"):
        causes.append(invalid("type", str(obj.get("type", "")), "field is immutable"))
    return causes + _immutable_changes(obj, old, ("data",))


def _keys(field: str, found: Object) -> list[Cause]:
    return [invalid(f"{field}[{key}]", key, why) for key in found if (why := data_key(key))]


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _decoded(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def _immutable_changes(obj: Object, old: Object | None, parts: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    causes = [] if obj.get("immutable") else [forbidden("immutable", _IMMUTABLE)]
    return causes + [
        forbidden(part, _IMMUTABLE) for part in parts if obj.get(part) != old.get(part)
    ]


# ---- Secrets of types with required content


def _typed(obj: Object, found: Object) -> list[Cause]:
    kind = obj.get("type", "")
    if kind in _KEYS:
        return [required(f"data[{key}]") for key in _KEYS[kind] if key not in found]
    if kind in _DOCKER:
        return _docker(_DOCKER[kind], found)
    if kind == _SSH:
        return [] if found.get("ssh-privatekey") else [required("data[ssh-privatekey]")]
    if kind == _BASIC:
        some = "username" in found or "password" in found
        return [] if some else [required("data[username]"), required("data[password]")]
    if kind == _TOKEN and not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT):
        return [required(f"metadata.annotations[{_ACCOUNT}]")]
    return []


def _docker(key: str, found: Object) -> list[Cause]:
    field = f"data[{key}]"
    if key not in found:
        return [required(field)]
    try:
        read = json.loads(b64decode(found[key]))
    except ValueError as error:
        return [invalid(field, _REDACTED, str(error))]
    fits = read is None or isinstance(read, dict)
    return [] if fits else [invalid(field, _REDACTED, "not a JSON object")]
