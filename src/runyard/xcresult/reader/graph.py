"""Objects that point at objects: each is loaded when it is needed, and forgotten once it is mapped.

Invariants:
- What is missing or damaged becomes one warning for each object, however often it is pointed at.
- All objects together may decode to `budget` bytes: the same large object under a million references, or a
  thousand bombs, end in TooLarge and not in hours.
"""

import re
from collections.abc import Callable, Iterable

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.decode import Malformed, Node, decode, is_typed
from runyard.xcresult.reader.model import Warning as BundleWarning
from runyard.xcresult.reader.objects import ObjectProblem, Objects

BUDGET = 8 << 30
AGAIN = 16
"""Times that an object counts which was read before. Runs may share a summary, and then it is small."""
REFUSED = 8
"""Objects beyond the limit of one object that a reading passes over: finding out costs time for each."""
KNOWN = frozenset({"ActionTestSummaryGroup", "ActionTestMetadata", "ActionTestSummary"})
"""Types by which the tree is told apart: a later version's subtype of one is read as that."""


Passing = Callable[[bytes], frozenset[str]]
"""Which members of an object to pass over, by a look at its bytes."""


def nothing(_data: bytes) -> frozenset[str]:
    """Everything is wanted."""
    return frozenset()


class Graph:
    """Typed objects by id, with what was wrong with them."""

    def __init__(self, objects: Objects, *, depth: int, budget: int = BUDGET) -> None:
        self.objects = objects
        self._depth = depth
        self._budget = budget
        self._left = budget
        self._refused = 0
        self._seen: set[str] = set()
        self._warnings: dict[str, BundleWarning] = {}

    @property
    def warnings(self) -> tuple[BundleWarning, ...]:
        """Everything that was wrong, in the order in which it was met."""
        return tuple(self._warnings.values())

    def warn(self, message: str, *, object_id: str = "") -> None:
        """Remember that a part could not be read while the rest is good."""
        key = object_id or message
        self._warnings.setdefault(key, BundleWarning(message=message, object_id=object_id))

    @property
    def decoded(self) -> int:
        """Bytes of all objects so far."""
        return self._budget - self._left

    def join(self, warnings: Iterable[BundleWarning], *, decoded: int) -> None:
        """Take over what another graph of the same bundle met."""
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
        telling: re.Pattern[bytes] | None = None,
        passing: Passing = nothing,
    ) -> Node | None:
        """The object, or None and a warning. `what` names it for people.

        With `telling`, an object in which that is not found has nothing to say and is not decoded: most
        passing tests' summaries are like that, and they are most of a large bundle. `passing` names the
        members that nobody wants.
        """
        if object_id in self._warnings:
            return None
        try:
            return self._decoded(object_id, telling, passing)
        except TooLarge as error:
            self._refused += 1
            if self._refused > REFUSED or self._left < 0:
                raise
            self.warn(f"{what}: {error}", object_id=object_id)
            return None
        except (ObjectProblem, Malformed) as error:
            self.warn(f"{what}: {error}", object_id=object_id)
            return None

    def need(self, object_id: str, *, what: str) -> Node:
        """The object without which there is no result."""
        try:
            return self._decoded(object_id)
        except (ObjectProblem, Malformed) as error:
            raise BundleInvalid(f"{what} cannot be read: {error} ({object_id})") from error

    def _decoded(
        self,
        object_id: str,
        telling: re.Pattern[bytes] | None = None,
        passing: Passing = nothing,
    ) -> Node:
        data = self.objects.read(object_id)
        self._spend(len(data) * (AGAIN if object_id in self._seen else 1))
        self._seen.add(object_id)
        if telling and is_typed(data) and data.endswith(b"]") and not telling.search(data):
            return {}
        node = decode(data, known=KNOWN, depth=self._depth, passing=passing(data))
        if not isinstance(node, dict):
            raise Malformed("not an object of the kind that is pointed at")
        return node
