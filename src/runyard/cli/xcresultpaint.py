"""What standard output is to get: the lines of a tree, painted for a terminal; JSON; other text.

Invariant: of what a bundle says only writing reaches the terminal; colours are ours alone, and only a
terminal gets them.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from runyard.cli.harmless import harmless
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
    """What standard output is to get."""
    coloured = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return (painted(lines) if coloured else plain(lines)).encode("utf-8", "replace")


def json_bytes(*values: object) -> bytes:
    """One value, or a list of them when there are several; what is no writing is escaped."""
    value = values[0] if len(values) == 1 else values
    return text_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def text_bytes(text: str) -> bytes:
    """Text with a bundle's words in it, harmless, as UTF-8 whatever the locale says."""
    return harmless(text).encode("utf-8", "replace")


def _safe(text: str) -> str:
    """On one line: a name with a line break in it must not begin a line."""
    return harmless(text.replace("\r", "\\r").replace("\n", "\\n"))
