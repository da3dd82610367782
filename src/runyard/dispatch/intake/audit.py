"""The audit: GitHub's own log of deliveries against our table of applied ones.

A delivery can fail, be dropped on the way, or be acknowledged by a database that then loses it. In
each case the guid is missing in our table, and the event is fetched and applied as if it had just
arrived. The audit remembers how far it has come, so an outage of hours is made up for when it ends;
it looks back a little each time, because attempts appear in the log when they end.
"""

from runyard.clock import Clock
from runyard.db.contract import CommitUnknown, Database, DatabaseError, Row, Tx, Unavailable
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.github.api import GitHub
from runyard.github.views import DeliveryView
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_CURSOR = "deliveries"
_FIRST_LOOK = 86400.0


class Audit:
    """Finds events that were lost and applies them."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        intake: Intake,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._github = github
        self._database = database
        self._intake = intake
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """One comparison, from a little before the point that the last one reached."""
        began = self._clock.now()
        since = await self._database.transact(self._since, name="audit from")
        attempts, complete = await self._github.deliveries_since(since)
        settled = [each for each in attempts if each.moment <= began - self._settings.audit_settle]
        newest = {each.guid: each for each in settled if each.event == "workflow_job"}
        for attempt in await self._missing(newest):
            try:
                await self._make_up(attempt)
            except (Unavailable, CommitUnknown):
                raise
            except DatabaseError as error:
                # One event that the database refuses must not keep the others from being made up for.
                self._log.error("delivery refused", guid=attempt.guid, error=str(error))
        if not complete:
            # The oldest are still unseen: stay where we are, visibly, rather than pass them over.
            self._log.error("more deliveries than an audit can read", since=since)
            return
        reached = str(began - self._settings.audit_overlap)

        async def remember(tx: Tx) -> int:
            return await tx.run(SQL.cursor_write, name=_CURSOR, value=reached)

        await self._database.transact(remember, name="audit reached")

    async def _since(self, tx: Tx) -> float:
        row = await tx.one(SQL.cursor_read, name=_CURSOR)
        return self._clock.now() - _FIRST_LOOK if row is None else float(row["value"])

    async def _missing(self, newest: dict[str, DeliveryView]) -> list[DeliveryView]:
        async def ask(tx: Tx) -> list[Row]:
            return await tx.all(SQL.delivery_missing, guids=list(newest))

        if not newest:
            return []
        rows = await self._database.transact(ask, name="audit")
        missing = [newest[row["guid"]] for row in rows]
        return sorted(missing, key=lambda attempt: attempt.id)

    async def _make_up(self, attempt: DeliveryView) -> None:
        full = await self._github.delivery(attempt.id)
        if full is None:
            return
        came = await self._intake.apply(guid=attempt.guid, body=full.payload)
        self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
        self._log.warning("lost delivery made up for", guid=attempt.guid, outcome=came.outcome)
