"""Holds the logs of jobs, in the order in which their runners sent them.

An append names its offset. A repeated append has no effect, and one that would leave a gap is refused with the
log's size, so a runner that lost an answer, or a GitHub that lost its last moments, only makes the runner send
something again.

Invariants:
- A log grows up to a limit and is then full. The logs of the newest jobs are retained, up to a number of jobs and
  up to a number of bytes: whatever jobs write, the disk space is bounded.
"""

from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import LogChunk, RecordStore


class LogGap(Exception):
    """Bytes are missing before this append."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the log has {size} bytes")
        self.size = size


class LogFull(Exception):
    """This append would make the log too long."""


class Logs:
    """All logs; in memory, or in a store with only what is not yet written in memory."""

    def __init__(self, *, settings: PracticeSettings, store: RecordStore | None) -> None:
        self._settings = settings
        self._store = store
        self._sizes = {} if store is None else store.log_sizes()
        self._total = sum(self._sizes.values())
        self._chunks: dict[int, list[LogChunk]] = {}
        self._forgotten: list[int] = []

    def append(self, job_id: int, start: int, chunk: bytes) -> int:
        """Appends to a job's log; returns its size."""
        size = self._sizes.get(job_id, 0)
        if start > size:
            raise LogGap(size)
        if start + len(chunk) > self._settings.log_limit:
            raise LogFull
        fresh = chunk[size - start :]
        if fresh:
            self._chunks.setdefault(job_id, []).append((job_id, size, fresh))
            size = self._sizes[job_id] = size + len(fresh)
            self._total += len(fresh)
            self._forget(but=job_id)
        return size

    def size(self, job_id: int) -> int:
        """The size of a job's log."""
        return self._sizes.get(job_id, 0)

    def read(self, job_id: int, start: int, end: int) -> bytes:
        """A part of a job's log; bytes that do not exist are left out."""
        kept = b"" if self._store is None else self._store.read_log(job_id, start, end)
        held = self._chunks.get(job_id, ())
        return kept + b"".join(
            chunk[max(0, start - at) : max(0, end - at)]
            for _, at, chunk in held
            if at < end and at + len(chunk) > start
        )

    @property
    def waiting(self) -> bool:
        """Whether the store has something to write."""
        return self._store is not None and bool(self._chunks or self._forgotten)

    def pending_writes(self) -> tuple[list[LogChunk], list[int]]:
        """What the store must write, and which jobs' logs it must drop."""
        return [each for held in self._chunks.values() for each in held], list(self._forgotten)

    def written(self) -> None:
        """The store has written all pending writes."""
        self._chunks.clear()
        self._forgotten.clear()

    def _forget(self, *, but: int) -> None:
        """Drops the oldest other logs until the limits hold."""
        while self._overfull():
            oldest = next((job for job in self._sizes if job != but), None)
            if oldest is None:
                return
            self._total -= self._sizes.pop(oldest)
            self._chunks.pop(oldest, None)
            if self._store is not None:
                self._forgotten.append(oldest)

    def _overfull(self) -> bool:
        settings = self._settings
        return len(self._sizes) > settings.logs_kept or self._total > settings.logs_total
