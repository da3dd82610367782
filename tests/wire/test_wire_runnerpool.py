"""Compares the RunnerPool structs, the operator's patches and the CustomResourceDefinition, field by field.

A field that only the definition has is silently ignored by the operator; one that only a struct has is never set; one
that only a patch has is pruned by the API server.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from tests.pools.pool_builders import OLD
from tests.pools.pool_harness import PoolHarness, play

from runyard.http.messages import Request, Response
from runyard.wire import manifests
from runyard.wire.runnerpool import PoolSpec, PoolStatus

Schema = dict[str, Any]
(DEFINITION,) = manifests.definitions()
(VERSION,) = DEFINITION["spec"]["versions"]
PROPERTIES: dict[str, Schema] = VERSION["schema"]["openAPIV3Schema"]["properties"]

# The autoscaler's mark. It is not built yet; until then the field is kept as another operator wrote it.
NOT_WRITTEN = {"lastScaleDownAt"}


def of_schema(schema: Schema) -> Any:
    """The shape of a schema: names of fields and types, in the form of `of_type`."""
    match schema["type"]:
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            return {
                name: (of_schema(field), name in required, default_of(field))
                for name, field in schema["properties"].items()
            }
        case "object":
            return {"*": of_schema(schema["additionalProperties"])}
        case "array":
            return [of_schema(schema["items"])]
        case "string" if "enum" in schema:
            return sorted(schema["enum"])
        case simple if schema.get("nullable"):
            return f"{simple}?"
        case simple:
            return simple


ABSENT: dict[str, Any] = {"string": "", "integer": 0, "boolean": False, "array": ()}


def default_of(field: Schema) -> Any:
    """What a reader finds where the field is not given."""
    if "default" in field:
        return field["default"]
    if field.get("nullable"):
        return None
    return {} if field["type"] == "object" else ABSENT.get(field["type"])


def of_type(kind: Any) -> Any:
    """The shape of a Python type."""
    info = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match info:
        case msgspec.inspect.StructType():
            return {
                field.encode_name: (of_type(field.type), field.required, initial(field))
                for field in info.fields
            }
        case msgspec.inspect.DictType():
            return {"*": of_type(info.value_type)}
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return [of_type(info.item_type)]
        case msgspec.inspect.LiteralType():
            return sorted(info.values)
        case msgspec.inspect.UnionType():
            (one,) = (each for each in info.types if not isinstance(each, msgspec.inspect.NoneType))
            return f"{of_type(one)}?"
        case msgspec.inspect.StrType():
            return "string"
        case msgspec.inspect.IntType():
            return "integer"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.BoolType():
            return "boolean"
    raise TypeError(f"{info} has no counterpart in a schema")


def initial(field: msgspec.inspect.Field) -> Any:
    """A struct's default; a nested struct's defaults are compared field by field."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    if field.required:
        return ABSENT.get(of_type(field.type)) if isinstance(of_type(field.type), str) else ()
    return {} if isinstance(field.default, msgspec.Struct) else field.default


def without_requirement(shape: dict[str, Any]) -> dict[str, Any]:
    """A condition's type and status are required of the writer; a reader takes what it finds."""
    return {name: (kind, default) for name, (kind, _, default) in shape.items()}


def test_the_spec_is_read_as_it_is_defined() -> None:
    assert of_type(PoolSpec) == of_schema(PROPERTIES["spec"])


def test_the_status_is_read_as_it_is_defined() -> None:
    read, defined = of_type(PoolStatus), of_schema(PROPERTIES["status"])
    ((condition,), *_), ((schema,), *_) = read.pop("conditions"), defined.pop("conditions")
    assert read == defined
    assert schema.pop("status")[0] == ["False", "True", "Unknown"] and condition.pop("status")
    assert without_requirement(condition) == without_requirement(schema)


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Every field in a body, conditions without their position and without the names of numbers."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, prefix)
    elif isinstance(value, dict) and not prefix.endswith("numbers."):
        for name, item in value.items():
            yield prefix + name
            yield from paths(item, f"{prefix}{name}.")


def defined_paths(schema: Schema, prefix: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield prefix + name
        yield from defined_paths(field.get("items", field), f"{prefix}{name}.")


def applied() -> set[str]:
    """The fields of every status that the operator writes while a pool is filled and rolled."""
    found: set[str] = set()

    async def note(request: Request) -> Response | None:
        if request.method == "PATCH" and request.path.endswith("/status"):
            found.update(paths(msgspec.json.decode(request.body)["status"]))
        return None

    async def scenario(harness: PoolHarness) -> None:
        harness.gate.before = note
        await harness.host("host-0")
        await harness.pool(1)
        async with harness.working():
            await harness.clock.sleep(60)
            await harness.set(image=OLD, replicas=2)
            await harness.clock.sleep(120)

    play(scenario)
    return found


def test_the_operator_writes_every_status_field_that_is_defined_and_no_other() -> None:
    assert applied() == set(defined_paths(PROPERTIES["status"])) - NOT_WRITTEN


def test_a_difference_between_struct_and_schema_is_found() -> None:
    grown = msgspec.defstruct("Grown", [("more", str, "")], bases=(PoolSpec,))
    assert of_type(grown) != of_schema(PROPERTIES["spec"])
    loose = PROPERTIES["spec"] | {"required": []}
    assert of_type(PoolSpec) != of_schema(loose)
