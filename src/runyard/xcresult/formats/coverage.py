"""The formats of coverage, by their names on the command line."""

from collections.abc import Iterator
from typing import Literal

from runyard.xcresult.formats import (
    coverage_cobertura,
    coverage_json,
    coverage_lcov,
    coverage_text,
)
from runyard.xcresult.reader.coverage.model import Coverage

Format = Literal["json", "cobertura", "lcov", "text"]
FORMATS: tuple[Format, ...] = ("json", "cobertura", "lcov", "text")


def render_coverage(
    coverage: Coverage, form: Format, *, root: str = "", timestamp: float = 0.0
) -> Iterator[str]:
    """Write a coverage in pieces. `root` and `timestamp` are used by Cobertura only (see coverage_cobertura.py)."""
    if form == "cobertura":
        return coverage_cobertura.render(coverage, root=root, timestamp=timestamp)
    plain = {
        "json": coverage_json.render,
        "lcov": coverage_lcov.render,
        "text": coverage_text.render,
    }
    return plain[form](coverage)
