"""Lines for people, made of spans that say what they mean and not how they look."""

from typing import Literal

import msgspec

Style = Literal["plain", "strong", "dim", "failure", "success", "skipped", "expected", "flaky"]


class Span(msgspec.Struct, frozen=True):
    """Some words of one meaning."""

    text: str
    style: Style = "plain"


class Line(msgspec.Struct, frozen=True):
    """One line; `depth` levels below the edge."""

    depth: int
    spans: tuple[Span, ...]
