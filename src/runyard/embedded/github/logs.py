"""What jobs have written, in the order in which their runners sent it.

An append says where it begins. One that was heard already is heard again without harm, and one that would leave a
gap is refused with the size that the log has, so a runner that lost an answer, or a GitHub that lost its
last moments, only makes the runner send something again.

Invariants:
- A log grows up to a limit and is then full. The logs of the newest jobs are remembered, up to a number of jobs
  and up to a number of bytes: whatever jobs write, the disk that they fill is bounded.
"""

from runyard.embedded.github.keep import Keeper, LogChunk
from runyard.embedded.github.settings import PracticeSettings


class LogGap(Exception):
    """Bytes are missing before this append."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the log has {size} bytes")
        self.size = size


class LogFull(Exception):
    """This append would make the log too long."""


class Logs:
    """All logs; in memory, or behind a keeper with only what it has not been given yet in memory."""

    def __init__(self, *, settings: PracticeSettings, keeper: Keeper | None) -> None:
        self._settings = settings
        self._keeper = keeper
        self._sizes = {} if keeper is None else keeper.log_sizes()
        self._total = sum(self._sizes.values())
        self._chunks: dict[int, list[LogChunk]] = {}
        self._forgotten: list[int] = []

    def append(self, job_id: int, start: int, chunk: bytes) -> int:
        """Add to a job's log; its size now."""
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
        """How long a job's log is."""
        return self._sizes.get(job_id, 0)

    def read(self, job_id: int, start: int, end: int) -> bytes:
        """A part of a job's log; what is not there is left out."""
        kept = b"" if self._keeper is None else self._keeper.read_log(job_id, start, end)
        held = self._chunks.get(job_id, ())
        return kept + b"".join(
            chunk[max(0, start - at) : max(0, end - at)]
            for _, at, chunk in held
            if at < end and at + len(chunk) > start
        )

    @property
    def waiting(self) -> bool:
        """Whether a keeper has something to write."""
        return self._keeper is not None and bool(self._chunks or self._forgotten)

    def unkept(self) -> tuple[list[LogChunk], list[int]]:
        """What a keeper must write, and which jobs' logs it must drop."""
        return [each for held in self._chunks.values() for each in held], list(self._forgotten)

    def kept(self) -> None:
        """The keeper has written all of that."""
        self._chunks.clear()
        self._forgotten.clear()

    def _forget(self, *, but: int) -> None:
        """Make room for the log that grows: the oldest others go."""
        while self._overfull():
            oldest = next((job for job in self._sizes if job != but), None)
            if oldest is None:
                return
            self._total -= self._sizes.pop(oldest)
            self._chunks.pop(oldest, None)
            if self._keeper is not None:
                self._forgotten.append(oldest)

    def _overfull(self) -> bool:
        settings = self._settings
        return len(self._sizes) > settings.logs_kept or self._total > settings.logs_total
