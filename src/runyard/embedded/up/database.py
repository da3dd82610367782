"""Runs the machine's Postgres and restarts it when it exits, unless DATABASE_URL names another one.

A database that a URL names is not run by us: it is checked at the start, it must be empty or already belong to this
machine, and when it is unreachable later the components wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from runyard.clock import Clock
from runyard.db import migrate
from runyard.db.contract import DatabaseError
from runyard.db.owner import Owner, claim
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.server import EmbeddedPostgres
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.restarts import RestartRecord, reason_of_exit
from runyard.embedded.up.shutdown import Shutdown, within_deadline
from runyard.telemetry.log import Logger
from runyard.wire.restarts import Ended

T = TypeVar("T")
DATABASE = "runyard"
COMPONENT = "postgres"
STOP_WITHIN = 1.5  # seconds; then it is killed, and the next start replays its log
_CHECK_EVERY = 1.0
_RELEASE = "DELETE FROM machine"
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class BadDatabase(Exception):
    """The given database cannot be used; the message has the cause and the fix."""


class GivenDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database that we do not run, and this machine as its owner; an empty URL if we run our own."""

    url: str
    owner: Owner


class MachineDatabase:
    """`start` it, run `watch`, `stop` it."""

    def __init__(
        self,
        layout: Layout,
        *,
        clock: Clock,
        log: Logger,
        given: GivenDatabase,
        restarts: RestartRecord,
        durable: bool = True,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._given = given.url
        self._owner = given.owner
        self._clock = clock
        self._log = log
        self._report = report
        self._restarts = restarts
        self._server = EmbeddedPostgres(
            layout.postgres, durable=durable, database=DATABASE, max_connections=40
        )
        self._busy = asyncio.Lock()  # one start or stop at a time
        self._starting = False
        self._stopped = False

    @property
    def notice(self) -> str:
        """A notice for the user, or an empty string."""
        return self._server.notice

    @property
    def pid(self) -> int:
        """The server's process, 0 if we do not run it."""
        return self._server.pid

    async def start(self) -> str:
        """Starts it; returns how to connect."""
        if self._given:
            self._report("using the database of DATABASE_URL; unset it to start an embedded one")
            await asyncio.to_thread(_check, self._given, self._owner)
            return self._given
        return await self._start_server()

    async def watch(self) -> None:
        """Restarts it whenever it has exited. The address and the password stay the same."""
        pause = _PAUSE
        while not self._given and not self._stopped:
            await self._clock.sleep(_CHECK_EVERY)
            if self._server.running or self._stopped:
                pause = _PAUSE
                continue
            self._log.warning("postgres exited")
            self._report("postgres exited; restarting it")
            code = self._server.exit_code()
            why = Ended.GONE.because() if code is None else reason_of_exit(code)
            self._restarts.ended(COMPONENT, why)
            self._restarts.started(COMPONENT)
            try:
                await self._start_server()
                self._restarts.ready(COMPONENT)
                self._report(f"postgres is back (process {self._server.pid})")
            except (EmbeddedPostgresError, OSError) as error:
                self._report(f"postgres does not start: {error}")
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def stop(self, shutdown: Shutdown) -> None:
        """Stops it with everything on disk; on the second Ctrl-C it is killed, which loses nothing."""
        self._stopped = True
        if self._starting:
            self._server.abandon()
        async with self._busy:
            stopping = asyncio.get_running_loop().run_in_executor(None, self._server.stop)
            if not await within_deadline(
                _ended(stopping), clock=self._clock, within=STOP_WITHIN, shutdown=shutdown
            ):
                self._server.stop_immediately()
            await stopping

    async def _start_server(self) -> str:
        """Starts it in a thread, which cannot be cancelled: on a cancellation the start is abandoned."""
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
        self._server.stop()  # cleans up after the process that exited
        return self._server.start()


async def _ended(work: "asyncio.Future[T]") -> None:
    """Waits until it has ended, with or without an error."""
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # marks it as retrieved; the caller awaits the work itself


def _check(conninfo: str, machine: Owner) -> None:
    """Refuses a database that is unreachable or belongs to another machine; else records this machine as its owner."""
    try:
        if migrate.foreign(conninfo):
            raise BadDatabase(
                "the database that DATABASE_URL names contains tables that are not runyard's."
                " Use an empty database, or unset DATABASE_URL to start an embedded one"
            )
        migrate.apply(conninfo)
        owner = claim(conninfo, machine)
    except DatabaseError as error:
        raise BadDatabase(
            f"the database that DATABASE_URL names cannot be used: {str(error).strip()}."
            " Start it, correct the URL, or unset DATABASE_URL"
        ) from error
    if owner.id != machine.id:
        raise BadDatabase(
            f"the database that DATABASE_URL names belongs to another machine, whose state is in {owner.place}."
            " Use another database, or unset DATABASE_URL to start an embedded one; if that machine is gone for good,"
            f" release the database: {_RELEASE}"
        )
