"""Counts the work and the memory of reading one bundle, and ends the reading at its limits.

A limit for each kind of work alone is not enough: an upload may stay just below every one of them. So frames, entries,
objects, rows and bytes are spent from one budget, each at about its cost in microseconds. Counts and not the clock
decide, so the same upload ends the same way on every machine; the processor's child process has limits of the operating
system as well (processor/resource_limits.py).

A larger upload may take more work, in proportion to its bytes: whoever wants a longer reading has to upload more.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from runyard.xcresult.errors import TooLarge

WORK = 25_000_000
"""Work for any upload. 50,000 cases in an archive of 81 MB take 19 million, and may take 30."""
HELD = 384 * 2**20
"""Bytes of the result in memory, estimated. 50,000 cases, some of them with retries, take about 220 MiB."""
LOADED = 416 * 2**20
"""Bytes of decoded objects in memory while the result grows. The tree of 85,000 cases takes 374 MiB, estimated."""
HELD_EARLY = 4
"""Part of the held bytes that the result takes while objects are decoded; reports and rows take the rest later."""
UPLOADED_BYTES = 16
"""Bytes of the upload that add one to the work."""

ENTRY = 80
"""An entry of an archive: its header is parsed, its file is created, written and closed."""
FRAME = 50
"""A frame, member or block of a compressed stream: a decoder is created and deleted."""
OBJECT = 40
"""An object of the store: its file is opened, read and hashed."""
ROW = 8
"""A row of the SQLite cache, or one that is written."""
NODE = 1
"""A typed object inside of an object of the store."""
SLOW_MEMBER = 3
"""A member that only the slow path of the decoder can read."""
REFERENCE = 2
"""A reference of an object."""
BYTES_KIB = 2
"""A kibibyte that is extracted, decompressed, hashed or compared with a pattern."""
ZSTD_KIB = 3
"""A kibibyte that a zstd stream decodes to: a sequence of three bytes may take no bits."""
XZ_KIB = 20
"""A kibibyte that an xz stream decodes to: nine decisions for each literal, three filters, and SHA-256."""
XZ_STORED_KIB = 40
"""A kibibyte of an xz stream itself: its decisions cannot be predicted."""
TYPED_KIB = 4
"""A kibibyte of a typed object, besides its nodes."""
LOG_KIB = 64
"""A kibibyte of a log, whose lines are matched with a regular expression."""
HEADER_KIB = 256
"""A kibibyte of an archive's headers, whose fields have a few bytes each."""
WRITTEN_KIB = 16
"""A kibibyte of rows that are written."""
LINE = 1
"""A line of a source file with its count."""
JSON_KIB = 64
"""A kibibyte of JSON or of a property list, whose values have a few bytes each."""


class Budget:
    """What one reading may still spend."""

    def __init__(
        self, work: int = WORK, held: int = HELD, loaded: int = LOADED, *, uploaded: int = 0
    ) -> None:
        self._most = work + uploaded // UPLOADED_BYTES
        self._most_held = held
        self._most_loaded = loaded
        self.work = 0
        self.held = 0
        self.early = 0
        self.loaded = 0

    @property
    def exceeded(self) -> bool:
        """Whether a limit was exceeded: then the reading must end, not only the part that exceeded it."""
        return self.work > self._most or self.held > self._most_held

    def spend(self, work: int) -> None:
        """Count work; raises TooLarge beyond the limit."""
        self.work += work
        if self.work > self._most:
            raise TooLarge(
                f"reading takes more work than {self._most} (work): too many small parts"
                " for the size of the upload"
            )

    def spend_kib(self, size: int, each: int = BYTES_KIB) -> None:
        """Count the work for this many bytes, at a cost for each kibibyte."""
        self.spend((size * each >> 10) + 1)

    def hold(self, size: int, *, early: int = 0) -> None:
        """Count bytes that stay in memory until the reading ends; raises TooLarge beyond the limit.

        `early` is what they take at once, beyond their part of the held bytes.
        """
        self.held += size
        self.early += early
        if self.held > self._most_held:
            raise TooLarge(
                f"the result takes more than {self._most_held} bytes of memory (held_bytes)"
            )
        self.allow(0)

    def load(self, size: int) -> None:
        """Count bytes of a decoded object, until `passing` ends; raises TooLarge beyond the limit."""
        self.allow(size)
        self.loaded += size

    def allow(self, size: int) -> None:
        """Check that an object of this size fits besides those that are loaded; raises TooLarge otherwise.

        An object that does not fit does not end the reading: others may.
        """
        if self.loaded + size + self.held // HELD_EARLY + self.early > self._most_loaded:
            raise TooLarge(
                f"the decoded objects take more than {self._most_loaded} bytes of memory"
                " (loaded_bytes)"
            )

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Forget, at the end, the objects that were loaded within: the caller keeps none of them."""
        before = self.loaded
        try:
            yield
        finally:
            self.loaded = before
