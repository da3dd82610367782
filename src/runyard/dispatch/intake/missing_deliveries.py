"""Finds deliveries in GitHub's log that are missing in the table of applied ones, and applies them.

A delivery can fail, get lost, or be acknowledged by a database that then loses it. In each case its guid is missing in
the table, and the event is fetched and applied as if it had just arrived. If GitHub lists a delivery but cannot return
it, a redelivery is requested a few times; in pull mode it is fetched a few times, with pauses, and then skipped.

Invariants:
- Events are applied by `Intake`, so applying one twice, late or in another order is harmless.
- A delivery that fails for a reason of its own is recorded and skipped; the others are applied.
"""

from collections.abc import Iterable

from runyard.db.contract import CommitUnknown, Database, DatabaseError, Row, Tx, Unavailable
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.store import SQL
from runyard.github import errors
from runyard.github.client import GitHub
from runyard.github.views import DeliveryView, FullDelivery
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Component

_TRIES = 3  # for one delivery that fails
_PAUSE = 60.0  # seconds after the first failure, twice that after the second: it may be temporary


class MissingDeliveries:
    """Finds deliveries that were never applied, and applies them."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        intake: Intake,
        meter: Meter,
        log: Logger,
        redeliver: bool,
    ) -> None:
        self._github = github
        self._database = database
        self._intake = intake
        self._meter = meter
        self._log = log
        self._redeliver = redeliver  # webhooks can reach this server

    async def apply_missing(self, attempts: Iterable[DeliveryView], *, purpose: str) -> int:
        """Apply those of the attempts that are missing, oldest first; returns how many were missing."""
        newest: dict[str, DeliveryView] = {}
        for attempt in attempts:
            held = newest.get(attempt.guid)
            if attempt.event == "workflow_job" and (held is None or attempt.id > held.id):
                newest[attempt.guid] = attempt
        missing = await self._missing(newest)
        for attempt in missing:
            try:
                await self._apply_one(attempt, purpose)
            except (Unavailable, CommitUnknown):
                raise
            except DatabaseError as error:
                # One event that the database rejects must not block the others.
                tries = await self._record_failure(attempt)
                self._log.error(
                    "delivery refused", guid=attempt.guid, tries=tries, error=str(error)
                )
        return len(missing)

    async def _missing(self, newest: dict[str, DeliveryView]) -> list[DeliveryView]:
        # A redelivery appears in GitHub's log as a new attempt, and the audit soon passes the old one.
        limits = {"most": 0, "pause": 0.0} if self._redeliver else {"most": _TRIES, "pause": _PAUSE}

        async def read(tx: Tx) -> list[Row]:
            return await tx.all(SQL.delivery_missing, guids=list(newest), **limits)

        if not newest:
            return []
        rows = await self._database.transact(read, name="deliveries missing")
        missing = [newest[row["guid"]] for row in rows]
        return sorted(missing, key=lambda attempt: attempt.id)

    async def _apply_one(self, attempt: DeliveryView, purpose: str) -> None:
        full = await self._fetch(attempt, purpose)
        if full is None:
            return
        result = await self._intake.apply(guid=attempt.guid, body=full.payload)
        outcome = result.outcome.value
        if not self._redeliver:  # in pull mode every delivery is applied this way; none was lost
            self._log.debug("delivery applied", guid=attempt.guid, outcome=outcome, by=purpose)
            return
        self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
        self._log.warning("lost delivery applied", guid=attempt.guid, outcome=outcome)

    async def _fetch(self, attempt: DeliveryView, purpose: str) -> FullDelivery | None:
        """Return the full delivery; None if GitHub cannot return it."""
        try:
            full = await self._github.delivery(attempt.id, purpose=purpose)
        except (errors.Unreadable, errors.ServerFailed, errors.Rejected) as error:
            await self._request_redelivery(attempt, str(error))
            return None
        if full is None:
            self._log.warning("delivery is no longer stored at GitHub", guid=attempt.guid)
        return full

    async def _request_redelivery(self, attempt: DeliveryView, why: str) -> None:
        """Ask GitHub to send the delivery again; it then arrives as a webhook."""
        tries = await self._record_failure(attempt)
        if not self._redeliver:
            self._log.error("delivery cannot be read", guid=attempt.guid, tries=tries, error=why)
            return
        if tries > _TRIES:
            return
        sent = await self._github.redeliver(attempt.id)
        self._meter.inc(
            RUNYARD_ACTIONS_TOTAL,
            component=Component.SERVER,
            action="redeliver",
            outcome="requested" if sent else "no-longer-stored",
        )
        self._log.warning("redelivery requested", guid=attempt.guid, tries=tries, why=why)

    async def _record_failure(self, attempt: DeliveryView) -> int:
        """Record that a delivery failed; returns how often it has."""

        async def record(tx: Tx) -> int:
            row = await tx.one(SQL.redelivery_record, guid=attempt.guid)
            return 0 if row is None else int(row["asked"])

        return await self._database.transact(record, name="redelivery")
