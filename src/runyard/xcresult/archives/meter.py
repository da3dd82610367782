"""The count of what one extraction has done, against its limits.

Every decoded byte is counted, also those of entries that are then skipped, and between two pieces the
caller's `check` is called: it raises whatever is to end the extraction (a deadline, a cancellation).
"""

from collections.abc import Callable

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.errors import TooLarge

PIECE = 256 * 1024
"""How much is read, decoded and written at a time."""

Check = Callable[[], None]


def unhindered() -> None:
    """The check of a caller that has no reason to stop."""


class Meter:
    """Counts; raises TooLarge at the first limit that is passed."""

    def __init__(
        self, limits: Limits, *, archive_bytes: int = 0, check: Check = unhindered
    ) -> None:
        self.limits = limits
        self.check = check
        self.entries = 0
        self.bytes = 0
        # A tiny archive may hold one small file of zeros: the ratio is judged from a floor on.
        self._most = max(limits.ratio_floor, archive_bytes * limits.ratio)

    def entry(self) -> None:
        """One more entry, needed or not."""
        self.check()
        self.entries += 1
        if self.entries > self.limits.entries:
            raise TooLarge(f"the archive holds more than {self.limits.entries} entries (entries)")

    def produced(self, count: int) -> None:
        """So many more bytes came out of the archive."""
        self.check()
        self.bytes += count
        if self.bytes > self.limits.total_bytes:
            raise TooLarge(
                f"the archive holds more than {self.limits.total_bytes} bytes (total_bytes)"
            )
        if self.bytes > self._most:
            raise TooLarge(
                f"the archive holds more than {self.limits.ratio} bytes for each of its own (ratio)"
            )

    def declared(self, size: int) -> None:
        """An entry says that it holds so many bytes."""
        if size > self.limits.entry_bytes:
            raise TooLarge(
                f"a file in the archive holds more than {self.limits.entry_bytes} bytes (entry_bytes)"
            )
