"""The machine's own Postgres: started with it, started again when it dies, unless a URL names another one.

A database that a URL names is not ours to run: it is checked at the start, it must be empty or this machine's own,
and when it goes away later the parts wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from runyard.clock import Clock
from runyard.db import migrate
from runyard.db.contract import DatabaseError
from runyard.db.owner import Owner, claim
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.server import EmbeddedPostgres
from runyard.embedded.up.ending import Ending, patiently
from runyard.embedded.up.layout import Layout
from runyard.telemetry.log import Logger

T = TypeVar("T")
DATABASE = "runyard"
STOP_WITHIN = 1.5  # then as after a power cut, which costs the next start a moment
_LOOK_EVERY = 1.0
_GIVE_AWAY = "DELETE FROM machine"
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
        machine: Owner,
        given: str = "",
        durable: bool = True,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._given = given
        self._machine = machine
        self._clock = clock
        self._log = log
        self._tell = tell
        self._server = EmbeddedPostgres(
            layout.postgres, durable=durable, database=DATABASE, max_connections=40
        )
        self._busy = asyncio.Lock()  # the server is started or stopped by one at a time
        self._starting = False
        self._over = False

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
            await asyncio.to_thread(_check, self._given, self._machine)
            return self._given
        return await self._start_server()

    async def watch(self) -> None:
        """Start it again whenever it has died. The address and the password stay the same."""
        pause = _PAUSE
        while not self._given and not self._over:
            await self._clock.sleep(_LOOK_EVERY)
            if self._server.running or self._over:
                pause = _PAUSE
                continue
            self._log.warning("postgres died")
            self._tell("postgres died; it is started again")
            try:
                await self._start_server()
                self._tell(f"postgres is back (process {self._server.pid})")
            except (EmbeddedPostgresError, OSError) as error:
                self._tell(f"postgres does not start: {error}")
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def stop(self, ending: Ending) -> None:
        """End it, with everything on disk; in a hurry as a power cut would, which it survives."""
        self._over = True
        if self._starting:
            self._server.abandon()
        async with self._busy:
            stopping = asyncio.get_running_loop().run_in_executor(None, self._server.stop)
            if not await patiently(
                _ended(stopping), clock=self._clock, within=STOP_WITHIN, ending=ending
            ):
                self._server.hurry()
            await stopping

    async def _start_server(self) -> str:
        """In a thread, which cannot be cancelled: it is told to give up instead, and waited for."""
        async with self._busy:
            self._starting = True
            starting = asyncio.get_running_loop().run_in_executor(None, self._restart)
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._server.abandon()
                await _ended(starting)
                raise
            finally:
                self._starting = False

    def _restart(self) -> str:
        self._server.stop()  # what is left of one that died
        return self._server.start()


async def _ended(work: "asyncio.Future[T]") -> None:
    """Wait until it has ended, however."""
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # seen: whoever cares awaits the work itself


def _check(conninfo: str, machine: Owner) -> None:
    """Refuse a database that does not answer, or that is somebody else's; make it ours otherwise."""
    try:
        if migrate.foreign(conninfo):
            raise BadDatabase(
                "the database that DATABASE_URL names holds tables that are not runyard's."
                " Name an empty database, or unset it for one of our own"
            )
        migrate.apply(conninfo)
        owner = claim(conninfo, machine)
    except DatabaseError as error:
        raise BadDatabase(
            f"the database that DATABASE_URL names cannot be used: {str(error).strip()}."
            " Start it, correct the URL, or unset it"
        ) from error
    if owner.id != machine.id:
        raise BadDatabase(
            f"the database that DATABASE_URL names belongs to another machine, whose state is in {owner.place}."
            " Name another database, or unset it for one of our own; if that machine is gone for good,"
            f" give the database away: {_GIVE_AWAY}"
        )
