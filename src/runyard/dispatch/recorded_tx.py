"""Collects the changes that a transaction makes to jobs, for observers that run after its commit.

A transaction may be run again or rolled back, so observers must not see its changes while it runs. `RecordingTx` keeps
the changes with the transaction; the store passes them on once the commit is acknowledged. After an unknown commit they
are dropped: a counter that misses one change is better than one that counts a change that never happened.
"""

from collections.abc import Callable

import msgspec

from runyard.db.contract import Row, Statement, Tx
from runyard.dispatch.machine.values import JobChange, JobState


class JobTransition(msgspec.Struct, frozen=True, kw_only=True):
    """A committed change of one job. Times are seconds before now; None: the job has not reached that state."""

    change: JobChange
    pool: str  # of the slot that holds or held the job; empty if there is none
    labels: tuple[str, ...]
    queued: float
    claimed: float | None = None
    started: float | None = None
    swapped: bool = False  # it runs on a runner that was not meant for it

    @property
    def requeued(self) -> bool:
        """Whether the job was bound to a runner and waits again; it is not offered before it is read at GitHub."""
        return self.change.source is JobState.BOUND and self.change.job.state is JobState.QUEUED


Observer = Callable[[JobTransition], None]


class RecordingTx:
    """A transaction that records its changes of jobs."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.job_transitions: list[JobTransition] = []

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        return await self._tx.all(sql, **params)

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        return await self._tx.one(sql, **params)

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        return await self._tx.run(sql, **params)

    async def several(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in order and return the rows of each."""
        return await self._tx.several(*statements)

    async def read(self, *statements: Statement) -> list[list[Row]]:
        """Run statements that only read."""
        return await self._tx.read(*statements)

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        """Run the last statements and commit."""
        return await self._tx.finish(*statements, alone=alone)
