"""The machine's own Postgres: started with it, started again when it dies, unless a URL names another one."""

import asyncio
from collections.abc import Callable

from runyard.clock import Clock
from runyard.db import migrate
from runyard.db.contract import DatabaseError
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.server import EmbeddedPostgres
from runyard.embedded.up.layout import Layout
from runyard.telemetry.log import Logger

DATABASE = "runyard"
_LOOK_EVERY = 1.0
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class BadDatabase(Exception):
    """The database that was given cannot be used; the message says why and what to do."""


class MachineDatabase:
    """`start` it, keep `watch` running, `stop` it. `given` names a database that is not ours to run."""

    def __init__(
        self,
        layout: Layout,
        *,
        clock: Clock,
        log: Logger,
        given: str = "",
        durable: bool = True,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._given = given
        self._clock = clock
        self._log = log
        self._tell = tell
        self._server = EmbeddedPostgres(
            layout.postgres, durable=durable, database=DATABASE, max_connections=40
        )
        self._busy = asyncio.Lock()  # the server is started or stopped by one at a time

    @property
    def notice(self) -> str:
        """For a person; empty when nothing is odd."""
        return self._server.notice

    @property
    def pid(self) -> int:
        """The server's process, 0 if it is not ours."""
        return self._server.pid

    async def start(self) -> str:
        """How to connect."""
        if self._given:
            self._tell(
                "the database is the one that DATABASE_URL names; unset it for one of our own"
            )
            await asyncio.to_thread(_check, self._given)
            return self._given
        async with self._busy:
            return await asyncio.to_thread(self._server.start)

    async def watch(self) -> None:
        """Start it again whenever it has died. The address and the password stay the same."""
        pause = _PAUSE
        while not self._given:
            await self._clock.sleep(_LOOK_EVERY)
            if self._server.running:
                pause = _PAUSE
                continue
            self._log.warning("postgres died")
            self._tell("postgres died; it is started again")
            try:
                async with self._busy:
                    await asyncio.to_thread(self._server.stop)
                    await asyncio.to_thread(self._server.start)
            except EmbeddedPostgresError as error:
                self._tell(f"postgres does not start: {error}")
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def stop(self) -> None:
        """End it, with everything on disk."""
        if not self._given:
            async with self._busy:
                await asyncio.to_thread(self._server.stop)


def _check(conninfo: str) -> None:
    """Refuse a database that does not answer, or that is somebody else's."""
    try:
        foreign = migrate.foreign(conninfo)
    except DatabaseError as error:
        raise BadDatabase(
            f"the database that DATABASE_URL names cannot be used: {error}."
            " Start it, correct the URL, or unset it"
        ) from error
    if foreign:
        raise BadDatabase(
            "the database that DATABASE_URL names holds tables that are not runyard's."
            " Name an empty database, or unset it for one of our own"
        )
