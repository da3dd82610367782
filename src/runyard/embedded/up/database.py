"""The machine's own Postgres: started with it, started again when it dies, unless a URL names another one."""

import asyncio
from collections.abc import Callable, Mapping

from runyard.clock import Clock
from runyard.embedded.postgres.server import EmbeddedPostgres
from runyard.embedded.up.layout import Layout
from runyard.telemetry.log import Logger

DATABASE = "runyard"
_LOOK_EVERY = 1.0
_PAUSE = 1.0


class MachineDatabase:
    """`start` it, keep `watch` running, `stop` it."""

    def __init__(
        self,
        layout: Layout,
        *,
        clock: Clock,
        log: Logger,
        environ: Mapping[str, str],
        durable: bool = True,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._given = environ.get("DATABASE_URL", "")
        self._clock = clock
        self._log = log
        self._tell = tell
        self._server = EmbeddedPostgres(
            layout.postgres, durable=durable, database=DATABASE, max_connections=40
        )
        self.restarts = 0

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
            return self._given
        return await asyncio.to_thread(self._server.start)

    async def watch(self) -> None:
        """Start it again whenever it has died. The address and the password stay the same."""
        while not self._given:
            await self._clock.sleep(_LOOK_EVERY)
            if self._server.running:
                continue
            self._log.warning("postgres died")
            self._tell("postgres died; it is started again")
            self.restarts += 1
            await asyncio.to_thread(self._server.stop)
            await asyncio.to_thread(self._server.start)
            await self._clock.sleep(_PAUSE)

    async def stop(self) -> None:
        """End it, with everything on disk."""
        if not self._given:
            await asyncio.to_thread(self._server.stop)
