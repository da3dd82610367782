"""XML that is always well-formed, whatever it is made of.

Characters that XML 1.0 forbids are removed. Those that it allows but that are no writing (C1 controls,
marks that turn the direction of writing around, odd line ends) are written as references: the same
document, and no terminal obeys them.
"""

import re
import unicodedata
from collections.abc import Mapping

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_WRITING = ("Cc", "Cf", "Zl", "Zp")
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def text(value: str) -> str:
    """Character data of an element."""
    return _written(value, keep="\n\t")


def attribute(value: str) -> str:
    """The value of an attribute, without its quotes. Line breaks survive as references."""
    return _written(value, keep="")


def opening(name: str, attributes: Mapping[str, str], *, empty: bool = False) -> str:
    """An opening tag; `empty` closes it at once."""
    told = "".join(f' {key}="{attribute(value)}"' for key, value in attributes.items())
    return f"<{name}{told}{'/' if empty else ''}>"


def element(name: str, attributes: Mapping[str, str], content: str = "") -> str:
    """A whole element with character data."""
    if not content:
        return opening(name, attributes, empty=True)
    return f"{opening(name, attributes)}{text(content)}</{name}>"


def _written(value: str, *, keep: str) -> str:
    clean = _FORBIDDEN.sub("", value)
    if clean.isascii() and clean.isprintable() and not any(char in clean for char in _NAMED):
        return clean
    return "".join(_character(char, keep) for char in clean)


def _character(char: str, keep: str) -> str:
    if char in keep:
        return char
    if char in _NAMED:
        return _NAMED[char]
    if unicodedata.category(char) in _NO_WRITING:
        return f"&#{ord(char)};"
    return char
