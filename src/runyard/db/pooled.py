"""The production database: a connection pool, safe behind PgBouncer in transaction mode.

Nothing that a transaction relies on outlives it on a connection: no SET but SET LOCAL, no advisory locks of the
session, no LISTEN, no temporary tables. So a transaction may run on any connection, and a pooler between us and the
server may give every transaction another one. Statements are prepared only without a pooler, which is detected by its
process id: it reports another one than the server's backend.

The driver must not send a BEGIN of its own, so its connections are in autocommit mode; every statement still runs
between our BEGIN and our COMMIT, because a `Tx` is the only way to reach a connection. Behind a pooler BEGIN, the
isolation level and both limits travel in one round trip, and statements go through the driver's cursor. Without a
pooler, the limits are the session's, BEGIN travels with the first statement, COMMIT with the last (`Tx.finish`), and
statements go to libpq directly (`prepared`): a server runs some thirty of them for each job.

What an error means is decided by where it happened:

    before BEGIN was answered    nothing happened; a stale connection is replaced and `work` begun again
    in `work`                    rolled back: `Constraint`, `Unavailable`, or `work`'s own exception
    at COMMIT, link still up     the server refused: rolled back
    at COMMIT, link broken       `CommitUnknown`

A serialization failure or a deadlock runs `work` again, a bounded number of times, after a wait with
jitter from the injected clock and generator. The deadline of a transaction holds on both ends: the server
cancels a statement and drops an idle transaction, and we stop waiting for a server that is silent.

A connection is closed, and replaced by the pool, in three cases: its transaction is cancelled while a statement of ours
runs on libpq (a client that left, a loop that ends), a migration changed the tables of its prepared statements, or the
server is gone. The library logs each as a warning, which `telemetry.log` drops; whoever runs the transaction gets the
error that matters.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import psycopg
from psycopg import pq
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from runyard.clock import Clock
from runyard.db.contract import CommitUnknown, DatabaseError, Row, Statement, Tx, Unavailable
from runyard.db.failures import Conflict, translate
from runyard.db.prepared import AwaitedStatements, Result

T = TypeVar("T")
R = TypeVar("R")
Observer = Callable[[str, str, float], None]

_SHUT_DOWN = (psycopg.errors.AdminShutdown, psycopg.errors.CrashShutdown)
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMIT = b"COMMIT"
_RETRY_BASE = 0.01
_RETRY_CAP = 0.5
# The server's own limit comes first, so that its error names the slow statement.
_GRACE = 2.0


class Connection(psycopg.AsyncConnection[DictRow]):
    """A connection; with statements of its own where no pooler is between us and the server."""

    statements: AwaitedStatements | None = None


class PooledTx:
    """The transaction that `work` sees, through the driver's cursor."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()  # one for all statements: they follow each other
        self.committing = False
        self.failure: DatabaseError | None = None

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        cursor = await self._execute(sql, params)
        return await cursor.fetchall() if _has_rows(cursor) else []

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        cursor = await self._execute(sql, params)
        return await cursor.fetchone() if _has_rows(cursor) else None

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        return max(0, (await self._execute(sql, params)).rowcount)

    async def several(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in order and return the rows of each; behind a pooler, one after the other."""
        return [await self.all(sql, **params) for sql, params in statements]

    async def read(self, *statements: Statement) -> list[list[Row]]:
        """Run statements that only read."""
        return await self.several(*statements)

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        """Run the last statements; behind a pooler, the COMMIT follows them."""
        return await self.several(*statements)

    async def _execute(self, sql: str, params: dict[str, object]) -> psycopg.AsyncCursor[DictRow]:
        try:
            return await self._cursor.execute(cast("Any", sql), params)
        except psycopg.Error as error:
            self.failure = translate(error)
            raise self.failure from error


class DirectTx:
    """The transaction that `work` sees, on libpq. Its BEGIN travels with its first statement."""

    def __init__(self, connection: Connection, statements: AwaitedStatements) -> None:
        self._connection = connection
        self._statements = statements
        self.begun = False
        self.committing = False  # a COMMIT was sent: a failure may leave its outcome unknown
        self.failure: DatabaseError | None = None

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        return (await self._execute(sql, params)).rows()

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        rows = (await self._execute(sql, params)).rows(1)
        return rows[0] if rows else None

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        return (await self._execute(sql, params)).touched

    async def several(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in order and return the rows of each, in one round trip."""
        if not statements:
            return []
        first = self._first()
        results = await self._guarded(self._statements.several(statements, first=first))
        return [each.rows() for each in results]

    async def read(self, *statements: Statement) -> list[list[Row]]:
        """Run statements that only read, without a BEGIN if the transaction has not begun."""
        self._first()
        begun = self.begun
        results = await self._guarded(self._statements.several(statements))
        self.begun = begun
        return [each.rows() for each in results]

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        """Run the last statements and commit, in one round trip.

        Only on a connection that has answered in this transaction, unless they run `alone`: one that died in the pool
        leaves an unknown outcome where a repetition would be possible.
        """
        if not self.begun and not alone:
            return await self.several(*statements)
        first = self._first()
        self.committing = True
        asked = self._statements.several(statements, first=first, last=(_COMMIT,))
        return [each.rows() for each in await self._guarded(asked)]

    async def _execute(self, sql: str, params: dict[str, object]) -> Result:
        first = self._first()
        return await self._guarded(self._statements.execute(sql, params, first=first))

    def _first(self) -> tuple[bytes, ...]:
        """The command that begins the transaction, if it has not begun."""
        if self.failure is not None:
            raise self.failure  # the server would report that the transaction is aborted
        if self.committing:
            raise RuntimeError("a statement was run after `finish`, which commits")
        return () if self.begun else (_BEGIN,)

    async def _guarded(self, asked: Awaitable[R]) -> R:
        try:
            result = await asked
        except psycopg.errors.FeatureNotSupported as error:
            # The tables were migrated since the statement was prepared: open a new connection.
            await self._connection.close()
            self.failure = Conflict(str(error))
            raise self.failure from error
        except psycopg.Error as error:
            gone = self._connection.closed or self._connection.broken
            if isinstance(
                error, _SHUT_DOWN
            ):  # the server announces its shutdown; the connection may close later
                await self._connection.close()
                gone = True
            self.failure = self._meaning(error, gone=gone)
            raise self.failure from error
        self.begun = True
        return result

    def _meaning(self, error: psycopg.Error, *, gone: bool) -> DatabaseError:
        """What a failure says about the transaction; `gone`: the connection was lost."""
        if gone and self.committing:
            return CommitUnknown(str(error))
        return Stale(str(error)) if gone and not self.begun else translate(error)


class Stale(Unavailable):
    """The connection had died before the transaction began: worth running again on another one."""


def _has_rows(cursor: psycopg.AsyncCursor[DictRow]) -> bool:
    """Return whether a statement returns rows, possibly none; cheaper than describing its columns."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Connections that are open, those of them that are free, and whether a caller waits although all are open."""

    size: int
    ready: int
    starved: bool


class PooledDatabase:
    """`Database` on a pool. Made by `open_pool`, which also closes it."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Connection],
        *,
        clock: Clock,
        rng: random.Random,
        deadline: float = 10.0,
        attempts: int = 5,
        observe: Observer | None = None,
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._deadline = deadline
        self._attempts = attempts
        self._observe = observe
        limit = max(1, int(deadline * 1000))
        self._begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f" SET LOCAL statement_timeout = {limit};"
            f" SET LOCAL idle_in_transaction_session_timeout = {limit}"
        )

    def stats(self) -> PoolStats:
        """Return the current numbers of connections."""
        found = self._pool.get_stats()
        return PoolStats(
            size=found.get("pool_size", 0),
            ready=found.get("pool_available", 0),
            starved=bool(found.get("requests_waiting"))
            and found.get("pool_size", 0) >= found.get("pool_max", 1),
        )

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run `work` in one READ COMMITTED transaction and commit it."""
        for attempt in range(1, self._attempts + 1):
            started = self._clock.monotonic()
            try:
                result = await self._attempt(work, name)
            except Stale:
                self._report(name, "stale", started)
                if attempt == self._attempts:
                    raise
                await self._pool.check()  # after a server restart all of them are dead
            except Conflict as conflict:
                self._report(name, "conflict", started)
                if attempt == self._attempts:
                    raise Unavailable(
                        f"{name}: gave up after {attempt} conflicts: {conflict}"
                    ) from conflict
                ceiling = min(_RETRY_CAP, _RETRY_BASE * 2**attempt)
                await self._clock.sleep(self._rng.uniform(0, ceiling))
            except BaseException as error:
                self._report(name, _outcome(error), started)
                raise
            else:
                self._report(name, "committed", started)
                return result
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(self, work: Callable[[Tx], Awaitable[T]], name: str) -> T:
        """Run one transaction; its error shows whether it may have been committed."""
        connection = await self._started(name)
        statements = connection.statements
        tx = PooledTx(connection) if statements is None else DirectTx(connection, statements)
        limit = self._clock.timeout(self._deadline + _GRACE)
        try:
            async with limit:
                result = await work(tx)
                if tx.failure is not None:  # swallowed by `work`; the server would roll back
                    raise tx.failure
                tx.committing = True
                await self._commit(connection, name)
        except TimeoutError as error:
            if not limit.expired():
                raise
            kind = CommitUnknown if tx.committing else Unavailable
            raise kind(f"{name}: no end within {self._deadline:g} s") from error
        finally:
            await self._return(connection)
        return result

    async def _commit(self, connection: Connection, name: str) -> None:
        try:
            if connection.statements is None:
                await connection.execute("COMMIT", prepare=False)
            elif connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await connection.statements.command(_COMMIT)
        except psycopg.Error as error:
            if connection.closed or connection.broken:
                raise CommitUnknown(f"{name}: {error}") from error
            raise translate(error) from error

    async def _started(self, name: str) -> Connection:
        """A connection with an open transaction; connections that died in the pool are replaced.

        After a restart of the server all of them are dead, so all are checked after the first failure.
        """
        failure: psycopg.Error | None = None
        for _ in range(self._attempts):
            try:
                connection = await self._pool.getconn()
            except (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests) as error:
                raise Unavailable(f"{name}: no connection: {failure or error}") from error
            if connection.statements is not None:
                return connection  # its BEGIN travels with the first statement
            try:
                async with self._clock.timeout(self._deadline + _GRACE):
                    await connection.execute(self._begin, prepare=False)
            except psycopg.Error as error:
                failure = error
                await self._return(connection)
                await self._pool.check()
            except BaseException as error:
                await self._return(connection)
                if isinstance(error, TimeoutError):
                    raise Unavailable(f"{name}: the database server does not answer") from error
                raise
            else:
                return connection
        raise Unavailable(f"{name}: no transaction could be started: {failure}") from failure

    async def _return(self, connection: Connection) -> None:
        """End an open transaction, then return the connection; the pool discards a broken one."""
        try:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await self._roll_back(connection)
        finally:
            await self._pool.putconn(connection)

    async def _roll_back(self, connection: Connection) -> None:
        try:
            async with self._clock.timeout(_GRACE):
                await connection.rollback()
        except (psycopg.Error, TimeoutError):
            await connection.close()  # the server rolls back when the connection is gone
        except asyncio.CancelledError:
            await connection.close()
            raise

    def _report(self, name: str, outcome: str, started: float) -> None:
        if self._observe is not None:
            self._observe(name, outcome, self._clock.monotonic() - started)


@asynccontextmanager
async def open_pool(
    conninfo: str,
    *,
    clock: Clock,
    rng: random.Random,
    min_size: int = 1,
    max_size: int = 8,
    patience: float = 5.0,
    deadline: float = 10.0,
    attempts: int = 5,
    direct: bool = True,
    observe: Observer | None = None,
) -> AsyncIterator[PooledDatabase]:
    """Open a pool for as long as the context lasts; the server need not run yet.

    `patience` is how long a transaction waits for a connection, `deadline` how long it may last. Whether a
    pooler is in between is detected for each connection; with `direct=False` it is assumed.
    """
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        conninfo,
        connection_class=Connection,
        kwargs={"autocommit": True, "prepare_threshold": None, "row_factory": dict_row},
        min_size=min_size,
        max_size=max_size,
        configure=partial(_direct_if_possible, limit=max(1, int(deadline * 1000)))
        if direct
        else None,
        timeout=patience,
        # Attempts back off while the server is unavailable. Giving up early means that the next
        # transaction starts anew, instead of waiting for a delay that has grown to minutes.
        reconnect_timeout=patience,
        open=False,
    )
    await pool.open(wait=False)
    try:
        yield PooledDatabase(
            pool, clock=clock, rng=rng, deadline=deadline, attempts=attempts, observe=observe
        )
    finally:
        await pool.close()


async def _direct_if_possible(connection: Connection, *, limit: int) -> None:
    """Use prepared statements unless a pooler is in between, which reports a backend process that does not exist."""
    cursor = await connection.execute("SELECT pg_backend_pid() AS pid", prepare=False)
    row = await cursor.fetchone()
    if row is None or row["pid"] != connection.info.backend_pid:
        return
    await connection.execute(
        f"SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit}",
        prepare=False,
    )
    connection.statements = AwaitedStatements(connection)


def _outcome(error: BaseException) -> str:
    """Return the label value for this end."""
    if isinstance(error, CommitUnknown):
        return "unknown"
    if isinstance(error, Unavailable):
        return "unavailable"
    return "refused" if isinstance(error, DatabaseError) else "rolled_back"
