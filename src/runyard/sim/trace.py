"""Records what happened in a run as one number that must be the same in every replay.

Every observable step is recorded with its virtual time; the running hash of all records is the run's digest. If two
runs of one seed have different digests, something in the code depends on more than the seed, and the kept lines show
where they diverged.

A field is text, a number or a tuple of these. Text with a memory address is refused: it would differ in each run.
"""

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import TextIO


class Trace:
    """Hashes, counts and optionally keeps records.

    `keep` lines are kept for display after a failure; with `file` every line is written there.
    """

    def __init__(
        self, now: Callable[[], float], *, keep: int = 0, file: TextIO | None = None
    ) -> None:
        self._now = now
        self._hash = blake2b(digest_size=16)
        self._file = file
        self._kept: deque[str] | None = deque(maxlen=keep) if keep else None
        self.counts: dict[str, int] = {}

    def note(self, kind: str, *fields: object) -> None:
        """Records that something happened now."""
        line = f"{self._now()!r} {kind} {fields!r}\n"
        if " at 0x" in line:
            raise ValueError(f"a field of this note prints its address: {line}")
        self._hash.update(line.encode())
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self._kept is not None:
            self._kept.append(line)
        if self._file is not None:
            self._file.write(line)

    @property
    def total(self) -> int:
        """How many records were made."""
        return sum(self.counts.values())

    def last(self) -> tuple[str, ...]:
        """The kept lines, oldest first."""
        return tuple(self._kept or ())

    def digest(self) -> str:
        """The hash of all records so far."""
        return self._hash.hexdigest()
