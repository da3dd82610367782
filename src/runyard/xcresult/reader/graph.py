"""Loads objects by reference, on demand; objects are dropped once they are mapped.

Invariants:
- A missing or damaged object is one warning, however often it is referenced.
- All objects together may decode to `budget` bytes: a large object with a million references, or a thousand bombs,
  raise TooLarge instead of taking hours. The work of decoding them, and the runs that stay in memory, are spent from
  the `spending` of the whole reading.
"""

import re
from collections.abc import Callable, Iterable

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.decode import Malformed, Node, decode, is_typed
from runyard.xcresult.reader.model import Warning as BundleWarning
from runyard.xcresult.reader.objects import ObjectProblem, Objects

BUDGET = 8 << 30
AGAIN = 16
"""Factor by which the bytes of an object count when it is read again. Summaries that runs share are small."""
REFUSED = 8
"""Number of too large objects after which reading fails: each takes time to detect."""
KNOWN = frozenset({"ActionTestSummaryGroup", "ActionTestMetadata", "ActionTestSummary"})
"""Types that determine the tree: a subtype in a later version is read as its known supertype."""


Passing = Callable[[bytes], frozenset[str]]
"""Selects members of an object to skip, from its bytes."""


def skip_nothing(_data: bytes) -> frozenset[str]:
    """Skip no member."""
    return frozenset()


class Graph:
    """Loads typed objects by id and collects warnings about them."""

    def __init__(
        self,
        objects: Objects,
        *,
        depth: int,
        budget: int = BUDGET,
        spending: Budget | None = None,
    ) -> None:
        self.objects = objects
        self.spending = spending or Budget()
        self._depth = depth
        self._budget = budget
        self._left = budget
        self._refused = 0
        self._seen: set[str] = set()
        self._warnings: dict[str, BundleWarning] = {}

    @property
    def warnings(self) -> tuple[BundleWarning, ...]:
        """All warnings, in the order of their occurrence."""
        return tuple(self._warnings.values())

    def warn(self, message: str, *, object_id: str = "") -> None:
        """Add a warning: a part could not be read."""
        key = object_id or message
        self._warnings.setdefault(key, BundleWarning(message=message, object_id=object_id))

    @property
    def decoded(self) -> int:
        """Bytes of all objects so far."""
        return self._budget - self._left

    def join(self, warnings: Iterable[BundleWarning], *, decoded: int) -> None:
        """Add the warnings of another graph of the same bundle."""
        for one in warnings:
            self.warn(one.message, object_id=one.object_id)
        self._spend(decoded)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"more than {self._budget} bytes of typed objects (limit decoded_bytes)")

    def load(
        self,
        object_id: str,
        *,
        what: str,
        only_if: re.Pattern[bytes] | None = None,
        passing: Passing = skip_nothing,
        kib: int = 0,
    ) -> Node | None:
        """Load an object; returns None and adds a warning if it cannot be read. `what` names it in the warning.

        With `only_if`, an object that does not match the pattern is not decoded: most summaries of passed
        tests have no details, and they are most of a large bundle. `passing` selects the members to skip. `kib` is the
        work that the caller does with each kibibyte.
        """
        if object_id in self._warnings:
            return None
        try:
            return self._decoded(object_id, only_if, passing, kib)
        except TooLarge as error:
            self._refused += 1
            if self._refused > REFUSED or self._left < 0 or self.spending.exceeded:
                raise
            self.warn(f"{what}: {error}", object_id=object_id)
            return None
        except (ObjectProblem, Malformed) as error:
            self.warn(f"{what}: {error}", object_id=object_id)
            return None

    def need(self, object_id: str, *, what: str) -> Node:
        """Load a required object; raises BundleInvalid if it cannot be read."""
        try:
            return self._decoded(object_id)
        except (ObjectProblem, Malformed) as error:
            raise BundleInvalid(f"{what} cannot be read: {error} ({object_id})") from error

    def _decoded(
        self,
        object_id: str,
        only_if: re.Pattern[bytes] | None = None,
        passing: Passing = skip_nothing,
        kib: int = 0,
    ) -> Node:
        data = self.objects.read(object_id)
        self._spend(len(data) * (AGAIN if object_id in self._seen else 1))
        self._seen.add(object_id)
        if only_if and is_typed(data) and data.endswith(b"]") and not only_if.search(data):
            return {}
        if kib:
            self.spending.spend_kib(len(data), kib)
        node = decode(
            data,
            known=KNOWN,
            depth=self._depth,
            passing=passing(data),
            budget=self.spending,
        )
        if not isinstance(node, dict):
            raise Malformed("not a typed object, although a typed object is referenced")
        return node
