"""Weighs the memory that a decoded object takes while it is built.

A closed node or array is weighed by its own size and by its number of members; texts are as long as the bytes that were
read for them. What is still open is weighed from time to time, so the count is never far behind. The object's bytes and
their text are in memory until it is complete.

Objects of a few bytes are what makes this necessary: a node with one value takes ten times the memory of its bytes.
"""

from typing import Any

from runyard.xcresult.reader.budget import Budget

STRING = 64
"""A text besides its characters, and also a key that no other node shares."""
COLLECTED = 16
"""What the cycle collector adds to a node or an array."""
STEP = 1 << 17
"""Bytes that are decoded between two checks."""
COPIES = 2
"""The bytes of an object and their text, while it is decoded."""
WIDE = 8
"""Memory for each byte of a text beyond ASCII while it is decoded: its copies, and four bytes for each character."""

Container = dict[str, Any] | list[Any]


class Weight:
    """The memory of one object, checked against a budget."""

    def __init__(self, budget: Budget, encoded: int) -> None:
        self._budget = budget
        self._encoded = encoded
        self.texts = 0
        """Bytes of texts that take more than their nodes are weighed with: keys of their own, wide characters."""
        self._built = COPIES * encoded  # as of the last check
        budget.allow(self._built)

    def check(
        self, at: int, closed: int, top: Container, opened: list[tuple[Container, str]]
    ) -> None:
        """Check what was built of the first `at` bytes: what is closed, and what is open. Raises TooLarge."""
        around = sum(weighed(each) for each, _ in (*opened, (top, "")))
        self._built = closed + around + at + COPIES * self._encoded
        self._budget.allow(self._built + self.texts)

    def wide(self, size: int) -> None:
        """Check that a text of this size beyond ASCII can be decoded. Raises TooLarge."""
        self._budget.allow(self._built + self.texts + WIDE * size)

    def keep(self, closed: int) -> None:
        """Count the complete object, whose bytes and text are dropped. Raises TooLarge."""
        self._budget.load(closed + self.texts + self._encoded)


def weighed(container: Container) -> int:
    """The memory of a node or an array and of its texts, without their characters."""
    return container.__sizeof__() + COLLECTED + STRING * len(container)
