"""Tests that typed objects decode to what was encoded, and that damaged ones raise only Malformed."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.xcresult import fixtures
from tests.xcresult.reader.encoding import SCALARS, encode, plain

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.reader.decode import Malformed, decode, is_typed

TEXTS = st.one_of(
    st.text("abKSV12:[]_é🦊\0\n", max_size=12),
    st.sampled_from(["[", "]", "]]]", "K2:_vV1:x]", "[S6:StringK2:_vV3:abc]", "ü", "🦊:[K", "_v"]),
)
NAMES = st.one_of(
    st.sampled_from(["name", "identifier", "Kind", "K2", "K2:_v", "a[S6:String", "é", "x" * 80]),
    st.text("abKSV2:[]_é", min_size=1, max_size=8),
).filter(lambda name: name not in ("_type", "_values", "_v", "Array", *SCALARS))
SCALAR = st.tuples(st.sampled_from(SCALARS), TEXTS)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(NAMES, inner, max_size=5)
    return st.one_of(st.lists(inner, max_size=5), st.tuples(NAMES, members))


VALUES = st.recursive(SCALAR, _grown, max_leaves=12)
OBJECTS = st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=6))
SAMPLE = encode(
    (
        "ActionTestSummary",
        {
            "name": ("String", "testÄ()"),
            "duration": ("Double", "0.5"),
            "tags": [("String", "a"), ("TestTag", {"name": ("String", "b]")}), []],
            "nested": ("TestTag", {"inner": ("TestTag", {"name": ("String", "")})}),
        },
    ),
    supertypes={"ActionTestSummary": ("Identifiable", "Abstract")},
)


@pytest.mark.slow
@given(OBJECTS)
def test_what_is_written_is_read(value: Any) -> None:
    assert decode(encode(value)) == plain(value)


def test_a_real_summary_decodes() -> None:
    data = (
        b"[T[K2:_nV17:ActionTestSummaryK2:_s[K2:_nV35:ActionTestSummaryIdentifiableObjectK2:_s"
        b"[K2:_nV25:ActionAbstractTestSummary]]]K10:identifier[T[K2:_nV6:String]K2:_vV27:"
        b"AppFrameworkTests/example()]K4:name[S6:StringK2:_vV9:example()]K10:testStatus"
        b"[S6:StringK2:_vV7:Success]]"
    )
    assert is_typed(data)
    assert decode(data) == {
        "_type": "ActionTestSummary",
        "identifier": "AppFrameworkTests/example()",
        "name": "example()",
        "testStatus": "Success",
    }


def test_a_type_of_a_later_version_goes_by_the_type_it_derives_from() -> None:
    value = ("TestSummary2", {"again": ("TestSummary2", {})})
    data = encode(value, supertypes={"TestSummary2": ("TestSummary", "Abstract")})
    known = frozenset({"TestSummary", "Abstract"})
    assert decode(data, known=known) == {"_type": "TestSummary", "again": {"_type": "TestSummary"}}
    assert decode(data)["_type"] == "TestSummary2"


def test_elements_of_an_unknown_kind_of_list_are_kept() -> None:
    data = b"[T[K2:_nV3:Set][T[K2:_nV6:String]K2:_vV1:a][S6:StringK2:_vV1:b]]"
    assert decode(data) == {"_type": "Set", "_values": ["a", "b"]}


def test_a_member_cannot_replace_the_type() -> None:
    node = decode(encode(("A", {"_type": [], "_values": ("String", "B"), "c": ("String", "d")})))
    assert node == {"_type": "A", "__type": [], "__values": "B", "c": "d"}


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert decode(b"[T[K2:_nV1:A]K1:b[T[K2:_nV6:String]K2:_vV2:\xff\xfe]]")["b"] == "��"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"x",
        b"[]",
        b"[T",
        b"[T[",
        b"[T[]]",
        b"[X]",
        b"[K1:a]",
        b"[T[K2:_nV1:A]",
        b"[T[K2:_nV1:A]]x",
        b"[T[K2:_nV9:A]]",
        b"[T[K2:_nV1:A]K1:a]",
        b"[T[K2:_nV1:A]K1:aV9:b]",
        b"[T[K2:_nV1:A]K1:a[S1:AK2:_vV99:b]]",
        b"[T[K2:_nV1:A]K1:a[S1:AK2:_vV999999999999999999999:b]]",
        b"[T[K2:_nV1:A]V1:b]",
        b"[T[K2:_nV5:Array]K1:aV1:b]",
        b"[T[K2:_nV1:AK2:_s[K2:_nV1:B]]",
        b"[T[K2:_nV1:A]Kx:a]",
    ],
)
def test_a_malformation_is_named(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_every_truncation_is_noticed() -> None:
    for end in range(len(SAMPLE)):
        with pytest.raises(Malformed):
            decode(SAMPLE[:end])


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_changed_bytes_raise_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for at, byte in changes:
        data[at] = byte
    with contextlib.suppress(Malformed):
        decode(bytes(data))


@given(st.binary(max_size=80))
def test_any_bytes_raise_nothing_else(tail: bytes) -> None:
    for data in (tail, b"[T[K2:_nV1:A]" + tail, b"[T[K2:_nV5:Array]" + tail):
        with contextlib.suppress(Malformed):
            decode(data)


@pytest.mark.parametrize("piece", [b"[T[K2:_nV5:Array]", b"[T[K2:_nV1:A]K1:a", b"[S1:AK1:a"])
def test_absurd_depth_is_an_error_and_no_crash(piece: bytes) -> None:
    with pytest.raises(Malformed, match="levels"):
        decode(b"[T[K2:_nV1:A]K1:b" + piece * 100_000)
    with pytest.raises(Malformed, match="supertypes"):
        decode(b"[T" + b"[K2:_nV1:AK2:_s" * 100_000)


@pytest.mark.parametrize("piece", [b"K1:aV1:b", b"K1:aV1:[", b"[S1:b]", b"K9:KKKKKKKKK[S1:b]"])
def test_no_text_is_searched_again_and_again(piece: bytes) -> None:
    """Decoding forty thousand members must be fast; with repeated searching it would take minutes."""
    decode(b"[T[K2:_nV1:A]" + piece * 40_000 + b"]")


@pytest.mark.parametrize("name", fixtures.parameters())
def test_every_typed_object_of_the_real_bundles_decodes(name: str) -> None:
    objects = Directory(fixtures.bundle(name))
    for object_id in objects.ids():
        data = objects.read(object_id)
        if is_typed(data):
            assert decode(data)


def test_absurdly_many_objects_are_refused_before_they_take_memory() -> None:
    few = b"[T[K2:_nV5:Array]" + b"[S1:A]" * 50 + b"]"
    assert len(decode(few, nodes=60)) == 50
    with pytest.raises(Malformed, match="more than 40 objects"):
        decode(few, nodes=40)
    text = b"[S" * 500  # a value may look like that, as long as it is not too long
    assert decode(b"[T[K2:_nV6:String]K2:_vV1000:" + text + b"]", nodes=600) == text.decode()
