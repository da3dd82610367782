"""Pulls deliveries: reads GitHub's log every few seconds, for servers that GitHub cannot reach.

One replica at a time reads the newest page and older ones until a page has nothing new. The number of pages is limited,
and the audit finds older deliveries. A job is delayed by one interval at most; otherwise the events are the same as
with webhooks and applied in the same way.
"""

from runyard.clock import Clock
from runyard.dispatch.intake.audit import FIRST_WINDOW, moments_of
from runyard.dispatch.intake.missing_deliveries import MissingDeliveries
from runyard.dispatch.intake.queued_jobs import QueuedJobs
from runyard.dispatch.settings import Settings
from runyard.dispatch.task_lease import TaskLease
from runyard.github import errors
from runyard.github.client import GitHub

_LEASE = 10.0  # the shortest lease, in seconds: after it another replica takes over


class Puller:
    """Reads GitHub's log of deliveries."""

    def __init__(
        self,
        *,
        github: GitHub,
        missing_deliveries: MissingDeliveries,
        queued: QueuedJobs,
        leases: TaskLease,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._github = github
        self._missing_deliveries = missing_deliveries
        self._queued = queued
        self._leases = leases
        self._clock = clock
        self._settings = settings

    async def step(self) -> None:
        """Pull once, if this replica holds the lease."""
        if not await self._leases.acquire("pull", every=max(_LEASE, 3 * self._settings.pull_every)):
            return
        try:
            await self._deliveries()
        except (errors.NoHook, errors.NotAllowed):
            if self._github.only is None:
                raise
            await self._queued.sync_repository(self._github.only)

    async def _deliveries(self) -> None:
        cursor, since = "", self._clock.now() - FIRST_WINDOW
        for _ in range(self._settings.pull_pages):
            page = await self._github.deliveries(cursor=cursor, purpose="pull")
            recent = [item for item, moment in moments_of(page.items) if moment >= since]
            missing = await self._missing_deliveries.apply_missing(recent, purpose="pull")
            cursor = page.next_cursor
            if not missing or not cursor or len(recent) < len(page.items):
                return
