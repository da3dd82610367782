"""GitHub's own log of deliveries against our table of applied ones.

A delivery can fail, be dropped on the way, or be acknowledged by a database that then loses it. In each case
its guid is missing in our table, and the event is fetched and applied as if it had just arrived. What GitHub
lists and cannot show is asked for again by webhook, a few times; where webhooks cannot arrive it is tried a few
times, with pauses, and then left.

Invariants:
- Whatever is made up for goes through `Intake`, so doing it twice, or late, or in any order, is harmless.
- A delivery that fails for a reason of its own is noted and passed over; the others are made up for.
"""

from collections.abc import Iterable

from runyard.db.contract import CommitUnknown, Database, DatabaseError, Row, Tx, Unavailable
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.store import SQL
from runyard.github import errors
from runyard.github.api import GitHub
from runyard.github.views import DeliveryView, FullDelivery
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_TRIES = 3  # for one delivery that fails
_PAUSE = 60.0  # seconds after the first of them, twice that after the second: a server's bad minute is no verdict


class Comparer:
    """Finds deliveries that were never applied here, and applies them."""

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
        self._redeliver = redeliver  # webhooks can arrive here at all

    async def make_up(self, attempts: Iterable[DeliveryView], *, purpose: str) -> int:
        """Make up for what is missing of these, oldest first; returns how many were missing."""
        newest: dict[str, DeliveryView] = {}
        for attempt in attempts:
            held = newest.get(attempt.guid)
            if attempt.event == "workflow_job" and (held is None or attempt.id > held.id):
                newest[attempt.guid] = attempt
        missing = await self._missing(newest)
        for attempt in missing:
            try:
                await self._one(attempt, purpose)
            except (Unavailable, CommitUnknown):
                raise
            except DatabaseError as error:
                # One event that the database refuses must not keep the others from being made up for.
                tries = await self._note(attempt)
                self._log.error(
                    "delivery refused", guid=attempt.guid, tries=tries, error=str(error)
                )
        return len(missing)

    async def _missing(self, newest: dict[str, DeliveryView]) -> list[DeliveryView]:
        # Where GitHub can send again the log itself brings a new attempt, and the audit soon passes the old one.
        limits = {"most": 0, "pause": 0.0} if self._redeliver else {"most": _TRIES, "pause": _PAUSE}

        async def ask(tx: Tx) -> list[Row]:
            return await tx.all(SQL.delivery_missing, guids=list(newest), **limits)

        if not newest:
            return []
        rows = await self._database.transact(ask, name="deliveries missing")
        missing = [newest[row["guid"]] for row in rows]
        return sorted(missing, key=lambda attempt: attempt.id)

    async def _one(self, attempt: DeliveryView, purpose: str) -> None:
        full = await self._fetch(attempt, purpose)
        if full is None:
            return
        came = await self._intake.apply(guid=attempt.guid, body=full.payload)
        if purpose == "audit":  # in pull mode this is the way that every delivery goes
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
            self._log.warning("lost delivery made up for", guid=attempt.guid, outcome=came.outcome)

    async def _fetch(self, attempt: DeliveryView, purpose: str) -> FullDelivery | None:
        """What was sent; nothing if GitHub cannot show it (any more)."""
        try:
            full = await self._github.delivery(attempt.id, purpose=purpose)
        except (errors.Unreadable, errors.ServerFailed, errors.Rejected) as error:
            await self._ask_again(attempt, str(error))
            return None
        if full is None:
            self._log.warning("delivery forgotten by GitHub", guid=attempt.guid)
        return full

    async def _ask_again(self, attempt: DeliveryView, why: str) -> None:
        """Have GitHub send it once more; it then arrives as a webhook."""
        tries = await self._note(attempt)
        if not self._redeliver:
            self._log.error("delivery cannot be read", guid=attempt.guid, tries=tries, error=why)
            return
        if tries > _TRIES:
            return
        sent = await self._github.redeliver(attempt.id)
        self._meter.inc(
            RUNYARD_ACTIONS_TOTAL,
            room="dispatch",
            action="redeliver",
            outcome="asked" if sent else "forgotten",
        )
        self._log.warning("redelivery asked for", guid=attempt.guid, asked=tries, why=why)

    async def _note(self, attempt: DeliveryView) -> int:
        """Remember that a delivery failed; returns how often that makes."""

        async def note(tx: Tx) -> int:
            row = await tx.one(SQL.redelivery_note, guid=attempt.guid)
            return 0 if row is None else int(row["asked"])

        return await self._database.transact(note, name="redelivery")
