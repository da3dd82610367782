"""Finds out whether a job is trusted: from its event, or by reading its run at GitHub.

A replica reads a run once, also if many of its jobs get their runners at the same time. Nothing here is raised: what
cannot be read is not trusted, and is read again when the job gets another runner.
"""

import asyncio

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Row
from runyard.dispatch.origin import read_facts
from runyard.dispatch.plans.trust import decide, trust_of
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

    def __init__(self, *, github: GitHub, clock: Clock, log: Logger, within: float) -> None:
        self._github = github
        self._clock = clock
        self._log = log
        self._within = within
        self._runs: dict[tuple[str, int], _Run] = {}

    async def of(self, job: Row) -> Origin:
        """Return the account and the trust of a job: as stored in its row, or else as its run at GitHub says."""
        known = Origin(account_id=job["account_id"], trust=trust_of(job["trust"]))
        if (known.account_id and known.trust is not Trust.UNKNOWN) or not job["run_id"]:
            return known
        try:
            async with self._clock.timeout(self._within):
                run = await self._run(job)
        except (GitHubError, TimeoutError) as error:
            self._log.warning(
                "origin of the job's code not read",
                job=job["job_id"],
                **logged(known.trust.because()),
                error=str(error),
            )
            return known
        return known if run is None else _merged(known, job, run)

    async def _run(self, job: Row) -> RunView | None:
        run = self._runs.setdefault((job["repository"], job["run_id"]), _Run())
        while len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        async with run.lock:
            if run.view is None:
                scope = repository(job["repository"], installation_id=job["installation_id"])
                run.view = await self._github.get_run(scope, job["run_id"])
            return run.view


def _merged(known: Origin, job: Row, run: RunView) -> Origin:
    decided = decide(read_facts(run), repository=job["repository"])
    owner = None if run.repository is None else run.repository.owner
    return Origin(
        account_id=known.account_id or (0 if owner is None else max(0, owner.id)),
        trust=decided if known.trust is Trust.UNKNOWN else known.trust,
    )
