"""Waits until the database has this release's schema, or migrates it."""

import asyncio
from collections.abc import Callable

from runyard.clock import Clock
from runyard.db import migrate
from runyard.db.contract import DatabaseError, Unavailable
from runyard.db.owner import owner_of
from runyard.telemetry.log import Logger

_CHECK_EVERY = 1.0


class Schema:
    """Migrates the tables of this release, or waits for them."""

    def __init__(self, conninfo: str, *, apply: bool, clock: Clock, log: Logger) -> None:
        self._conninfo = conninfo
        self._apply = apply
        self._clock = clock
        self._log = log
        self._reported = ""

    async def wait(self, report: Callable[[str], None]) -> None:
        """Return when the tables exist; report what is missing until then."""
        while missing := await asyncio.to_thread(self._missing):
            report(missing)
            if missing != self._reported:
                self._log.warning("waiting", reason=missing)
            self._reported = missing
            await self._clock.sleep(_CHECK_EVERY)

    def _missing(self) -> str:
        try:
            if migrate.foreign(self._conninfo):
                raise DatabaseError(
                    "it contains tables that are not runyard's. Use an empty database, or runyard's own"
                )
            if self._apply:
                for name in migrate.apply(self._conninfo, phase="pre"):
                    self._log.info("migrated", migration=name)
            pending = migrate.pending(self._conninfo, phase="pre")
            if not pending and (machine := owner_of(self._conninfo)) is not None:
                raise DatabaseError(
                    f"it belongs to `runyard up` with its state in {machine.place}."
                    " Use another database"
                )
        except Unavailable as error:
            return f"Postgres does not respond: {' '.join(str(error).split())}"
        if not pending:
            return ""
        return f"the schema lacks {', '.join(pending)}: run `runyard migrate pre`, or start with --migrate"
