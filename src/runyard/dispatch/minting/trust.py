"""Finds out whether the job of a slot is trusted: from its event, or by reading its run at GitHub.

A replica reads a run once, also if many of its jobs get their runners at the same time. Nothing here is raised: what
cannot be read is not trusted, is stored as such, and is read again when the job gets another runner.
"""

import asyncio

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.origin import read_facts
from runyard.dispatch.plans.trust import decide, trust_of
from runyard.dispatch.store import SQL
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import repository
from runyard.github.views import RunView
from runyard.telemetry.log import Logger
from runyard.wire.reasons import logged
from runyard.wire.reasons_dispatch import Trust

_RUNS = 1000  # runs that are remembered; the oldest is dropped first, and read again if it has another job


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a job (0: its number is not known), and whether the job is trusted."""

    account_id: int = 0
    trust: Trust = Trust.UNKNOWN


class _Run:
    """A run that was read, or is being read."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.view: RunView | None = None


class JobTrust:
    """Reads the trust of jobs; `within` bounds the read at GitHub, in seconds."""

    def __init__(
        self, database: Database, *, github: GitHub, clock: Clock, log: Logger, within: float
    ) -> None:
        self._database = database
        self._github = github
        self._clock = clock
        self._log = log
        self._within = within
        self._runs: dict[tuple[str, int], _Run] = {}

    async def of(self, slot: Slot) -> Origin:
        """Return the account and the trust of the job that the slot is intended for, and store both."""
        known = Origin()
        try:
            row = await self._row(slot.intended_job)
            if row is None:
                return known
            known = Origin(account_id=row["account_id"], trust=trust_of(row["trust"]))
            if known.account_id and known.trust is not Trust.UNKNOWN:
                return known
            known = await self._with_run(known, row)
            await self._record(slot, known, before=row["trust"])
        except DatabaseError as error:
            self._warn(slot.intended_job, known, error)
        return known

    async def _with_run(self, known: Origin, row: Row) -> Origin:
        """Add what the run says; unchanged if GitHub does not answer."""
        if not row["run_id"]:
            return known
        try:
            async with self._clock.timeout(self._within):
                run = await self._run(row)
        except (GitHubError, TimeoutError) as error:
            self._warn(row["job_id"], known, error)
            return known
        return known if run is None else _merged(known, row, run)

    def _warn(self, job_id: int | None, known: Origin, error: Exception) -> None:
        self._log.warning(
            "origin of the job's code not read or not stored",
            job=job_id,
            **logged(known.trust.because()),
            error=str(error),
        )

    async def _row(self, job_id: int | None) -> Row | None:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.job_trust, job_id=job_id)

        return await self._database.transact(work, name="job trust")

    async def _run(self, row: Row) -> RunView | None:
        run = self._runs.setdefault((row["repository"], row["run_id"]), _Run())
        while len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        async with run.lock:
            if run.view is None:
                scope = repository(row["repository"], installation_id=row["installation_id"])
                run.view = await self._github.get_run(scope, row["run_id"])
            return run.view

    async def _record(self, slot: Slot, read: Origin, *, before: str) -> None:
        async def work(tx: Tx) -> None:
            await tx.run(
                SQL.job_trust_record,
                tenant=slot.tenant,
                job_id=slot.intended_job,
                trust=read.trust.value,
                before=before,
                account_id=read.account_id,
            )

        await self._database.transact(work, name="job trust recorded")


def _merged(known: Origin, row: Row, run: RunView) -> Origin:
    decided = decide(read_facts(run), repository=row["repository"])
    owner = None if run.repository is None else run.repository.owner
    return Origin(
        account_id=known.account_id or (0 if owner is None else max(0, owner.id)),
        trust=decided if known.trust is Trust.UNKNOWN else known.trust,
    )
