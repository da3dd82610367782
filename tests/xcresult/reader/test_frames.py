"""Tests that a payload is complete or damaged, and never exceeds its limit."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.frames import MAGIC, FrameDamaged, compress, pieces, whole

TEXT = b"a line of a log\n" * 5000


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def streamed(data: bytes, size: int = 777) -> bytes:
    return b"".join(pieces(cut(data, size)))


@pytest.mark.parametrize("stored", [TEXT, compress(TEXT), compress(TEXT[:9]) + compress(TEXT[9:])])
def test_raw_and_compressed_payloads_read_alike(stored: bytes) -> None:
    assert whole(stored, limit=len(TEXT)) == TEXT
    assert streamed(stored) == TEXT
    assert streamed(stored, 1) == TEXT


@given(st.binary(max_size=300), st.integers(1, 50))
def test_every_payload_survives(payload: bytes, size: int) -> None:
    assert whole(compress(payload), limit=300) == payload
    assert streamed(compress(payload), size) == payload
    if not payload.startswith(MAGIC):
        assert whole(payload, limit=300) == streamed(payload, size) == payload


def test_a_truncated_frame_is_not_taken_for_its_beginning() -> None:
    stored = compress(TEXT)
    for end in range(len(MAGIC), len(stored)):
        with pytest.raises(FrameDamaged):
            whole(stored[:end], limit=len(TEXT))
        with pytest.raises(FrameDamaged):
            streamed(stored[:end])


@pytest.mark.parametrize("tail", [b"x", b"\0" * 40, b"\x28\xb5\x2f"])
def test_bytes_after_the_frame_are_damage(tail: bytes) -> None:
    with pytest.raises(FrameDamaged):
        whole(compress(TEXT) + tail, limit=1 << 20)
    with pytest.raises(FrameDamaged):
        streamed(compress(TEXT) + tail)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = compress(b"\0" * (64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(TooLarge, match="object_bytes"):
        whole(bomb, limit=1 << 20)
    with pytest.raises(TooLarge):
        whole(b"x" * 11, limit=10)
    first = next(iter(pieces([bomb])))
    assert len(first) <= 1 << 18


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(0, 255))
def test_changed_bytes_raise_nothing_else(payload: bytes, at: int, byte: int) -> None:
    stored = bytearray(compress(payload))
    stored[at % len(stored)] = byte
    for read in (lambda data: whole(data, limit=1 << 16), streamed):
        with contextlib.suppress(FrameDamaged, TooLarge):
            read(bytes(stored))
