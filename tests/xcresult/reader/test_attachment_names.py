"""Tests the names of exported files: readable, safe for any words of a bundle, and never twice."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tiers import examples
from tests.xcresult.formats.results import case, run

from runyard.xcresult.reader.attachment_names import attachment_names, uuid_of, with_extension
from runyard.xcresult.reader.model import Attachment, Case

UUID = "0F8FAD5B-D9CB-469F-A165-70867728950E"
SHOT = Attachment(filename="Shot.png")
HARD = st.text(st.sampled_from("aAbéÉe\u0301ßſK\u212a./\\_-: \0\n\u202e1²日本ﬁ\u0345"), max_size=6)


def pictured(function: str, *suites: str, shots: int = 1, runs: int = 1, target: str = "T") -> Case:
    attachments = tuple(replace(SHOT, uuid=str(number)) for number in range(shots))
    each = replace(run(), attachments=attachments)
    return case(function, *[each] * runs, suites=suites, target=target)


def names(*cases: Case) -> list[str]:
    found = attachment_names(cases).values()
    return [with_extension(name, SHOT) for runs in found for each in runs for name in each]


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (pictured("testLogin()", "CartTests"), "CartTests_testLogin_1.png"),
        (pictured("sum(of:and:)", "Maths", "Sums"), "Maths_Sums_sum_of_and_1.png"),
        (pictured("topLevel()"), "topLevel_1.png"),
        (pictured("it's -- 100% done", "Cart Tests"), "Cart_Tests_it_s_100_done_1.png"),
        (pictured("日本語のテスト()", "画面"), "画面_日本語のテスト_1.png"),
        (pictured("()", "-"), "test_1.png"),
        (pictured("con"), "con_1.png"),
    ],
)
def test_a_name_is_not_a_riddle(one: Case, name: str) -> None:
    assert names(one) == [name]


def test_repetitions_and_same_names_do_not_collide() -> None:
    made = (
        pictured("a()", "S", shots=2, runs=2),
        pictured("A", "s"),
        pictured("a", "S", target="Other"),
        pictured("a_1()", "S"),
        pictured("cafe\u0301()", "S"),
        pictured("CAFÉ()", "S"),
    )
    found = names(*made)
    assert found[:6] == [
        "S_a_1.png",
        "S_a_2.png",
        "S_a_3.png",
        "S_a_4.png",
        "s_A_5.png",
        "S_a_6.png",
    ]
    assert found[6:] == ["S_a_1_1.png", "S_café_1.png", "S_CAFÉ_2.png"]


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(HARD, HARD), min_size=1, max_size=8, unique=True))
def test_no_two_files_have_one_name_on_any_file_system(words: list[tuple[str, str]]) -> None:
    found = names(*(pictured(function, suite, shots=2) for suite, function in words))
    forms = [
        unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
        for name in found
    ]
    assert len(forms) == len(set(forms)) == 2 * len(words)


@given(st.text(st.characters()), st.text(st.characters()), st.text(st.characters()))
def test_no_words_of_a_bundle_make_an_unsafe_name(suite: str, function: str, file: str) -> None:
    (stem,) = (
        name for runs in attachment_names([pictured(function, suite)]).values() for (name,) in runs
    )
    name = with_extension(stem, Attachment(filename=file))
    assert name[0].isalnum() and len(name.encode()) <= 130 and name.count(".") <= 1
    kinds = {unicodedata.category(char)[0] for char in name.replace(".", "").replace("_", "")}
    assert kinds <= set("LNM")


def test_a_long_name_is_cut_between_letters() -> None:
    (name,) = names(pictured("é" * 10_000, "日" * 10_000))
    assert name == f"{'日' * 13}_{'é' * 32}_1.png"


def test_every_attachment_has_an_id() -> None:
    assert uuid_of(replace(SHOT, uuid=UUID.lower())) == UUID
    assert uuid_of(Attachment(filename=f"Shot_0_{UUID}.png", uuid="../up")) == UUID
    derived = uuid_of(Attachment(filename="Shot.png", payload_id="0~x"))
    assert (
        derived == uuid_of(Attachment(filename="Shot.png", payload_id="0~x")) and len(derived) == 36
    )
