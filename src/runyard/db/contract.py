"""The database interface of the domains, and its errors.

A transaction is a function that receives a `Tx` and awaits nothing but SQL on it. That restriction is
what lets the simulator run each transaction as one synchronous step on real Postgres, and what makes
holding a lock while waiting for a network impossible.

Rows come back as dictionaries. Time comes from SQL only: statements call `runyard_now()`, which is the
server's clock in production and the simulator's in a simulation; `now` is never a parameter.

    DatabaseError
    ├── Unavailable      certainly not committed: no connection, or the transaction was rolled back
    ├── CommitUnknown    the connection broke while committing: may or may not have happened
    └── Constraint       a unique, foreign key or check constraint refused the write (`name` says which)
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = dict[str, Any]
Statement = tuple[str, dict[str, object]]
"""SQL and its parameters."""


class DatabaseError(Exception):
    """A transaction failed."""


class Unavailable(DatabaseError):
    """Certainly not committed."""


class CommitUnknown(DatabaseError):
    """May or may not have been committed; read before you conclude anything."""


class Constraint(DatabaseError):
    """A constraint refused the write; the transaction was rolled back."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Tx(Protocol):
    """One open transaction. Parameters are named: `%(name)s` in the SQL."""

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        ...

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        ...

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        ...

    async def several(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in order and return the rows of each, in one round trip where the connection allows it."""
        ...

    async def read(self, *statements: Statement) -> list[list[Row]]:
        """Like `several`, for statements that neither write nor lock.

        While nothing else was run they need no transaction: a `work` that only reads costs no BEGIN and no COMMIT.
        """
        ...

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        """Like `several`, and commits, in the same round trip where the connection allows it.

        Nothing may be run afterwards, and `work` must not fail afterwards: what must not be committed has to fail in
        the statements themselves. If nothing was run before, the COMMIT travels with them only if they are to run
        `alone`: a connection that died unnoticed then leaves an unknown outcome, where otherwise the transaction would
        be repeated on another one.
        """
        ...


class Database(Protocol):
    """Runs transactions."""

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run `work` in one READ COMMITTED transaction and commit it.

        `name` identifies the transaction in logs, metrics and traces. A serialization failure or
        a deadlock runs `work` again (so it must have no effect but SQL). An exception from `work`
        rolls back and propagates.
        """
        ...
