"""Any text is either a valid scalar or a `ValueError`; another exception would be a 500."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.schema.scalars import Amount, MicroTime, Quantity, Time, canonical, read

AMOUNTS = st.from_regex(r"[+-]?[0-9]{0,40}\.?[0-9]{0,40}([eE][+-]?[0-9]{1,4}|[a-zA-Z]{0,2})")
DIGITS = st.text("0123456789", min_size=1, max_size=3).map(lambda text: text * 100)
MOMENTS = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})",
    fullmatch=True,
)


@given(text=AMOUNTS | DIGITS | st.text(max_size=12))
def test_a_quantity_has_one_canonical_form_that_can_be_parsed(text: str) -> None:
    try:
        made = canonical(text)
    except ValueError:
        return
    assert canonical(made) == made
    assert abs(quantity.milli(made)) <= 2**63 * 1000
    assert read(Amount, text) == made
    assert read(Quantity, text) == text.strip()


@given(text=MOMENTS | st.text(max_size=30))
@pytest.mark.parametrize("kind", [Time, MicroTime])
def test_an_accepted_time_can_be_parsed_again(kind: type, text: str) -> None:
    try:
        made = read(kind, text)
    except ValueError:
        return
    assert read(kind, made) == made
    assert str(made).endswith("Z")
    assert datetime.fromisoformat(str(made)).utcoffset() is not None


OUTSIDE = (
    "9999-12-31T23:59:59.000000-23:59",
    "0001-01-01T00:00:00.000000+23:59",
    "0000-01-01T00:00:00.000000Z",
    "2026-01-01T00:00:00.000000+24:00",
)


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_time_out_of_range_is_refused(text: str) -> None:
    for kind in (Time, MicroTime):
        with pytest.raises(ValueError, match="out of range"):
            read(kind, text)


@pytest.mark.parametrize("text", ["1" * 5000, "0." + "0" * 5000 + "1", "1e1000", "1e-1000000"])
def test_a_too_long_quantity_is_refused_and_not_cached(text: str) -> None:
    before = canonical.cache_info().currsize
    for kind in (Amount, Quantity):
        with pytest.raises(ValueError, match="quantities must match"):
            read(kind, text)
    assert canonical.cache_info().currsize == before


def test_huge_quantities_are_capped() -> None:
    assert quantity.milli("1e99") == quantity.milli("9" * 30 + "E") == 2**63 * 1000
    assert quantity.milli("-1e99") == -(2**63) * 1000
