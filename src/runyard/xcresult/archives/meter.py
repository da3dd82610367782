"""Counts the work of one extraction and enforces its limits.

Every decoded byte is counted, also those of skipped entries. Between two pieces the caller's `check` is called, which
may raise to end the extraction (a deadline, a cancellation). The same amounts are spent from the budget of the reading.
"""

from collections.abc import Callable

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.budget import (
    BYTES_KIB,
    ENTRY,
    FRAME,
    HEADER_KIB,
    XZ_KIB,
    XZ_STORED_KIB,
    ZSTD_KIB,
    Budget,
)

PIECE = 256 * 1024
"""Bytes read, decoded and written at a time."""
DECODED_KIB = {"zstd": ZSTD_KIB, "xz": XZ_KIB}
"""Work for each kibibyte that a decoder returns, where it is more than `BYTES_KIB`."""
STORED_KIB = {"xz": XZ_STORED_KIB}
"""Work for each kibibyte that a decoder gets, where it is any."""

Check = Callable[[], None]


def no_check() -> None:
    """Do nothing: the default check, which never stops an extraction."""


class Meter:
    """Counts bytes and entries; raises TooLarge at the first exceeded limit."""

    def __init__(
        self,
        limits: Limits,
        *,
        archive_bytes: int = 0,
        check: Check = no_check,
        budget: Budget | None = None,
    ) -> None:
        self.limits = limits
        self._budget = budget or limits.budget(uploaded=archive_bytes)
        self.check = check
        self.entries = 0
        self.bytes = 0
        # A tiny archive may contain a small file of zeros, so the ratio has a minimum.
        self._most = max(limits.ratio_floor, archive_bytes * limits.ratio)

    def entry(self) -> None:
        """Count an entry, needed or not."""
        self.check()
        self._budget.spend(ENTRY)
        self.entries += 1
        self.announced(self.entries)

    def announced(self, entries: int) -> None:
        """Check a number of entries, counted or declared."""
        if entries > self.limits.entries:
            raise TooLarge(f"the archive holds more than {self.limits.entries} entries (entries)")

    def frame(self) -> None:
        """Count a frame, member or block of a compressed stream."""
        self.check()
        self._budget.spend(FRAME)

    def header(self, size: int) -> None:
        """Count the bytes of a header with any number of fields."""
        self._budget.spend_kib(size, HEADER_KIB)

    def taken(self, count: int, kind: str) -> None:
        """Count bytes that a decoder of this kind gets."""
        if each := STORED_KIB.get(kind):
            self._budget.spend_kib(count, each)

    def produced(self, count: int, kind: str = "") -> None:
        """Count bytes that were extracted from the archive, by a decoder of this kind if one is named."""
        self.check()
        self._budget.spend_kib(count, DECODED_KIB.get(kind, BYTES_KIB))
        self.bytes += count
        if self.bytes > self.limits.total_bytes:
            raise TooLarge(
                f"the archive holds more than {self.limits.total_bytes} bytes (total_bytes)"
            )
        if self.bytes > self._most:
            raise TooLarge(
                f"the archive extracts to more than {self.limits.ratio} times its own size (ratio)"
            )

    def declared(self, size: int) -> None:
        """Check the declared size of an entry."""
        if size > self.limits.entry_bytes:
            raise TooLarge(
                f"a file in the archive holds more than {self.limits.entry_bytes} bytes (entry_bytes)"
            )
