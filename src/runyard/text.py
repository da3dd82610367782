"""Replaces characters of untrusted text that a terminal, a browser or a parser would interpret instead of show.

Names, logs and messages come from jobs, bundles and other systems. Escape sequences clear a terminal or overwrite
earlier output, marks that reverse the direction of writing disguise text, and a line break begins a false record.
All packages clean such text here; they only differ in what they keep and in what they write instead.

Invariant: text without such characters is returned as it is.
"""

import unicodedata
from collections.abc import Callable

# Control and format characters, surrogates, unusual line separators.
_INTERPRETED = ("Cc", "Cf", "Cs", "Zl", "Zp")
Test = Callable[[str], bool]


def is_shown(char: str) -> bool:
    """Whether a character is shown and not interpreted. Spaces of every width are, also unassigned characters."""
    return unicodedata.category(char) not in _INTERPRETED


def as_code(char: str) -> str:
    r"""The escape code of a character as in JSON: `\u001b`; outside of the basic plane two of them."""
    code = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def cleaned(
    text: str,
    *,
    keep: str = "",
    instead: str | Callable[[str], str] = as_code,
    shown: Test = is_shown,
) -> str:
    """Replace the characters that are neither `shown` nor in `keep`.

    Use `str.isprintable` as `shown` where private, unassigned and wide spaces must go, too.
    """
    if text.isprintable():
        return text
    if "\n" in keep and "\n" in text:
        # Most lines are printable: only the others are read by character.
        lines = text.split("\n")
        return "\n".join(cleaned(line, keep=keep, instead=instead, shown=shown) for line in lines)
    replace = instead if callable(instead) else lambda _: instead
    return "".join(char if char in keep or shown(char) else replace(char) for char in text)


def harmless(text: str) -> str:
    """Text for a terminal: line breaks and tabs stay, and JSON keeps its meaning."""
    return cleaned(text.replace("\r\n", "\n"), keep="\n\t")
