"""Tests with a Markdown parser that text of a bundle is only ever code."""

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from tests.tiers import examples
from tests.xcresult.formats.results import case, failure, result, run

from runyard.xcresult.formats.markdown import markdown
from runyard.xcresult.reader.model import BuildIssue, Case, Result, RunnerError

OURS = {
    "bullet_list_open", "bullet_list_close", "code_inline", "fence", "heading_close", "heading_open", "inline",
    "list_item_close", "list_item_open", "paragraph_close", "paragraph_open", "softbreak", "table_close",
    "table_open", "tbody_close", "tbody_open", "td_close", "td_open", "text", "th_close", "th_open",
    "thead_close", "thead_open", "tr_close", "tr_open",
}  # fmt: skip
SIGNS = "`|<>[]()*_~#!\\&:@-+=.1aA\n\r\t \x1b\u202e$"


def tokens(text: str) -> list[Token]:
    found = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [each for token in found for each in (token, *(token.children or ()))]


def about(text: str) -> Result:
    broken = run("Failure", failures=(failure(text),))
    flaky: Case = case(
        text, run("Failure", retry=1, failures=(failure(text),)), run(retry=2), flaky=True
    )
    return result(
        case(text, broken, status="Failure", suites=(text,), target=text, duration=2.0),
        case(
            text, run("Failure", argument=f"a{text}", failures=(failure(text),)), status="Failure"
        ),
        flaky,
        errors=(RunnerError(message=text, target=text),),
        issues=(BuildIssue(kind="error", message=text),),
    )


@settings(max_examples=examples(150))
@given(st.text(SIGNS, max_size=40))
def test_no_text_becomes_markup(text: str) -> None:
    plain, evil = (
        tokens(markdown(about("word"), title="word")),
        tokens(markdown(about(text), title=text)),
    )
    assert {token.type for token in evil} <= OURS
    shape = [token.type for token in plain]
    assert [token.type for token in evil] == shape, "the text changes the structure of the page"


def test_a_message_is_shown_as_it_is() -> None:
    text = 'a | b `c` <d> ``` "e"\n  * f\n# g'
    (fence, *_) = (
        token.content for token in tokens(markdown(about(text), title="x")) if token.type == "fence"
    )
    assert fence == text + "\n"
