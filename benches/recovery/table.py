"""Formats outcomes as the tables of `docs/recovery.md`, between its markers."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from benches.recovery.matrix import Outcome
from benches.recovery.rows import ROWS, Row, row_of

BEGIN = "<!-- measured: begin (make recovery-table writes this part) -->"
END = "<!-- measured: end -->"
_NOT = "not measured"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not below that share of all values, without interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def matrix(outcomes: Iterable[Outcome], faults: Iterable[tuple[Row, list[float]]]) -> str:
    """Format the rows with their measurements."""
    by_key: dict[str, list[float]] = {row.key: [] for row in ROWS}
    for outcome in outcomes:
        if outcome.seconds is not None:
            by_key[row_of(outcome.case).key].append(outcome.seconds)
    lines = [
        "| crash or fault | left behind | what repairs it | bound | crashes | p50 | p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row, by_key[row.key]) for row in ROWS]
    lines += [_line(row, values) for row, values in faults]
    return "\n".join(lines)


def points(outcomes: Iterable[Outcome]) -> str:
    """Format every point with its times."""
    found: dict[tuple[bool, str], dict[str, list[float]]] = {}
    for outcome in outcomes:
        point = outcome.case.point
        times = found.setdefault((outcome.case.second, point.name), {"before": [], "after": []})
        if outcome.seconds is not None:
            times[point.when].append(outcome.seconds)
    lines = ["| effect | killed before it | killed after it |", "|---|---|---|"]
    for (second, name), times in sorted(found.items()):
        mark = " (in the repair)" if second else ""
        lines.append(f"| `{name}`{mark} | {_worst(times['before'])} | {_worst(times['after'])} |")
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    """Put the text between the markers of a page."""
    page = path.read_text(encoding="utf-8")
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no place for the table: {BEGIN} … {END}")
    path.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")


def _line(row: Row, values: list[float]) -> str:
    bound = f"{row.bound:g} s" + (f" ({row.clock})" if row.clock else "")
    cells = (row.what, row.left, row.repair, bound, len(values), *_shown(values))
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _shown(values: list[float]) -> tuple[str, str]:
    if not values:
        return _NOT, _NOT
    return f"{quantile(values, 0.5):.1f} s", f"{quantile(values, 0.99):.1f} s"


def _worst(values: list[float]) -> str:
    return f"{max(values):.1f} s" if values else _NOT
