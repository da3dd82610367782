"""Tests what Markdown shows besides text: links to the lines that failed, and pictures."""

from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace
from tests.tiers import examples
from tests.xcresult.formats.results import SOURCE, case, everything, failure, result, run

from runyard.xcresult.formats.markdown import markdown
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.model import Attachment, BuildIssue, Place, Result

BLOB = "https://github.example/o/r/blob/abc"
LINKED = Sources(root="/Users/ci/app", url=BLOB)
SHOTS = 'https://shots.example/run 1/(a)&b="<c>'


def tokens(text: str) -> list[Token]:
    found = MarkdownIt("commonmark").enable("table").parse(text)
    return [inner for each in found for inner in (each, *(each.children or ()))]


def links(text: str) -> list[str]:
    return [str(token.attrs["href"]) for token in tokens(text) if token.type == "link_open"]


class Tags(HTMLParser):
    """The tags of a page, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        for token in tokens(text):
            if token.type in {"html_inline", "html_block"}:
                self.feed(token.content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def shot(filename: str, *, failed: bool = False, present: bool = True) -> Attachment:
    return Attachment(filename=filename, payload_id="0~p", present=present, on_failure=failed)


def pictured(*attachments: Attachment, function: str = "testFail()") -> Result:
    failed = replace(run("Failure", failures=(failure(),)), attachments=attachments)
    return result(case(function, failed, status="Failure"))


def test_a_failure_is_not_far_from_its_line() -> None:
    shown = markdown(everything(), title="x", sources=LINKED)
    assert f"at [`Tests/CartTests.swift:7`]({BLOB}/Tests/CartTests.swift#L7)" in shown
    assert f"- [`App.swift:1`]({BLOB}/App.swift#L1)" in shown, "build errors, too"
    assert f"{BLOB}/Tests/CartTests.swift#L11" in links(shown), "and flaky tests"


@pytest.mark.parametrize(
    ("sources", "place"),
    [
        (Sources(url=BLOB), Place(SOURCE, 7)),
        (Sources(root="/Users/ci/app"), Place(SOURCE, 7)),
        (LINKED, Place("/Users/ci/app/../../secret", 7)),
        (LINKED, Place("/usr/include/x.h", 7)),
    ],
)
def test_a_place_that_is_not_in_the_repository_is_no_link(sources: Sources, place: Place) -> None:
    broken = run("Failure", failures=(replace(failure(), place=place),))
    made = result(case("a()", broken, status="Failure"))
    shown = markdown(made, title="x", sources=sources)
    assert links(shown) == [] and "at `" in shown


@settings(max_examples=examples(150))
@given(st.text(st.sampled_from("a`[]()<>\"'\\ %#?|*_/.\n\x1b&é"), max_size=20))
def test_no_path_makes_a_link_to_another_place(text: str) -> None:
    place = Place(f"/Users/ci/app/x{text}y.swift", 3)
    made = result(
        case("a()", run("Failure", failures=(replace(failure(), place=place),)), status="Failure"),
        issues=(BuildIssue(kind="error", message="m", place=place),),
    )
    mapped = LINKED.mapped(place.path)
    found = links(markdown(made, title="x", sources=LINKED))
    assert len(found) == (0 if mapped is None else 2)
    for link in found:
        path, _, line = link.removeprefix(f"{BLOB}/").partition("#")
        assert link.startswith(f"{BLOB}/") and line == "L3" and unquote(path) == mapped


def test_a_screenshot_is_shown_with_its_failure() -> None:
    made = pictured(shot("Shot.png", failed=True), shot("Other.png"), shot("Log.txt", failed=True))
    shown = markdown(made, title="x", pictures_url=SHOTS)
    ((tag, attributes),) = Tags(shown).found
    assert tag == "img" and attributes["alt"] == "CartTests_testFail_1.png"
    source = attributes["src"] or ""
    assert unquote(source) == f"{SHOTS}/CartTests_testFail_1.png"
    assert not set(source) & set(' ()<>"')
    assert shown.index("1 is not 2") < shown.index("<img ")


def test_a_test_without_a_picture_of_its_failure_shows_its_last_ones() -> None:
    made = pictured(*(shot(f"{number}.png") for number in range(5)))
    shown = markdown(made, title="x", pictures_url="shots/")
    names = [
        (attributes["src"] or "").removeprefix("shots/") for _, attributes in Tags(shown).found
    ]
    assert names == [f"CartTests_testFail_{number}.png" for number in (3, 4, 5)]
    assert "and 2 more" in shown


def test_a_picture_does_not_join_the_text_of_the_next_argument() -> None:
    runs = [
        replace(
            run("Failure", argument=value, failures=(failure(),)),
            attachments=(shot(f"{value}.png"),),
        )
        for value in ("1", "2")
    ]
    made = result(case("a()", *runs, status="Failure"))
    paragraphs = [token.content for token in tokens(markdown(made, title="x"))]
    assert "exported as `CartTests_a_1.png`" in paragraphs and "with `2`" in paragraphs


def test_files_that_a_page_cannot_show_are_links_or_nothing() -> None:
    kinds = (shot("a.heic"), shot("b.mp4"), shot("gone.png", present=False), shot("c.plist"))
    shown = markdown(pictured(*kinds), title="x", pictures_url="shots")
    assert [(tag, attributes["href"]) for tag, attributes in Tags(shown).found] == [
        ("a", "shots/CartTests_testFail_1.heic"),
        ("a", "shots/CartTests_testFail_2.mp4"),
    ]


def test_without_a_url_the_files_are_not_unnamed() -> None:
    shown = markdown(pictured(shot("Shot.png", failed=True)), title="x")
    assert Tags(shown).found == []
    assert "exported as `CartTests_testFail_1.png`" in shown


@settings(max_examples=examples(100))
@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_no_words_of_a_bundle_become_html(function: str, file: str) -> None:
    made = pictured(shot(f"{file}.png"), shot(f"{file}.mp4"), function=function)
    found = Tags(markdown(made, title="x", pictures_url="https://shots.example")).found
    assert [tag for tag, _ in found] == ["img", "a"]
    assert [set(attributes) for _, attributes in found] == [{"alt", "src", "width"}, {"href"}]
