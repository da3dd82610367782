"""Reason codes: slugs are stable and unique, fields are checked, and stored reasons always render."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.wire.reasons import Catalogue, Code, Common, Reason, render


class Fruit(Code):
    """An enum of reasons for these tests."""

    RIPE = "ripe", "it is ripe"
    SOLD = "sold-out", "{count:d} of {kind} were sold in {hours:.1f} h"


def test_a_member_is_its_slug_and_carries_a_template() -> None:
    assert Fruit.SOLD.value == "sold-out"
    assert Fruit("sold-out") is Fruit.SOLD  # type: ignore[call-arg]  # a lookup by value
    assert f"{Fruit.RIPE}" == "ripe"
    assert msgspec.json.encode({"reason": Fruit.RIPE}) == b'{"reason":"ripe"}'


def test_a_reason_holds_slug_and_fields_and_renders() -> None:
    reason = Fruit.SOLD.because(count=3, kind="pear", hours=2)
    assert reason.slug == "sold-out"
    assert reason.fields == {"count": 3, "hours": 2, "kind": "pear"}
    assert render(reason) == "3 of pear were sold in 2.0 h"


def test_the_order_of_fields_makes_no_difference() -> None:
    one = Fruit.SOLD.because(count=3, kind="pear", hours=2)
    assert one == Fruit.SOLD.because(hours=2, kind="pear", count=3)
    assert len({one, Fruit.SOLD.because(hours=2, kind="pear", count=3)}) == 1


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"count": 1, "kind": "pear"},
        {"count": 1, "kind": "pear", "hours": 2.0, "more": 1},
        {"count": "1", "kind": "pear", "hours": 2.0},
        {"count": 1.5, "kind": "pear", "hours": 2.0},
        {"count": True, "kind": "pear", "hours": 2.0},
        {"count": 1, "kind": 7, "hours": 2.0},
    ],
    ids=["none", "missing", "unknown", "text", "fraction", "bool", "number"],
)
def test_wrong_fields_are_refused_where_the_reason_is_made(detail: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="sold-out"):
        Fruit.SOLD.because(**detail)  # type: ignore[arg-type] # the wrong types are the point


@pytest.mark.parametrize("slug", ["Not Kebab", "under_score", "-edge", "two--dashes", ""])
def test_a_slug_is_kebab_case(slug: str) -> None:
    with pytest.raises(ValueError, match="kebab-case"):
        Code("Wrong", {"ONE": (slug, "text")})


def test_a_slug_is_used_once_in_an_enum() -> None:
    with pytest.raises(ValueError, match="twice"):
        Code("Twice", {"ONE": ("same", "a"), "TWO": ("same", "b")})


def test_a_slug_is_used_once_in_a_catalogue() -> None:
    other = Code("Other", {"RIPE": ("ripe", "another text")})
    with pytest.raises(ValueError, match="two enums"):
        Catalogue(Fruit, other)  # type: ignore[arg-type] # made by the functional API


def test_a_catalogue_renders_what_was_stored() -> None:
    known = Catalogue(Fruit)
    assert known.text("ripe") == "it is ripe"
    assert known.text("unknown", {"text": "as it was"}) == "as it was"
    assert set(known.slugs) == {"ripe", "sold-out", Common.UNKNOWN.value}


@given(st.text(), st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.floats()))
def test_a_stored_reason_of_any_release_renders(slug: str, detail: dict[str, object]) -> None:
    known = Catalogue(Fruit)
    assert isinstance(known.text(slug, detail), str)
    assert isinstance(known.text("sold-out", detail), str)


def test_a_slug_of_another_release_is_shown_with_its_fields() -> None:
    assert Catalogue(Fruit).text("eaten", {"by": "bird"}) == "eaten (by=bird)"
    assert Catalogue(Fruit).text("sold-out", {"count": 1}) == "sold-out (count=1)"


def test_reasons_are_values() -> None:
    assert Reason(Fruit.RIPE) == Fruit.RIPE.because()


def test_a_stored_reason_is_read_back_as_it_was_made() -> None:
    known, made = Catalogue(Fruit), Fruit.SOLD.because(count=3, kind="pear", hours=2)
    assert known.read(made.slug, made.fields) == made
    assert render(known.read("eaten", {"by": "bird"})) == "eaten (by=bird)"
    assert render(known.read("sold-out", {"count": "x"})) == "sold-out (count=x)"
