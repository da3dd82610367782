"""Tests that packed lines unpack to the same lines, and that invalid bytes are refused."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.xcresult.coverage_encoding import LARGEST, pack, unpack

LINES = st.dictionaries(st.integers(1, 1 << 31), st.integers(0, (1 << 48) - 1), max_size=200).map(
    lambda found: tuple(sorted(found.items()))
)


@given(LINES)
def test_what_was_packed_unpacks_to_the_same(lines: tuple[tuple[int, int], ...]) -> None:
    assert unpack(pack(lines)) == lines


def test_a_file_takes_few_bytes() -> None:
    lines = tuple((line, (line // 40) % 3) for line in range(1, 2001))
    assert len(pack(lines)) < 200
    assert pack(()) == b""


@pytest.mark.parametrize("lines", [((0, 1),), ((2, 1), (2, 1)), ((3, 1), (2, 1)), ((1, -1),)])
def test_invalid_lines_are_refused(lines: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        pack(lines)


def deflated(plain: bytes) -> bytes:
    return b"\x01" + zlib.compress(plain)


BAD = {
    "another release": b"\x02abc",
    "no compression": b"\x01abc",
    "cut": pack(((1, 1), (900, 70000)))[:-4],
    "half a pair": deflated(b"\x01"),
    "half a number": deflated(b"\x01\x80"),
    "a number without end": deflated(b"\x01" + b"\x80" * 20 + b"\x01"),
    "a bomb": deflated(bytes(LARGEST + 1)),
}


@pytest.mark.parametrize("packed", BAD.values(), ids=BAD)
def test_what_was_not_packed_here_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed"):
        unpack(packed)
