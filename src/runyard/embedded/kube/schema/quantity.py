"""Converts Kubernetes quantities (`8`, `500m`, `14336Mi`, `1e3`) to integers of thousandths.

One unit for all resources keeps the arithmetic exact and the comparison simple. Larger values are capped at 2^63, as in
a real scheduler.
"""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?)"
    r"(?P<suffix>[numkMGTPE]?|[KMGTPE]i)"
)
_LIMIT = Decimal(2**63)
_LONGEST = 512  # characters; more than the canonical form of any amount has (`scalars`)


@lru_cache(maxsize=4096)
def milli(text: str | float) -> int:
    """The quantity in thousandths, rounded up; raises `ValueError` if it is none."""
    raw = str(text)
    match = _QUANTITY.fullmatch(raw)
    if match is None or len(raw) > _LONGEST:
        raise ValueError(f"not a quantity: {raw[:40]!r}")
    value = Decimal(match["number"]) * _SUFFIXES[match["suffix"]]
    value = max(-_LIMIT, min(value, _LIMIT))
    return int((value * 1000).to_integral_value(rounding=ROUND_CEILING))
