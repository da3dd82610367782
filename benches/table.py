"""Prints the table of a bench: target, measured value, verdict."""

import os

import msgspec

OK, MISSED, NOT_MEASURED = "ok", "MISSED", "NOT MEASURED"


class Row(msgspec.Struct, frozen=True):
    name: str
    target: str
    measured: str
    verdict: str


def at_most(name: str, measured: float, limit: float, unit: str, *, inclusive: bool = False) -> Row:
    kept = measured <= limit if inclusive else measured < limit
    sign = "<=" if inclusive else "<"
    verdict = OK if kept else MISSED
    return Row(name, f"{sign} {_number(limit)} {unit}", f"{_number(measured)} {unit}", verdict)


def at_least(name: str, measured: float, limit: float, unit: str, *, because: str = "") -> Row:
    verdict = OK if measured >= limit else MISSED
    target = f">= {_number(limit)} {unit}" + (f" ({because})" if because else "")
    return Row(name, target, f"{_number(measured)} {unit}", verdict)


def unmeasured(name: str, target: str, why: str) -> Row:
    return Row(name, target, why, NOT_MEASURED)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(rows: list[Row], notes: list[str], *, as_json: bool = False) -> int:
    """Print the table; returns 1 if a target is missed. A row without a measurement does not count as kept."""
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return 1 if any(row.verdict == MISSED for row in rows) else 0
    header = Row("what", "target", "measured", "verdict")
    widths = [
        max(len(getattr(row, field)) for row in (header, *rows))
        for field in ("name", "target", "measured", "verdict")
    ]
    print()
    for row in (header, *rows):
        cells = (row.name, row.target, row.measured, row.verdict)
        print("  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)))
    print()
    for note in notes:
        print(f"  {note}")
    print(f"  load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    absent = [row for row in rows if row.verdict == NOT_MEASURED]
    for row in absent:
        print(f"\n*** NOT MEASURED, and so not known to hold: {row.name}: {row.measured}")
    missed = sum(1 for row in rows if row.verdict == MISSED)
    kept = len(rows) - missed - len(absent)
    print(f"\n{kept} kept, {missed} missed, {len(absent)} not measured")
    return 1 if missed else 0
