"""Audits GitHub's deliveries: applies those that GitHub has sent and that are missing here, for up to three days back.

GitHub lists deliveries newest first and keeps them for three days. Each audit opens a *gap*, the period since the last
audit, and compares the open gaps with the table of deliveries, a limited number of pages per step: one half of them
from the newest gap, the other from the oldest. The position in each gap is stored with GitHub's cursor, so any replica
can continue. So the deliveries of a long outage are recovered without delaying new ones.

A recent delivery that GitHub counts as delivered may still be in flight here and is skipped for a short time. A failed
one is not sent again, so it is applied at once. So events that a crash interrupts are delayed until the next audit at
most, and a replica starts with one.

Each gap begins a little before the end of the last one, because recent deliveries were skipped and GitHub lists
attempts only when they end. At 20 s between audits each delivery is listed four times.
"""

import msgspec

from runyard.db.contract import Row, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.intake.missing_deliveries import MissingDeliveries
from runyard.dispatch.intake.queued_jobs import QueuedJobs
from runyard.dispatch.store import SQL
from runyard.dispatch.task_lease import TaskLease
from runyard.github import errors
from runyard.github.client import GitHub
from runyard.github.views import DeliveryView

_REACHED = "deliveries"
# GitHub waits up to 10 s for a response and lists the attempt after that; clocks differ.
_LISTED_LATE = 30.0
FIRST_WINDOW = 86400.0  # GitHub fails a job that no runner took within a day


class _Gap(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    since: float
    page: str


class Audit:
    """Finds and applies lost events; then lists queued jobs, for those without an event."""

    def __init__(
        self,
        deps: Deps,
        *,
        github: GitHub,
        missing_deliveries: MissingDeliveries,
        queued: QueuedJobs,
        leases: TaskLease,
    ) -> None:
        self._github = github
        self._database = deps.database
        self._missing_deliveries = missing_deliveries
        self._queued = queued
        self._leases = leases
        self._clock = deps.clock
        self._log = deps.log
        self._settings = deps.settings

    async def step(self) -> None:
        """Audit a limited number of pages, if this replica holds the lease."""
        # One and a half intervals: the holder renews it in time, and a dead replica's lease expires soon.
        if not await self._leases.acquire("audit", every=1.5 * self._settings.audit_every):
            return
        failed: errors.GitHubError | None = None
        try:
            await self._deliveries()
        except errors.GitHubError as error:
            unneeded = isinstance(error, errors.NoHook | errors.NotAllowed)
            if unneeded and self._github.only is not None:
                # A token may have no webhook, or no permission to read webhooks: then only jobs are listed.
                self._log.info("deliveries cannot be listed; only jobs are", error=str(error))
            else:
                failed = error
        await self._queued.step()  # calls other endpoints, with another rate budget
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
        since = began - FIRST_WINDOW if row is None else float(row["value"])
        await tx.run(SQL.gap_open, since=since, until=began)
        reached = began - self._settings.audit_settle - _LISTED_LATE
        await tx.run(SQL.cursor_write, name=_REACHED, value=str(reached))
        await tx.run(SQL.redeliveries_prune)

    async def _page(self, gap: _Gap, began: float) -> None:
        """Apply what is missing of one page of a gap, then store the position."""
        try:
            page = await self._github.deliveries(cursor=gap.page)
        except errors.Rejected:
            if not gap.page:
                raise
            await self._move(
                gap, ""
            )  # GitHub does not know the cursor any more: start from the top
            return
        settle = self._settings.audit_settle if self._settings.intake == "webhook" else 0.0
        moments = moments_of(page.items)
        settled = [
            item
            for item, moment in moments
            if gap.since <= moment and (moment <= began - settle or not item.succeeded)
        ]
        await self._missing_deliveries.apply_missing(settled, purpose="audit")
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
    """Return deliveries with the times of their attempts; raises `Unreadable` if one is invalid."""
    try:
        return [(item, item.moment) for item in items]
    except ValueError:
        raise errors.Unreadable("deliveries: a delivered_at that is not a time") from None
