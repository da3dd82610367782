"""Tests cleaning untrusted text, in each output format that uses it."""

import html
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runyard import text
from runyard.dispatch.intake.apply import shown_text
from runyard.web.html import tag
from runyard.xcresult.formats.coverage_files import plain
from runyard.xcresult.formats.markdown import code
from runyard.xcresult.formats.xml import attribute
from runyard.xcresult.formats.xml import text as xml_text

HOSTILE = "a\x1b[2J\u202eb\u2028c\td\ne\u00a0f\ud800g\U000e0001h\x7f\ufdd0"
ANY = st.text(alphabet=st.characters(), max_size=40)


@pytest.mark.parametrize(
    ("clean", "expected"),
    [
        (
            text.harmless,
            "a\\u001b[2J\\u202eb\\u2028c\td\ne\u00a0f\\ud800g\\udb40\\udc01h\\u007f\ufdd0",
        ),
        (plain, "a?[2J?b?c?d?e?f?g?h??"),
        (shown_text, "a [2J b c d e f g h  "),
        (
            lambda value: html.unescape(str(tag("b", {}, value)))[3:-4],
            "a\\u001b[2J\\u202eb\\u2028c\\u0009d\ne\\u00a0f\\ud800g\\udb40\\udc01h\\u007f\\ufdd0",
        ),
        (
            lambda value: code(value.replace("\n", "")).strip("`"),
            "a\\u001b[2J\\u202eb c de f\\ud800g\\udb40\\udc01h\\u007f\ufdd0",
        ),
        (xml_text, "a[2J&#8238;b&#8232;c\td\ne\u00a0fg&#917505;h&#127;\ufdd0"),
        (attribute, "a[2J&#8238;b&#8232;c&#9;d&#10;e\u00a0fg&#917505;h&#127;\ufdd0"),
    ],
    ids=["terminal", "coverage", "intake", "page", "markdown", "xml text", "xml attribute"],
)
def test_each_output_format_replaces_interpreted_characters_in_its_own_way(
    clean: Callable[[str], str], expected: str
) -> None:
    assert clean(HOSTILE) == expected


@given(ANY)
@example(HOSTILE)
def test_nothing_that_is_interpreted_remains(value: str) -> None:
    for char in text.cleaned(value, keep="\t"):
        assert char == "\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    assert text.cleaned(value, instead="", shown=str.isprintable).isprintable()


@given(ANY)
def test_cleaning_twice_is_cleaning_once_and_lines_stay_lines(value: str) -> None:
    once = text.cleaned(value, keep="\n")
    assert text.cleaned(once, keep="\n") == once
    assert once.count("\n") == value.count("\n")


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S")), max_size=40))
def test_ordinary_text_stays_unchanged(value: str) -> None:
    assert text.cleaned(value) == value == text.harmless(value)
