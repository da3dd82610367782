"""Renders output: lines of a tree, with colours for a terminal; JSON; other text.

Invariant: control characters of a bundle never reach the terminal; colours are ours, and only a terminal
gets them.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from runyard.text import harmless
from runyard.xcresult.formats.lines import Line, Style

_INDENT = "  "
_LOOKS: dict[Style, dict[str, Any]] = {
    "plain": {},
    "strong": {"bold": True},
    "dim": {"dim": True},
    "failure": {"fg": "red", "bold": True},
    "success": {"fg": "green"},
    "skipped": {"fg": "blue"},
    "expected": {"fg": "magenta"},
    "flaky": {"fg": "yellow"},
}


def plain(lines: Iterable[Line]) -> str:
    """The lines without colours."""
    return "".join(
        f"{_INDENT * line.depth}{_safe(''.join(span.text for span in line.spans))}".rstrip() + "\n"
        for line in lines
    )


def painted(lines: Iterable[Line]) -> str:
    """The lines with colours."""
    return "".join(
        _INDENT * line.depth
        + "".join(click.style(_safe(span.text), **_LOOKS[span.style]) for span in line.spans)
        + "\n"
        for line in lines
    )


def shown(lines: Iterable[Line]) -> bytes:
    """The lines for standard output, with colours if it is a terminal."""
    coloured = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return (painted(lines) if coloured else plain(lines)).encode("utf-8", "replace")


def json_bytes(*values: object) -> bytes:
    """One value, or a list if there are several; characters that are not printable are escaped."""
    value = values[0] if len(values) == 1 else values
    return text_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def text_bytes(text: str) -> bytes:
    """Text of a bundle, safe for the terminal, as UTF-8 in every locale."""
    return harmless(text).encode("utf-8", "replace")


def _safe(text: str) -> str:
    """Escape line breaks: a name must not begin a new line."""
    return harmless(text.replace("\r", "\\r").replace("\n", "\\n"))
