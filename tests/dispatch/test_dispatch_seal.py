"""A sealed JIT can be opened only for its Pod, with its key, and if it is unchanged."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.dispatch.seal import Seal, SealError

KEY = bytes(range(32))


def seal(key: bytes = KEY) -> Seal:
    return Seal(key, rng=random.Random(1))


@given(st.text(max_size=200), st.text(alphabet="abcdef-0123456789", max_size=40))
def test_what_was_sealed_opens_again(text: str, uid: str) -> None:
    own = seal()
    sealed = own.close(text, pod_uid=uid)
    assert own.open(sealed, pod_uid=uid) == text
    assert text.encode() not in sealed or len(text) < 4


@pytest.mark.parametrize(
    ("key", "uid", "harm"),
    [
        (KEY, "other", lambda sealed: sealed),
        (bytes(32), "uid", lambda sealed: sealed),
        (KEY, "uid", lambda sealed: sealed[:-1]),
        (KEY, "uid", lambda sealed: sealed[:5]),
        (KEY, "uid", lambda sealed: b""),
        (KEY, "uid", lambda sealed: sealed[:12] + bytes([sealed[12] ^ 1]) + sealed[13:]),
        (KEY, "uid", lambda sealed: bytes([sealed[0] ^ 1]) + sealed[1:]),
    ],
    ids=["another Pod", "another key", "cut", "a stump", "empty", "a bit of it", "its nonce"],
)
def test_a_wrong_key_pod_or_ciphertext_is_refused(key: bytes, uid: str, harm: object) -> None:
    sealed = seal().close("a JIT", pod_uid="uid")
    with pytest.raises(SealError):
        seal(key).open(harm(sealed), pod_uid=uid)  # type: ignore[operator]  # a table of functions


def test_two_seals_of_one_text_differ() -> None:
    own = seal()
    assert own.close("x", pod_uid="u") != own.close("x", pod_uid="u")
