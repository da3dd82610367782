"""Tests that skipped members are delimited and counted exactly like decoded ones."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.xcresult.writer.encoding import Scalar, Typed, Value, encode

from runyard.xcresult.reader.decode import Malformed, decode
from runyard.xcresult.reader.scalar_pattern import SCALAR_RUN, VALUE, sized

NAMES = ("activitySummaries", "title", "uuid", "attachments", "a_b", "x" * 45)
nasty = st.sampled_from(
    ["", "]", "[S1:a]", "K4:name[S6:StringK2:_vV1:x]", "Größe 日本", "]]]", "V" * VALUE, "w" * 500]
)
scalars: st.SearchStrategy[Value] = st.one_of(
    nasty,
    st.integers(0, 10**9),
    st.booleans(),
    st.just(Scalar("Date", b"2026-01-02T03:04:05.678+0200")),
    st.just(Scalar("URL", b"https://example.com/]")),
)
types = st.sampled_from(["ActionTestSummary", "ActionTestActivitySummary", "Z"])
objects: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.builds(Typed, types, st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    ),
    max_leaves=25,
)
blobs = st.builds(Typed, types, st.dictionaries(st.sampled_from(NAMES), objects, max_size=5)).map(
    lambda value: encode(value, explicit=True).payload
)


def kept(value: Any, key: str) -> Any:
    """The value without members of that name, at any depth."""
    if isinstance(value, list):
        return [kept(each, key) for each in value]
    if isinstance(value, dict):
        return {name: kept(each, key) for name, each in value.items() if name != key}
    return value


@pytest.mark.slow
@given(blob=blobs, key=st.sampled_from(NAMES))
def test_the_rest_is_the_same_whatever_was_passed_over(blob: bytes, key: str) -> None:
    some = decode(blob, passing=frozenset({key}))
    assert kept(some, key) == kept(decode(blob), key)


def test_activities_are_not_built_when_they_are_passed_over() -> None:
    step = Typed("ActionTestActivitySummary", {"title": "tap ]", "uuid": "w" * 36})
    steps = [Typed("ActionTestActivitySummary", {"subactivities": [step, step]})] * 3
    blob = encode(Typed("ActionTestSummary", {"activitySummaries": steps, "name": "x"})).payload
    passing = frozenset({"activitySummaries"})
    assert len(decode(blob)["activitySummaries"]) == 3
    assert decode(blob, passing=passing) == {"_type": "ActionTestSummary", "name": "x"}


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(blob=blobs, key=st.sampled_from(NAMES), data=st.data())
def test_damage_in_what_is_passed_over_is_malformed_and_nothing_else(
    blob: bytes, key: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(blob) - 1))
    byte = data.draw(st.sampled_from(b"[]KSTV019:a\xff"))
    for broken in (blob[:at], blob[:at] + bytes((byte,)) + blob[at + 1 :]):
        try:
            decode(broken, passing=frozenset({key}))
        except Malformed:
            continue


def test_depth_is_bounded_in_what_is_passed_over() -> None:
    deep = b"[T[K2:_nV1:X]K1:a[T[K2:_nV5:Array]" + b"[S5:Array" * 300 + b"]" * 302
    with pytest.raises(Malformed, match="levels"):
        decode(deep, passing=frozenset({"a"}))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 36, 99, 100, 159, 160])
def test_every_length_is_taken_exactly(length: int) -> None:
    pattern = re.compile(sized(".", VALUE), re.DOTALL)
    assert pattern.fullmatch(f"{length}:" + "]" * length)
    assert not pattern.fullmatch(f"{length}:" + "]" * (length + 1))


def test_an_unknown_member_ends_the_match_of_scalars() -> None:
    known = "K4:name[S6:StringK2:_vV2:ab]"
    for unknown in (
        "K4:name[S6:StringK2:_vV161:",
        "K5:name[S6:StringK2:_vV2:ab]",
        "K4:name[S3:Foo",
    ):
        found = SCALAR_RUN.match(known + unknown)
        assert found and found.end() == len(known)
