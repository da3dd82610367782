"""HTML that is safe by construction.

    tag("td", {"class": "name"}, job.repository)

`tag` returns `Html`. A child that is `Html` is taken as it is; every other text is escaped, always, and so is every
attribute's value. There is no way to put text into a page without going through here, and no function that takes
markup from outside.
"""

import re
from collections.abc import Iterable, Mapping
from html import escape


class Html(str):
    """Markup that was built here."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
Attributes = Mapping[str, str | bool | None]

_VOID = frozenset({"meta", "link", "input", "br", "hr"})
NOTHING: Attributes = {}
_ODD = re.compile(r"[^ !#$%()*+,\-./0-9:;=?@A-Z\[\\\]^_`a-z{|}~–·\n]")


def tag(name: str, attributes: Attributes = NOTHING, *children: Child) -> Html:
    """One element. An attribute that is True stands alone; one that is None or False is left out."""
    head = f"<{name}{''.join(map(_attribute, attributes.items()))}>"
    if name in _VOID:
        return Html(head)
    return Html(f"{head}{''.join(map(_text, children))}</{name}>")


def join(*children: Child) -> Html:
    """Several pieces, one after the other."""
    return Html("".join(map(_text, children)))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return _escaped(child)
    return "".join(map(_text, child))


def _attribute(item: tuple[str, str | bool | None]) -> str:
    name, value = item
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(text: str) -> str:
    if _ODD.search(text) is None:  # nearly every text: ask once instead of replacing five times
        return text
    return escape(_printable(text))


def _printable(text: str) -> str:
    """Control characters and those that turn the direction of writing around show as what they are."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in " \n" else f"\\u{ord(char):04x}" for char in text
    )
