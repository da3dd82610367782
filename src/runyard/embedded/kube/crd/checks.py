"""Validates a value against its schema: every violation with its field, with a real server's messages.

A part that a write does not change is not checked again, so an object that was stored before a schema became
stricter can still be changed elsewhere.
"""

import json
from collections.abc import Callable
from typing import Any

from runyard.embedded.kube.crd.formats import FORMATS
from runyard.embedded.kube.crd.schema import MISSING, Schema
from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import Cause

_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
_OWN = ("apiVersion", "kind", "metadata")
_IDENTITY = ("apiVersion", "kind")
_BOUNDS = {"int32": 2**31, "int64": 2**63}


def check(schema: Schema, obj: Object, old: Object | None = None) -> list[Cause]:
    """Validates an object (which takes the place of `old`, if given)."""
    causes: list[Cause] = []
    before: Any = MISSING if old is None else old
    _map(schema, obj, "", before, causes, root=True)
    _combined(schema, obj, "", causes)
    return causes


def check_default(schema: Schema, value: Any, path: str) -> list[Cause]:
    """Validates a value that a schema gives as its default, at that path of the definition."""
    causes: list[Cause] = []
    _value(schema, value, "", MISSING, causes)
    return [
        Cause(f"{path}.{item.field}" if item.field else path, item.message, item.reason)
        for item in causes
    ]


def _value(schema: Schema, value: Any, path: str, old: Any, causes: list[Cause]) -> None:
    if value is old or (type(value) is type(old) and value == old):
        return
    if not _typed(schema, value, path, causes) or schema.plain:
        return
    kind = type(value)
    if kind is dict:
        _map(schema, value, path, old, causes)
    elif kind is list:
        _list(schema, value, path, old, causes)
    elif kind is str:
        _text(schema, value, path, causes)
    elif kind is int or kind is float:
        _number(schema, value, path, causes)
    if schema.enum is not None and not _listed(value, schema.enum):
        shown = ", ".join(_quoted(_plain(each)) for each in schema.enum)
        message = f"Unsupported value: {_shown(value)}: supported values: {shown}"
        causes.append(Cause(path, message, "FieldValueNotSupported"))
    _combined(schema, value, path, causes)


# ---- types


def _typed(schema: Schema, value: Any, path: str, causes: list[Cause]) -> bool:
    """Whether the value has the type of its field; a cause if not."""
    found = type_name(value)
    if found == "null":
        wrong = not schema.nullable and bool(schema.type or schema.int_or_string)
    elif schema.int_or_string:
        wrong = found not in ("integer", "string")
    elif schema.type == "number":
        wrong = found not in ("integer", "number")
    else:
        wrong = bool(schema.type) and found != schema.type
    if wrong:
        _wrong_type(path, schema.type or "integer,string", found, causes)
        if schema.type == "integer" and found == "number":
            causes.append(_unchecked(path, "integer (default format)"))
    return not wrong and found != "null"


def type_name(value: Any) -> str:
    """The type of a value as a schema names it."""
    if value is None:
        return "null"
    if type(value) is float:
        return "integer" if value.is_integer() else "number"
    return _NAMES.get(type(value), "string")


def _wrong_type(path: str, wanted: str, found: str, causes: list[Cause]) -> None:
    why = f"{path} in body must be of type {wanted}: {_quoted(found)}"
    message = f"Invalid value: {_quoted(found)}: {why}"
    causes.append(Cause(path, message, "FieldValueTypeInvalid"))


def _unchecked(path: str, wanted: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": Checked value must be of type {wanted} in {path}')


def _listed(value: Any, among: tuple[Any, ...]) -> bool:
    return any(type(each) is type(value) and each == value for each in among)


# ---- one function per type


def _map(
    schema: Schema, value: Object, path: str, old: Any, causes: list[Cause], *, root: bool = False
) -> None:
    before = old if isinstance(old, dict) else {}
    own = root or schema.embedded
    prefix = f"{path}." if path else ""
    for key in (*schema.required, *(_IDENTITY if schema.embedded else ())):
        if key not in value:
            causes.append(Cause(f"{prefix}{key}", "Required value", "FieldValueRequired"))
    for key, item in value.items():
        if own and key in _OWN:
            continue
        below = schema.properties.get(key) or schema.extra
        if below is not None:
            _value(below, item, f"{prefix}{key}", before.get(key, MISSING), causes)
    if schema.max_properties is not None and len(value) > schema.max_properties:
        message = f"Too many: {len(value)}: must have at most {schema.max_properties} items"
        causes.append(Cause(path, message, "FieldValueTooMany"))
    if schema.min_properties is not None and len(value) < schema.min_properties:
        _add_invalid(
            path, len(value), f"should have at least {schema.min_properties} properties", causes
        )


def _list(schema: Schema, value: list[Any], path: str, old: Any, causes: list[Cause]) -> None:
    if schema.items is not None:
        before = _correlated(schema, old)
        for index, item in enumerate(value):
            found = before(item)
            _value(schema.items, item, f"{path}[{index}]", found, causes)
    if schema.max_items is not None and len(value) > schema.max_items:
        message = f"Too many: {len(value)}: must have at most {schema.max_items} items"
        causes.append(Cause(path, message, "FieldValueTooMany"))
    if schema.min_items is not None and len(value) < schema.min_items:
        _add_invalid(path, len(value), f"should have at least {schema.min_items} items", causes)
    if schema.unique and len({_key(item): None for item in value}) < len(value):
        _add_invalid(path, "", "shouldn't contain duplicates", causes)
    _check_duplicates(schema, value, path, causes)


def _correlated(schema: Schema, old: Any) -> Callable[[Any], Any]:
    """The earlier item that an item replaces: by its keys, where the list has keys."""
    if schema.list_type != "map" or not isinstance(old, list):
        return lambda item: MISSING
    earlier = {_item_key(schema, item): item for item in old}
    return lambda item: earlier.get(_item_key(schema, item), MISSING)


def _item_key(schema: Schema, item: Any) -> str:
    if not isinstance(item, dict):
        return _key(item)
    return _key({key: item[key] for key in schema.list_keys if key in item})


def _check_duplicates(schema: Schema, value: list[Any], path: str, causes: list[Cause]) -> None:
    """Refuses duplicate items of sets and of lists with keys."""
    if schema.list_type not in ("set", "map"):
        return
    seen: dict[str, None] = {}
    for index, item in enumerate(value):
        key = _item_key(schema, item) if schema.list_type == "map" else _key(item)
        if key in seen:
            shown = _shown(item) if schema.list_type == "set" else key
            message = f"Duplicate value: {shown}"
            causes.append(Cause(f"{path}[{index}]", message, "FieldValueDuplicate"))
        seen[key] = None


def _text(schema: Schema, value: str, path: str, causes: list[Cause]) -> None:
    if schema.max_length is not None and len(value) > schema.max_length:
        message = f"Too long: may not be more than {schema.max_length} bytes"
        causes.append(Cause(path, message, "FieldValueTooLong"))
    elif schema.min_length is not None and len(value) < schema.min_length:
        _add_invalid(path, value, f"should be at least {schema.min_length} chars long", causes)
    elif schema.pattern is not None and not schema.pattern.search(value):
        _add_invalid(path, value, f"should match '{schema.pattern.pattern}'", causes)
    holds = FORMATS.get(schema.format)
    if holds is not None and not holds(value):
        why = f"{path} in body must be of type {schema.format}: {_quoted(value)}"
        message = f"Invalid value: {_quoted(value)}: {why}"
        causes.append(Cause(path, message, "FieldValueTypeInvalid"))


def _number(schema: Schema, value: float, path: str, causes: list[Cause]) -> None:
    bound = _BOUNDS.get(schema.format)
    if bound is not None and schema.type == "integer" and not -bound <= value < bound:
        causes.append(_unchecked(path, f"integer with format {schema.format}"))
        return
    low, high = schema.minimum, schema.maximum
    if high is not None and (value > high or (schema.below and value == high)):
        word = "less than" if schema.below else "less than or equal to"
        _add_invalid(path, value, f"should be {word} {_shown(high)}", causes)
    if low is not None and (value < low or (schema.above and value == low)):
        word = "greater than" if schema.above else "greater than or equal to"
        _add_invalid(path, value, f"should be {word} {_shown(low)}", causes)
    if schema.multiple_of and value % schema.multiple_of:
        _add_invalid(path, value, f"should be a multiple of {_shown(schema.multiple_of)}", causes)


# ---- combinations


def _combined(schema: Schema, value: Any, path: str, causes: list[Cause]) -> None:
    if schema.any_of and not schema.int_or_string:
        tries = [_try(each, value, path) for each in schema.any_of]
        if all(tries):
            causes += [
                _choice(path, "must validate at least one schema (anyOf)"),
                *_fewest_causes(tries),
            ]
    if schema.one_of:
        tries = [_try(each, value, path) for each in schema.one_of]
        valid = sum(not found for found in tries)
        if valid == 0:
            why = "must validate one and only one schema (oneOf). Found none valid"
            causes += [_choice(path, why), *_fewest_causes(tries)]
        elif valid > 1:
            why = f"must validate one and only one schema (oneOf). Found {valid} valid alternatives"
            causes.append(_choice(path, why))
    if schema.all_of:
        tries = [_try(each, value, path) for each in schema.all_of]
        if any(tries):
            failed = [cause for found in tries for cause in found]
            none = ". None validated" if all(tries) else ""
            causes += [*failed, _choice(path, f"must validate all the schemas (allOf){none}")]
    if schema.none_of is not None and not _try(schema.none_of, value, path):
        causes.append(_choice(path, "must not validate the schema (not)"))


def _try(schema: Schema, value: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    _value(schema, value, path, MISSING, causes)
    return causes


def _fewest_causes(tries: list[list[Cause]]) -> list[Cause]:
    """Returns the causes of the alternative with the fewest."""
    return min(tries, key=len)


def _choice(path: str, why: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": {_quoted(path)} {why}')


# ---- messages


def _add_invalid(path: str, value: Any, rule: str, causes: list[Cause]) -> None:
    causes.append(Cause(path, f"Invalid value: {_shown(value)}: {path} in body {rule}"))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(value: Any) -> str:
    """A value as an error message shows it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
