"""Schemas: conversions are idempotent, JSON paths find their values, invalid schemas are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.kube.crdsupport import SPEC

from runyard.embedded.kube.crd import jsonpath, schema, structure
from runyard.embedded.kube.crd.checks import check
from runyard.embedded.kube.crd.formats import FORMATS

ROOT = schema.build({"type": "object", "properties": {"spec": SPEC}})
KEYS = st.sampled_from((*SPEC["properties"], "n", "a", "b", "junk"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(value=JSON)
def test_pruning_and_defaulting_are_idempotent_for_any_value(value: Any) -> None:
    obj = {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": value}
    once = schema.fill(ROOT, schema.prune(ROOT, obj, root=True))
    twice = schema.fill(ROOT, schema.prune(ROOT, once, root=True))
    assert twice is once, "a second pass changes nothing"
    assert schema.unknown(ROOT, once, root=True) == []
    check(ROOT, once)


@given(value=JSON)
def test_unchanged_values_are_not_validated_again(value: Any) -> None:
    obj = {"metadata": {}, "spec": value}
    assert check(ROOT, obj, {"metadata": {"labels": {}}, "spec": value}) == []


def test_unknown_fields_are_reported_by_path() -> None:
    value = {"spec": {"junk": 1, "parts": [{"n": 1}, {"m": 2}], "free": {"x": 1}}, "more": 1}
    assert schema.unknown(ROOT, value, root=True) == ["spec.junk", "spec.parts[1].m", "more"]


OBJECT = {
    "metadata": {"labels": {"a.b/c": "label"}},
    "list": [{"type": "A", "on": True, "v": 1}, {"type": "B", "v": 2}],
    "deep": {"x": {"y": "z"}},
}
PATHS: dict[str, list[Any]] = {
    ".deep.x.y": ["z"],
    ".deep['x'].y": ["z"],
    r".metadata.labels.a\.b/c": ["label"],
    ".metadata.labels['a.b/c']": ["label"],
    ".list[0].v": [1],
    ".list[-1].v": [2],
    ".list[*].v": [1, 2],
    '.list[?(@.type=="B")].v': [2],
    ".list[?(@.type=='C')].v": [],
    ".list[?(@.on==true)].v": [1],
    ".nowhere.at.all": [],
    ".deep.x.y.z": [],
    ".list[9].v": [],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_json_path_finds_its_values(path: str) -> None:
    assert jsonpath.find(jsonpath.parse(path), OBJECT) == PATHS[path]


@pytest.mark.parametrize("path", ["", "a.b", ".a[", ".a[?(@.b>1)]", ".a..b", "$.a"])
def test_an_invalid_json_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        jsonpath.parse(path)


LEVELS: dict[str, tuple[dict[str, Any], str]] = {
    "no type": ({"properties": {"a": {}}}, ".properties[a].type"),
    "no items": ({"properties": {"a": {"type": "array"}}}, ".properties[a].items"),
    "unknown type": ({"properties": {"a": {"type": "wat"}}}, ".properties[a].type"),
    "no pattern": (
        {"properties": {"a": {"type": "string", "pattern": "("}}},
        ".properties[a].pattern",
    ),
    "a default that does not fit": (
        {"properties": {"a": {"type": "string", "default": 5}}},
        ".properties[a].default",
    ),
    "a default that does not fit inside": (
        {"properties": {"a": SPEC | {"default": {"size": 0}}}},
        ".properties[a].default.size",
    ),
    "structure in an alternative": (
        {"properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}},
        ".properties[a].anyOf[0].type",
    ),
    "a reference": (
        {"properties": {"a": {"type": "object", "$ref": "#/b"}}},
        ".properties[a].$ref",
    ),
    "named and unnamed members": (
        {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        ".additionalProperties",
    ),
}


@pytest.mark.parametrize("case", LEVELS)
def test_a_schema_that_is_not_structural_is_refused_with_its_field(case: str) -> None:
    schema_part, field = LEVELS[case]
    causes = structure.check({"type": "object"} | schema_part, "here")
    assert [cause.field for cause in causes] == [f"here{field}"]


GOOD: dict[str, tuple[str, ...]] = {
    "date-time": ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+01:00"),
    "date": ("2026-01-02",),
    "duration": ("5m", "1h30m", "1.5s", "3 days", "0"),
    "uri": ("http://a/b", "/a"),
    "ipv4": ("10.0.0.1",),
    "ipv6": ("::1",),
    "cidr": ("10.0.0.0/8", "fe80::/10"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "byte": ("eA==", ""),
    "hostname": ("a.b", "host"),
    "email": ("a@b",),
    "mac": ("00:11:22:33:44:55",),
}


@pytest.mark.parametrize("name", GOOD)
def test_formats_accept_valid_and_refuse_invalid_values(name: str) -> None:
    assert all(FORMATS[name](text) for text in GOOD[name])
    assert not FORMATS[name]("?? no")
