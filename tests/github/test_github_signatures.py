"""Only a webhook that was signed with a configured secret is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.github.signatures import sign, verify

BODY = b'{"action":"queued"}'
GOOD = sign(BODY, "new")


def test_the_signature_is_the_one_github_documents() -> None:
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert sign(b"Hello, World!", "It's a Secret to Everybody") == expected


@pytest.mark.parametrize(
    ("header", "secrets", "verified"),
    [
        pytest.param(GOOD, ["new"], True, id="right"),
        pytest.param(GOOD, ["new", "old"], True, id="during-rotation-new"),
        pytest.param(sign(BODY, "old"), ["new", "old"], True, id="during-rotation-old"),
        pytest.param(sign(BODY, "old"), ["new"], False, id="retired-secret"),
        pytest.param(GOOD, [], False, id="no-secret-configured"),
        pytest.param(sign(BODY, ""), [""], False, id="empty-secret-opens-nothing"),
        pytest.param("", ["new"], False, id="no-header"),
        pytest.param(GOOD.removeprefix("sha256="), ["new"], False, id="no-prefix"),
        pytest.param(GOOD.upper(), ["new"], False, id="upper-case"),
        pytest.param(GOOD[:-1], ["new"], False, id="cut"),
        pytest.param("sha256=" + "ü" * 64, ["new"], False, id="not-ascii"),
        pytest.param("sha256=\ud800", ["new"], False, id="lone-surrogate"),
    ],
)
def test_only_a_configured_secret_verifies(
    header: str, secrets: list[str], *, verified: bool
) -> None:
    assert verify(BODY, header, secrets) is verified


@given(st.binary(), st.text())
def test_arbitrary_signatures_are_refused(body: bytes, header: str) -> None:
    assert verify(body, header, ["k3y"]) is (header == sign(body, "k3y"))


@given(st.binary(min_size=1), st.data())
def test_a_changed_body_does_not_verify(body: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(body) - 1))
    changed = body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :]
    assert not verify(changed, sign(body, "k3y"), ["k3y"])
