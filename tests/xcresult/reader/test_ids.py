"""Tests that content ids equal Apple's, and that no accepted id is a path."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.xcresult.reader.ids import RefsDamaged, content_id, decode_refs, encode_refs, is_id

EMPTY = "0~4VqMqsI5lOfxRppnud6-VDWcNsU8J7VgFCJfW2dXPwOcAkvU-I8Um5yp9n0Zv6nr3VmcxYggaVMDFfR0U_vjKw=="
CHILD = "0~Gj_vguguQPZXZJxGsflqvDQGoRso2dBO6KuHgHjm1ZcgHvi0pj3BXGD2IKWBF9qy5qZJzYg_azuWr8qlPS0haw=="
LISTING = (
    "0~KM8jKJc4wwrn7Cya7XhoSulWWyQ5zKSjNSBvh_s5Zfbttlb34kQSdpIj7y3dn0f9oUwmOVThMsjw_iSsYKDjcg=="
)


def test_known_objects_have_their_known_ids() -> None:
    assert content_id((), [b"[]"]) == EMPTY
    assert content_id([CHILD], [b'[{"name":"testmanagerd.log",', b'"type":1}]']) == LISTING


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0~",
        EMPTY[:-1],
        EMPTY + "=",
        EMPTY + "\n",
        "1" + EMPTY[1:],
        EMPTY.replace("4V", "//"),
        "0~" + "../" * 28 + "ab==",
        EMPTY.replace("4", "٤"),
    ],
)
def test_a_path_is_not_an_id(text: str) -> None:
    assert is_id(EMPTY)
    assert not is_id(text)


@given(st.lists(st.binary(min_size=1, max_size=8), max_size=300))
def test_references_survive_a_round_trip(seeds: list[bytes]) -> None:
    ids = tuple(content_id((), [seed]) for seed in seeds)
    assert decode_refs(encode_refs(ids), limit=300) == ids


def test_long_lists_use_the_rule_of_der() -> None:
    assert encode_refs(()) == b"\0"
    assert encode_refs([EMPTY] * 249).startswith(b"\x81\xf9\x41\0")
    assert encode_refs([EMPTY] * 361).startswith(b"\x82\x01\x69\x41\0")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_list_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(RefsDamaged):
        decode_refs(data, limit=100)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x40" + b"x" * 64,
        b"\x01\x41" + b"x" * 64,
        b"\x00\x00",
        b"\xff" * 9,
        b"\x84\x7f\xff\xff\xff",
    ],
)
def test_a_damaged_list_is_named(data: bytes) -> None:
    with pytest.raises(RefsDamaged):
        decode_refs(data, limit=1 << 31)
