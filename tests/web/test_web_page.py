"""The page is well-formed, complete and safe for every overview."""

import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.web_samples import FINISHED, HEALED, NOW, OVERVIEW, POOLS, RUNNERS, WAITING

from runyard.web.durations import format_age, format_duration, pluralize
from runyard.web.elements import LONGEST_WORD, bar, shorten_words
from runyard.web.html import join, tag
from runyard.web.page import Assets, document, live_part, login
from runyard.web.sections import short_image
from runyard.web.values import Host, Overview, Pool, Verdict

ASSETS = Assets(style="/s.css", script="/s.js", icon="/i.svg", version="1")
EMPTY = Overview(at=NOW, verdict=Verdict(tone="off", title="There is no RunnerPool yet"))
VOID = ("meta", "link", "input")


class Outline(HTMLParser):
    """Checks that everything opened is closed, and remembers what there is."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.seen if found == name]


@pytest.mark.parametrize("view", [OVERVIEW, EMPTY], ids=["everything", "nothing"])
def test_the_page_is_whole(view: Overview) -> None:
    html = document(view, ASSETS, logout=True)
    outline = Outline(html)
    assert html.startswith("<!doctype html>")
    assert len(outline.tags("h1")) == len(outline.tags("main")) == 1
    assert len(outline.tags("caption")) == len(outline.tags("table"))
    assert all(head.get("scope") == "col" for head in outline.tags("th"))
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in outline.tags("svg"))
    ids = [attributes["id"] for _, attributes in outline.seen if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_no_script_and_no_style_stands_in_the_page() -> None:
    outline = Outline(document(OVERVIEW, ASSETS))
    assert outline.tags("script") == [{"src": "/s.js", "defer": None}]
    assert not outline.tags("style")
    for _, attributes in outline.seen:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_every_field_is_shown() -> None:
    text = Outline(document(OVERVIEW, ASSETS)).text
    for pool in POOLS:
        assert pool.name in text
    for job in (*WAITING, *FINISHED):
        assert str(job.job_id) in text
        assert job.name in text
        assert job.workflow in text
        assert job.text in text
    for runner in RUNNERS:
        assert runner.name in text
    for healed in HEALED:
        assert healed.what in text
    for words in ("not ready", "not isolated", "3 on an older image", "down for", "and 118 more"):
        assert words in text


def test_only_an_address_of_the_web_becomes_a_link() -> None:
    linked = [a["href"] for a in Outline(live_part(OVERVIEW, ASSETS)).tags("a") if "target" in a]
    assert linked == [WAITING[0].url]
    for url in ("javascript:alert(1)", "data:text/html,x", "//evil.example", "HTTPS:evil", ""):
        waiting = (msgspec.structs.replace(WAITING[0], url=url),)
        view = msgspec.structs.replace(OVERVIEW, waiting=waiting)
        assert not [a for a in Outline(live_part(view, ASSETS)).tags("a") if "target" in a]


def test_a_long_word_of_a_sentence_is_shortened() -> None:
    word = "x" * LONGEST_WORD
    assert shorten_words(f"a {word} b") == f"a {word} b"
    assert shorten_words(f"a {word}x b") == f"a {word[:-1]}… b"


def test_a_state_is_shown_by_more_than_its_colour() -> None:
    outline = Outline(live_part(OVERVIEW, ASSETS))
    shapes = [a for a in outline.tags("span") if (a.get("class") or "").startswith("shape")]
    assert len(shapes) > 15
    assert all(shape.get("aria-hidden") == "true" for shape in shapes)


def _replace(value: object, text: str) -> object:
    """The same value with every text in it replaced."""
    if isinstance(value, msgspec.Struct):
        fields = {
            name: _replace(getattr(value, name), text)
            for name in value.__struct_fields__
            if name not in {"tone", "state", "severity"}
        }
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, tuple):
        return tuple(_replace(item, text) for item in value)
    return text if isinstance(value, str) else value


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</title></script><svg/onload=alert(1)>",
        "<!--",
        "]]>",
        "&lt;b&gt;",
        "javascript:alert(1)",
        "\u202eevil\u0000\x1b[31m",
    ],
)
def test_hostile_text_everywhere_changes_no_tag(evil: str) -> None:
    view = _replace(OVERVIEW, evil)
    assert isinstance(view, Overview)
    harmless = _replace(OVERVIEW, re.sub(r"\S", "h", evil))  # as long, and as many words
    assert isinstance(harmless, Overview)

    def skeleton(shown: Overview) -> list[tuple[str, list[str]]]:
        seen = Outline(document(shown, ASSETS)).seen
        return [(name, sorted(attributes)) for name, attributes in seen]

    assert skeleton(view) == skeleton(harmless)


@given(st.text(max_size=40))
def test_whatever_a_text_is_it_stays_one(text: str) -> None:
    html = tag("p", {"title": text}, text)
    outline = Outline(html)
    assert [name for name, _ in outline.seen] == ["p"]
    assert "\u202e" not in html
    assert "\0" not in html


def test_attributes_may_stand_alone_or_be_left_out() -> None:
    built = tag("input", {"required": True, "disabled": False, "name": None, "value": '"'})
    assert built == '<input required value="&quot;">'
    assert join(None, "a<b", [tag("b", {}, "c")]) == "a&lt;b<b>c</b>"


def test_the_login_form_shows_no_data() -> None:
    html = login(ASSETS, wrong=True)
    outline = Outline(html)
    assert outline.tags("form") == [{"method": "post", "action": "/login"}]
    assert not outline.tags("script")
    assert "Wrong token" in outline.text
    assert "Wrong token" not in login(ASSETS, wrong=False)


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        (Pool(name="a"), "none"),
        (Pool(name="a", busy=1, idle=2, desired=4), "1 busy, 2 idle, 1 missing"),
        (Pool(name="a", busy=300, desired=300), "300 busy"),
    ],
)
def test_a_bar_has_a_text(pool: Pool, told: str) -> None:
    assert told in bar(pool)


def test_a_bar_of_many_is_no_wider_than_one_of_few() -> None:
    many = bar(Pool(name="a", busy=4000, idle=1, desired=5000))
    assert many.count("<rect") == 3
    assert 'viewBox="0 0 400 12"' in many
    assert "2 of 2 Pods" in bar(Host(name="h", tone="good", state="ready", used=2, capacity=2))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (0.2, "under 1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (3605, "1 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("then", "words"), [(0.0, "now"), (-5, "now"), (59, "59 s"), (61, "1 min"), (90000, "1 d")]
)
def test_ages_have_one_unit(then: float, words: str) -> None:
    assert format_age(NOW - then, NOW) == words
    assert pluralize(1, "host") == "1 host"
    assert pluralize(2, "host") == "2 hosts"


@pytest.mark.parametrize(
    ("image", "short"),
    [
        ("vm:1", "vm:1"),
        ("registry.example:5000/a/b/runner:2", "runner:2"),
        ("registry.example/runner@sha256:0123456789abcdef", "runner@0123456789"),
        ("", ""),
    ],
)
def test_an_image_reference_is_shortened_to_its_end(image: str, short: str) -> None:
    assert short_image(image) == short
