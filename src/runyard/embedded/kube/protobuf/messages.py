"""Describes the messages of each kind: the number, the JSON name and the type of every field.

Names and types are those of `schema.model`; the numbers are in `numbers`. Messages that no object of the schema
contains (`Status`, the metadata of a list, the schemas in a definition) are listed here in the same notation, with

    json       any value, as JSON in a message of its own
    many       a schema or a list of schemas; flag: a schema or a boolean; texts: a schema or a list of texts

A field of another message may be written in place (`>Name` in `numbers`): its members are the object's own in JSON.
"""

import re
from collections.abc import Mapping
from functools import cache

import msgspec

from runyard.embedded.kube.protobuf.numbers import NUMBERS
from runyard.embedded.kube.resources import BUILT_IN
from runyard.embedded.kube.schema import model
from runyard.embedded.kube.schema.model import Code

_SCHEMA = "JSONSchemaProps"
OTHERS = """
ListMeta = selfLink resourceVersion continue remainingItemCount:*l
StatusCause = reason message field
StatusDetails = name group kind uid causes:[StatusCause] retryAfterSeconds:i
Status = metadata:ListMeta status message reason details:*StatusDetails code:i
PartialObjectMetadata = metadata:ObjectMeta
ScaleSpec = replicas:i
ScaleStatus = replicas:i selector
Scale = metadata:ObjectMeta spec:ScaleSpec status:ScaleStatus
ExternalDocumentation = description url
ValidationRule = rule message messageExpression reason:*s fieldPath optionalOldSelf:*b
JSONSchemaProps = id $schema $ref:*s description type format title default:*json maximum:*f
    exclusiveMaximum:b minimum:*f exclusiveMinimum:b maxLength:*l minLength:*l pattern maxItems:*l
    minItems:*l uniqueItems:b multipleOf:*f enum:[json] maxProperties:*l minProperties:*l
    required:[s] items:*many allOf:[JSONSchemaProps] oneOf:[JSONSchemaProps]
    anyOf:[JSONSchemaProps] not:*JSONSchemaProps properties:{JSONSchemaProps}
    additionalProperties:*flag patternProperties:{JSONSchemaProps} dependencies:{texts}
    additionalItems:*flag definitions:{JSONSchemaProps} externalDocs:*ExternalDocumentation
    example:*json nullable:b x-kubernetes-preserve-unknown-fields:*b
    x-kubernetes-embedded-resource:b x-kubernetes-int-or-string:b x-kubernetes-list-map-keys:[s]
    x-kubernetes-list-type:*s x-kubernetes-map-type:*s x-kubernetes-validations:[ValidationRule]
"""
_UNTYPED = {"fieldsV1": "json", "openAPIV3Schema": _SCHEMA}  # what `any` is in protobuf
# Objects that are no resource of their own.
_FURTHER = (
    ("v1", "Status"),
    ("v1", "Binding"),
    ("v1", "DeleteOptions"),
    ("policy/v1", "Eviction"),
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("autoscaling/v1", "Scale"),
    ("meta.k8s.io/v1", "PartialObjectMetadata"),
)


class Field(msgspec.Struct, frozen=True):
    """One field of a message."""

    number: int
    name: str  # in JSON
    core: str  # its type, as in `schema.model`
    pointer: bool = False  # absent and empty differ
    inside: "Message | None" = None  # a message in place: its members are the object's own


class Message(msgspec.Struct, frozen=True, eq=False):
    """A message: its fields by their numbers, in order."""

    fields: dict[int, Field]


@cache
def message(name: str) -> Message:
    """The message of that name; raises `KeyError` for an unknown name."""
    if name.startswith("list "):
        return Message({1: Field(1, "metadata", "ListMeta"), 2: Field(2, "items", f"[{name[5:]}]")})
    own = _table(OTHERS)
    if name in own:
        codes = {key: model.code_of(code) for key, code in _members(own[name])}
    else:
        codes = model.named(name).codes
    return _message(name, codes)


def _message(name: str, codes: Mapping[str, Code]) -> Message:
    """A message, or one in place of its members, with the types that the object has."""
    found: dict[int, Field] = {}
    number = 0
    for entry in _table(NUMBERS)[name].split():
        key, _, given = entry.partition("=")
        number = int(given) if given else number + 1
        if key.startswith(">"):
            found[number] = Field(number, "", key[1:], inside=_message(key[1:], codes))
        elif key in codes:
            code = codes[key]
            core = _UNTYPED[key] if code.core == "any" else code.core
            found[number] = Field(number, key, core, code.pointer)
    return Message(found)


def _members(text: str) -> list[tuple[str, str]]:
    parts = (entry.partition(":") for entry in text.split())
    return [(name, code or "s") for name, _, code in parts]


@cache
def _table(text: str) -> dict[str, str]:
    lines = re.sub(r"\n +", " ", text).splitlines()
    return {name: rest for name, _, rest in (line.partition(" =") for line in lines if line)}


@cache
def kinds() -> dict[tuple[str, str], str]:
    """The message of each kind in each version, and of the lists of them."""
    given = (*((item.api_version, item.kind) for item in BUILT_IN), *_FURTHER)
    listed = (*((item.api_version, item.kind) for item in BUILT_IN if item.stored), _FURTHER[-1])
    objects = {(version, kind): kind for version, kind in given}
    return objects | {(version, f"{kind}List"): f"list {kind}" for version, kind in listed}


def message_of(api_version: str, kind: str) -> Message | None:
    """The message of an object or a list; None for a kind that exists in JSON only."""
    name = kinds().get((api_version, kind))
    return None if name is None else message(name)


def message_named(kind: str) -> Message | None:
    """The message of a kind in whichever version: options have the version of what they are about."""
    name = next((name for (_, known), name in kinds().items() if known == kind), None)
    return None if name is None else message(name)
