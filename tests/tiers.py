"""How large a test is in each tier: `fast` while one works, `ci` for a verdict, `long` for everything.

`RUNYARD_TIER` names the tier (`make test`, `make test-all` and `make test-long` set it); without it tests are as large
as in `ci`. A test that is too long for the verdict is whole in `long` and a sample in `ci`. The sample rotates with
`RUNYARD_ROTATION` (the number of commits), so that successive commits together cover everything; pytest's header
prints both, and with the same two values the same cases run again.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

TIERS = ("fast", "ci", "long")
LEAST = 10  # examples: fewer than this find nothing
EXAMPLES = {"fast": 25, "ci": 50, "long": 100}  # of a property that sets no number of its own
SHARE = {"fast": 8, "ci": 4, "long": 1}  # what a property's own number is divided by

TIER = os.environ.get("RUNYARD_TIER", "ci")
ROTATION = int(os.environ.get("RUNYARD_ROTATION", "0"))

if TIER not in TIERS:
    raise ValueError(f"RUNYARD_TIER is {TIER!r}: set it to one of {', '.join(TIERS)}")


def load_profile() -> None:
    """Register Hypothesis' profiles by tier and load this run's; no example is judged by the clock."""
    for tier in TIERS:
        settings.register_profile(tier, deadline=None, print_blob=True, max_examples=EXAMPLES[tier])
    settings.load_profile(TIER)


def examples(whole: int) -> int:
    """How many of `whole` examples this tier runs."""
    return max(min(whole, LEAST), whole // SHARE[TIER])


def pick(*, fast: T, ci: T, long: T) -> T:
    """The value for this tier."""
    return {"fast": fast, "ci": ci, "long": long}[TIER]


def sample(cases: Sequence[T], *, of: int, fast: int | None = None) -> Sequence[T]:
    """Every case in `long`; else each `of`-th (`fast`-th in `fast`), from an offset that the rotation chooses.

    Of fewer cases than the step there is always one: an empty sample would be a test that nobody sees skipped.
    """
    if TIER == "long":
        return cases
    step = max(1, min(fast if fast is not None and TIER == "fast" else of, len(cases)))
    return cases[ROTATION % step :: step]
