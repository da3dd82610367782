"""The simulator's database: real Postgres, one transaction per step.

`transact` never yields to the event loop. It drives `work` by hand on one synchronous connection, so no
other task can run between BEGIN and COMMIT and a run can be replayed. `work` may await nothing but SQL;
anything else is an error here. That also protects production, where a transaction that waits for the network would
hold its locks meanwhile.

Time is the simulator's: every transaction starts with the virtual clock's `now` in `runyard.now`, which
`runyard_now()` reads. It is set for the transaction only, and travels with BEGIN and the first statement:
a transaction without a statement sends nothing.

A transaction that only read is ended without waiting for the answer.

The simulator can observe every transaction before it starts and after it was committed,
make the database unavailable (`down`), and lose the answer of a commit that did happen (`lose_answer`).
"""

import re
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import pq

from runyard.clock import Clock
from runyard.db.contract import CommitUnknown, DatabaseError, Row, Statement, Tx, Unavailable
from runyard.db.failures import translate
from runyard.db.prepared import PreparedStatements, Result
from runyard.wire.instants import to_rfc3339_micro

T = TypeVar("T")

# Small tables, many executions: planning a statement again costs more than it saves.
_PLAN_ONCE = "-c plan_cache_mode=force_generic_plan -c jit=off"
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_LOCKING = re.compile(r"\bfor\s+(no\s+key\s+)?update\b", re.IGNORECASE)
_WRITING = re.compile(r"\b(insert|update|delete|merge)\b", re.IGNORECASE)


class NotOnlySql(RuntimeError):
    """A transaction awaited something that is not SQL, or was started inside another one."""


def writes(sql: str) -> bool:
    """Whether a statement writes; in doubt it does."""
    bare = _COMMENTS.sub(" ", sql).lstrip(" \t\r\n(")
    head = bare[:6].lower()
    if head.startswith("with"):
        return _WRITING.search(_LOCKING.sub(" ", bare)) is not None
    return head not in {"select", "values"}


class InlineTx:
    """The transaction that `work` sees; its methods complete without ever suspending."""

    def __init__(
        self, statements: PreparedStatements, kinds: dict[str, bool], *, begin: tuple[bytes, ...]
    ) -> None:
        self._statements = statements
        self._kinds = kinds
        self._begin = begin
        self.wrote = False
        self.begun = False
        self.finished = False  # in production it is committed by now
        self.failure: DatabaseError | None = None

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        return self._execute(sql, params).rows()

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        rows = self._execute(sql, params).rows(1)
        return rows[0] if rows else None

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        return self._execute(sql, params).touched

    async def several(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in order and return the rows of each, in one round trip."""
        if not statements:
            return []
        begin = self._begun(*(sql for sql, _ in statements))
        try:
            return [each.rows() for each in self._statements.several(statements, first=begin)]
        except psycopg.Error as error:
            self.failure = translate(error)
            raise self.failure from error

    async def read(self, *statements: Statement) -> list[list[Row]]:
        """Run statements that only read."""
        if any(writes(sql) or _LOCKING.search(sql) for sql, _ in statements):
            raise NotOnlySql("a statement that writes or locks was run with `read`")
        return await self.several(*statements)

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        """Run the last statements."""
        rows = await self.several(*statements)
        self.finished = True
        return rows

    def _execute(self, sql: str, params: dict[str, object]) -> Result:
        begin = self._begun(sql)
        try:
            return self._statements.execute(sql, params, first=begin)
        except psycopg.Error as error:
            self.failure = translate(error)
            raise self.failure from error

    def _begun(self, *texts: str) -> tuple[bytes, ...]:
        """Record what is about to run; return the commands that begin the transaction, if it has not begun."""
        if self.failure is not None:
            raise self.failure  # as in production: the server would report that the transaction is aborted
        if self.finished:
            raise NotOnlySql("a statement was run after `finish`, which commits")
        for sql in texts:
            kind = self._kinds.get(sql)
            if kind is None:
                kind = self._kinds[sql] = writes(sql)
            self.wrote = self.wrote or kind
        begin, self._begin = self._begin, ()
        self.begun = True
        return begin


class InlineDatabase:
    """`Database` on one synchronous connection, with the simulator's hooks and faults."""

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Clock,
        before: Callable[[str], None] | None = None,
        after_commit: Callable[[str, bool], None] | None = None,
        lose_answer: Callable[[str], bool] | None = None,
        after_commit_query: Callable[[], tuple[str, dict[str, object]]] | None = None,
    ) -> None:
        self.clock = clock
        self.before = before
        self.after_commit = after_commit
        self.lose_answer = lose_answer
        self.after_commit_query = after_commit_query  # run after each commit that wrote something
        self.after_commit_rows: list[Row] = []  # its result
        self.down = False
        self._conninfo = conninfo
        self._kinds: dict[str, bool] = {}
        self._open = ""
        self._commit_pending = False  # the answer to a COMMIT is on its way
        self._connection: psycopg.Connection[Any] | None = None
        self._statements: PreparedStatements | None = None

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run `work` in one READ COMMITTED transaction and commit it, without yielding."""
        if self._open:
            raise NotOnlySql(f"the transaction {name!r} was started inside of {self._open!r}")
        if self.before is not None:
            self.before(name)
        if self.down:
            raise Unavailable(f"{name}: the database is down")
        statements, link = self._connected()
        tx = InlineTx(statements, self._kinds, begin=self._begin())
        self._open = name
        try:
            result = _drive(work(tx), name)
            if tx.failure is not None:  # swallowed by `work`; the server would roll back silently
                raise tx.failure
        except BaseException as error:
            self._rollback(link)
            if tx.finished and isinstance(error, Exception):
                raise NotOnlySql(f"the transaction {name!r} failed after `finish`") from error
            raise
        finally:
            self._open = ""
        if tx.wrote:
            self._commit(statements, link, name)
        elif tx.begun:
            link.send_query(b"COMMIT")  # safe: its response is read before the next statement
            self._commit_pending = True
        if self.after_commit is not None:
            self.after_commit(name, tx.wrote)
        if self.lose_answer is not None and self.lose_answer(name):
            raise CommitUnknown(f"{name}: the answer to the commit was lost")
        return result

    def peek(self, sql: str, /, **params: object) -> list[Row]:
        """Run one statement outside of any transaction, without yielding; for checks between two steps."""
        if self._open:
            raise NotOnlySql(f"`peek` was called inside of {self._open!r}")
        statements, _ = self._connected()
        try:
            return statements.execute(sql, params).rows()
        except psycopg.Error as error:
            raise translate(error) from error

    def close(self) -> None:
        """Close the connection; the next transaction opens a new one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._statements = None
        self._commit_pending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> tuple[bytes, ...]:
        now = to_rfc3339_micro(self.clock.now())
        return _BEGIN, f"SET LOCAL runyard.now = '{now}'".encode()

    def _connected(self) -> tuple[PreparedStatements, pq.abc.PGconn]:
        """The one connection. It is in autocommit because BEGIN and COMMIT are sent from here."""
        if self._commit_pending and self._statements is not None:
            self._commit_pending = False
            if not self._statements.settle():
                self.close()
        if self._connection is None or self._statements is None:
            try:
                self._connection = psycopg.connect(
                    self._conninfo, autocommit=True, options=_PLAN_ONCE
                )
            except psycopg.Error as error:
                raise translate(error) from error
            self._statements = PreparedStatements(self._connection)
        return self._statements, self._connection.pgconn

    def _commit(self, statements: PreparedStatements, link: pq.abc.PGconn, name: str) -> None:
        try:
            if self.after_commit_query is None:
                statements.command(b"COMMIT")
            else:
                sql, params = self.after_commit_query()
                self.after_commit_rows = statements.execute(sql, params, first=(b"COMMIT",)).rows()
        except psycopg.Error as error:
            if link.status != pq.ConnStatus.OK:
                self.close()
                raise CommitUnknown(f"{name}: {error}") from error
            raise translate(error) from error

    def _rollback(self, link: pq.abc.PGconn) -> None:
        """Leave the connection clean; a broken one is replaced at the next transaction.

        Never raises: the error that ended the transaction (also an interruption in mid-statement) is the one to report.
        """
        try:
            clean = link.status == pq.ConnStatus.OK and (
                link.exec_(b"ROLLBACK").status == pq.ExecStatus.COMMAND_OK
            )
            if clean:
                return
        except psycopg.Error:
            pass  # interrupted during a request: the connection is unusable
        self.close()


def _drive(work: Awaitable[T], name: str) -> T:
    """Run an awaitable to its end without an event loop; it must never suspend."""
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        return cast("T", done.value)
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    raise NotOnlySql(
        f"the transaction {name!r} awaits {waits_for!r}: inside a transaction only SQL may be awaited"
    )
