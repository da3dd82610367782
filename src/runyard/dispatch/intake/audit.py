"""The audit: whatever GitHub has sent and we have not applied is made up for, for days back.

GitHub lists deliveries newest first and keeps them for three days. Between two audits lies a stretch of that
list. Each audit opens the stretch since the last one and reads on where it stopped, a bounded number of pages a
step: one half of them from the newest stretch, the other from the oldest. What is left is remembered with GitHub's
cursor and gone on with by the next step, whichever replica makes it. So an outage of hours is made up for when it
ends, and never holds up what is new.

A young delivery that GitHub counts as delivered may still be on its way through us, and is left alone for a moment. One
that has failed is over: nobody brings it again, so it is made up for at once. A crash thus costs the events that it
cut off no more than the time until the next audit, and a replica that starts begins with one.

Each stretch begins a little before the end of the last one: there are those that were left alone, and attempts appear
in the list when they end. At 20 s between audits each delivery is listed four times.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.intake.comparing import Comparer
from runyard.dispatch.intake.queued import QueuedJobs
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.dispatch.turns import Turns
from runyard.github import errors
from runyard.github.api import GitHub
from runyard.github.views import DeliveryView
from runyard.telemetry.log import Logger

_REACHED = "deliveries"
# GitHub waits 10 s for an answer, and lists the attempt then; clocks differ.
_LISTED_LATE = 30.0
FIRST_LOOK = 86400.0  # GitHub fails a job that no runner took within a day


class _Gap(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    since: float
    page: str


class Audit:
    """Finds events that were lost and applies them; then looks for jobs that no event told of."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        comparer: Comparer,
        queued: QueuedJobs,
        turns: Turns,
        clock: Clock,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._github = github
        self._database = database
        self._comparer = comparer
        self._queued = queued
        self._turns = turns
        self._clock = clock
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """One bounded piece of the audit, if it is this replica's turn."""
        # Half as long again as the loop takes: a dead replica's turn is soon over, a living one keeps its own.
        if not await self._turns.mine("audit", every=1.5 * self._settings.audit_every):
            return
        failed: errors.GitHubError | None = None
        try:
            await self._deliveries()
        except errors.GitHubError as error:
            unneeded = isinstance(error, errors.NoHook | errors.NotAllowed)
            if unneeded and self._github.only is not None:
                # A token's owner need not have a webhook, nor the right to look at webhooks: then jobs are listed.
                self._log.info("no deliveries to audit", why=str(error))
            else:
                failed = error
        await self._queued.step()  # asks other endpoints, from another budget
        if failed is not None:
            raise failed

    async def _deliveries(self) -> None:
        began = self._clock.now()
        await self._database.transact(lambda tx: self._open(tx, began), name="audit from")
        pages = self._settings.audit_pages
        for number in range(pages):
            gap = await self._next(newest=2 * number < pages)
            if gap is None:
                return
            await self._page(gap, began)
        self._log.warning("the audit has not caught up yet", pages=pages)

    async def _next(self, *, newest: bool) -> _Gap | None:
        async def choose(tx: Tx) -> Row | None:
            return await tx.one(SQL.gap_next, newest=1 if newest else -1)

        row = await self._database.transact(choose, name="audit next")
        return None if row is None else msgspec.convert(row, _Gap)

    async def _open(self, tx: Tx, began: float) -> None:
        row = await tx.one(SQL.cursor_read, name=_REACHED)
        since = began - FIRST_LOOK if row is None else float(row["value"])
        await tx.run(SQL.gap_open, since=since, until=began)
        reached = began - self._settings.audit_settle - _LISTED_LATE
        await tx.run(SQL.cursor_write, name=_REACHED, value=str(reached))
        await tx.run(SQL.redelivery_forget)

    async def _page(self, gap: _Gap, began: float) -> None:
        """Compare one page of a stretch, and only then remember that it was."""
        try:
            page = await self._github.deliveries(cursor=gap.page)
        except errors.Rejected:
            if not gap.page:
                raise
            await self._move(gap, "")  # a cursor that GitHub does not know any more: from the top
            return
        settle = self._settings.audit_settle if self._settings.intake == "webhook" else 0.0
        moments = moments_of(page.items)
        settled = [
            item
            for item, moment in moments
            if gap.since <= moment and (moment <= began - settle or not item.succeeded)
        ]
        await self._comparer.make_up(settled, purpose="audit")
        over = not page.next_cursor or any(moment < gap.since for _, moment in moments)
        if over:
            await self._close(gap)
        else:
            await self._move(gap, page.next_cursor)

    async def _move(self, gap: _Gap, page: str) -> None:
        async def move(tx: Tx) -> int:
            return await tx.run(SQL.gap_move, id=gap.id, page=page)

        await self._database.transact(move, name="audit reached")

    async def _close(self, gap: _Gap) -> None:
        async def close(tx: Tx) -> int:
            return await tx.run(SQL.gap_close, id=gap.id)

        await self._database.transact(close, name="audit done")


def moments_of(items: tuple[DeliveryView, ...]) -> list[tuple[DeliveryView, float]]:
    """Deliveries with the times of their attempts; raises `Unreadable` if one has none."""
    try:
        return [(item, item.moment) for item in items]
    except ValueError:
        raise errors.Unreadable("deliveries: an instant that is none") from None
