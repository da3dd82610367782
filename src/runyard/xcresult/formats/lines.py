"""Lines of spans that have a meaning (failure, dim, …) instead of colours."""

from typing import Literal

import msgspec

Style = Literal["plain", "strong", "dim", "failure", "success", "skipped", "expected", "flaky"]


class Span(msgspec.Struct, frozen=True):
    """A piece of text with one meaning."""

    text: str
    style: Style = "plain"


class Line(msgspec.Struct, frozen=True):
    """One line, indented by `depth` levels."""

    depth: int
    spans: tuple[Span, ...]
