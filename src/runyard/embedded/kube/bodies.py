"""Reads request bodies as JSON, YAML or protobuf, and finds unknown and duplicate fields.

Unknown and duplicate fields cause a warning, or a 400, unless the client requests that they are ignored
(`fieldValidation`).
"""

import json
from typing import Any

import msgspec
import yaml

from runyard.embedded.kube.crd import keywords
from runyard.embedded.kube.patches.patch import pruned
from runyard.embedded.kube.protobuf import decoding
from runyard.embedded.kube.resources import DEFINITIONS, Object, Resource
from runyard.embedded.kube.schema import model
from runyard.embedded.kube.schema.typed import known, may_have_unknown, unknown
from runyard.embedded.kube.status import bad_request, unsupported_media

JSON, YAML = "application/json", "application/yaml"
_ACCEPTED = (JSON, YAML, decoding.PROTOBUF)
_MAX_DEPTH = 100
_MAX_NODES = 200_000
_encode = msgspec.json.Encoder().encode


def media(request: Any) -> str:
    """The content type of a body, without its parameters."""
    text: str = request.header("content-type")
    return text.partition(";")[0].strip().lower()


def decode(request: Any, *, keep_nulls: bool = False, expected: str = "") -> Any:
    """The body of a write; nulls mean absence, except in a patch. Raises 400 or 415.

    `expected` is the kind of a body in protobuf that names none.
    """
    kind = media(request)
    if kind == decoding.PROTOBUF:
        return decoding.decode(request.body, expected)
    if kind == YAML:
        return pruned(read_yaml(request.body))
    if kind not in ("", JSON) and not kind.endswith("json"):
        raise unsupported_media(kind, _ACCEPTED)
    value = read_json(request.body)
    return pruned(value) if not keep_nulls and b"null" in request.body else value


def without_unusable_nulls(resource: Resource, value: Any) -> Any:
    """A body without meaningless nulls: all of them, except where a schema allows null."""
    if resource.definition is None or not isinstance(value, dict):
        return pruned(value)
    return resource.definition.without_unusable_nulls(value)


def read_object(resource: Resource, request: Any, kind: str = "") -> Any:
    """The body of a write of a whole object, of the resource's kind or of another. Raises 400 or 415."""
    if resource.custom and media(request) == decoding.PROTOBUF:
        raise unsupported_media(decoding.PROTOBUF, (JSON, YAML))
    value = decode(request, keep_nulls=resource.custom, expected=kind or resource.kind)
    return (
        without_unusable_nulls(resource, value)
        if resource.custom and b"null" in request.body
        else value
    )


def read_json(body: bytes, *, what: str = "the body of the request is not JSON") -> Any:
    """Parses JSON; raises 400."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"{what}: {error}") from None


# ---- YAML


class _Loader(yaml.SafeLoader):
    """Loads plain values only; timestamps stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(body: bytes) -> Any:
    """Parses YAML (a superset of JSON); raises 400; bounded in depth and size, without aliases."""
    if body[:1] == b"{":
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # YAML flow style that is not JSON
    try:
        _check_size(body)
        return _plain(yaml.load(body, Loader=_Loader))  # noqa: S506  a restricted SafeLoader
    except (yaml.YAMLError, ValueError, UnicodeDecodeError) as error:
        given = str(error).replace("\n", " ")[:200]
        raise bad_request(
            f"error decoding YAML: error converting YAML to JSON: yaml: {given}"
        ) from None


def _check_size(body: bytes) -> None:
    depth = 0
    for nodes, event in enumerate(yaml.parse(body, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not read")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH or nodes > _MAX_NODES:
            raise ValueError("too deep or too long")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"a value of type {type(value).__name__}")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else str(key)


# ---- unknown and duplicate fields


def unknown_fields(resource: Resource, obj: Any, old: Object | None = None) -> list[str]:
    """Warnings about fields that the kind does not have; unchanged fields of `old` are ignored."""
    if not isinstance(obj, dict) or obj is old:
        return []
    if known(resource):
        may_differ = may_have_unknown(resource, obj, old)
        found = unknown(model.named(resource.kind), obj, old=old) if may_differ else []
        if resource is DEFINITIONS:
            found += keywords.unknown(obj)
    else:
        meta = old["metadata"] if old is not None else None
        found = unknown(model.named("ObjectMeta"), obj.get("metadata"), "metadata", old=meta)
        if resource.definition is not None:
            found += resource.definition.unknown(obj)
    return [f'unknown field "{path}"' for path in found]


def duplicates(body: bytes, value: Any) -> list[str]:
    """Warnings about the members that a JSON body has twice.

    Most bodies are encoded as this server encodes them; if the length is the same, there are no duplicates.
    """
    if len(body) == len(_encode(value)):
        return []
    try:
        pairs = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    _find_duplicates(pairs, "", found)
    return [f'duplicate field "{path}"' for path in found]


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, including duplicates."""


def _find_duplicates(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: dict[str, None] = {}
        for key, item in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                found.append(here)
            seen[key] = None
            _find_duplicates(item, here, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_duplicates(item, f"{path}[{index}]", found)


def cannot_handle(resource: Resource, why: str) -> str:
    """Returns the message for a body that is not an object of that kind."""
    kind = resource.kind
    return f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {why}'


def is_complete(resource: Resource, obj: Object) -> bool:
    """Whether a body has kind and apiVersion; only built-in kinds may leave them out."""
    return not resource.custom or ("kind" in obj and "apiVersion" in obj)
