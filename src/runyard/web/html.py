"""HTML that is safe by construction.

    tag("td", {"class": "name"}, job.repository)

`tag` returns `Html`. A child of type `Html` is inserted unchanged; every other text and every attribute value is
escaped. All text of a page passes through this module, and no function accepts markup from other sources.
"""

import re
from collections.abc import Iterable, Mapping
from html import escape

from runyard.text import cleaned


class Html(str):
    """Markup that this module built."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
Attributes = Mapping[str, str | bool | None]

_VOID = frozenset({"meta", "link", "input", "br", "hr"})
NOTHING: Attributes = {}
_SPECIAL = re.compile(r"[^ !#$%()*+,\-./0-9:;=?@A-Z\[\\\]^_`a-z{|}~–·\n]")


def tag(name: str, attributes: Attributes = NOTHING, *children: Child) -> Html:
    """Build one element. An attribute that is True has no value; one that is None or False is left out."""
    head = f"<{name}{''.join(map(_attribute, attributes.items()))}>"
    if name in _VOID:
        return Html(head)
    return Html(f"{head}{''.join(map(_text, children))}</{name}>")


def join(*children: Child) -> Html:
    """Concatenate children."""
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
    if _SPECIAL.search(text) is None:  # the usual case: one search is faster than five replacements
        return text
    return escape(cleaned(text, keep="\n", shown=str.isprintable))
