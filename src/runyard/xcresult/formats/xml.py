"""Writes XML that is always well-formed.

Characters that XML 1.0 forbids are removed. Allowed characters that are not printable (C1 controls, marks that reverse
the direction of writing, unusual line separators) are written as references, so no terminal interprets them.
"""

import re
from collections.abc import Mapping

from runyard.text import cleaned

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAMED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_PLAIN = re.compile('[^&<>"]*')


def text(value: str) -> str:
    """Character data of an element."""
    return _written(value, keep="\n\t")


def attribute(value: str) -> str:
    """The value of an attribute, without its quotes. Line breaks survive as references."""
    return _written(value, keep="")


def opening(name: str, attributes: Mapping[str, str], *, empty: bool = False) -> str:
    """An opening tag; `empty` closes it at once."""
    written = "".join(f' {key}="{attribute(value)}"' for key, value in attributes.items())
    return f"<{name}{written}{'/' if empty else ''}>"


def element(name: str, attributes: Mapping[str, str], content: str = "") -> str:
    """A whole element with character data."""
    if not content:
        return opening(name, attributes, empty=True)
    return f"{opening(name, attributes)}{text(content)}</{name}>"


def _written(value: str, *, keep: str) -> str:
    clean = _FORBIDDEN.sub("", value)
    if clean.isascii() and clean.isprintable() and _PLAIN.fullmatch(clean):
        return clean
    return cleaned(clean.translate(_NAMED), keep=keep, instead=_reference)


def _reference(char: str) -> str:
    return f"&#{ord(char)};"
