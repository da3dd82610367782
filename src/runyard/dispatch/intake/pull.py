"""Pull mode: GitHub's log of deliveries is read every few seconds, for who has no address that GitHub could reach.

One replica at a time reads the newest page and goes back until a page has nothing new; how far at most is bounded,
and the audit finds what lies further back. A job waits for a pull at most, and everything else is as with
webhooks: the same events, applied the same way.
"""

from runyard.clock import Clock
from runyard.dispatch.intake.audit import FIRST_LOOK, moments_of
from runyard.dispatch.intake.comparing import Comparer
from runyard.dispatch.intake.queued import QueuedJobs
from runyard.dispatch.settings import Settings
from runyard.dispatch.turns import Turns
from runyard.github import errors
from runyard.github.api import GitHub

_TURN = 10.0  # seconds after which another replica takes over, at least


class Puller:
    """Reads what GitHub has tried to send."""

    def __init__(
        self,
        *,
        github: GitHub,
        comparer: Comparer,
        queued: QueuedJobs,
        turns: Turns,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._github = github
        self._comparer = comparer
        self._queued = queued
        self._turns = turns
        self._clock = clock
        self._settings = settings

    async def step(self) -> None:
        """One look, if it is this replica's turn."""
        if not await self._turns.mine("pull", every=max(_TURN, 3 * self._settings.pull_every)):
            return
        try:
            await self._deliveries()
        except (errors.NoHook, errors.NotAllowed):
            if self._github.only is None:
                raise
            await self._queued.follow(self._github.only)

    async def _deliveries(self) -> None:
        cursor, since = "", self._clock.now() - FIRST_LOOK
        for _ in range(self._settings.pull_pages):
            page = await self._github.deliveries(cursor=cursor, purpose="pull")
            recent = [item for item, moment in moments_of(page.items) if moment >= since]
            missing = await self._comparer.make_up(recent, purpose="pull")
            cursor = page.next_cursor
            if not missing or not cursor or len(recent) < len(page.items):
                return
