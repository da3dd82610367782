"""The formats of coverage, by their names on the command line."""

from collections.abc import Iterator
from typing import Literal

from runyard.xcresult.formats import (
    coverage_cobertura,
    coverage_json,
    coverage_lcov,
    coverage_text,
)
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.coverage.model import Coverage

Format = Literal["json", "cobertura", "lcov", "text"]
FORMATS: tuple[Format, ...] = ("json", "cobertura", "lcov", "text")
MAPPED: tuple[Format, ...] = ("cobertura", "lcov")
"""The formats for consumers that search the paths in a checkout."""


def render_coverage(
    coverage: Coverage,
    form: Format,
    *,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
    timestamp: float = 0.0,
) -> Iterator[str]:
    """Write a coverage in pieces. `sources` is used by the formats of `MAPPED`, `timestamp` by Cobertura only."""
    if form == "cobertura":
        return coverage_cobertura.render(coverage, sources=sources, timestamp=timestamp)
    if form == "lcov":
        return coverage_lcov.render(coverage, sources=sources)
    return coverage_json.render(coverage) if form == "json" else coverage_text.render(coverage)
