"""Translate what psycopg raises into what a room may rely on.

Shared by both databases, so that a room meets the same errors in production and in the simulator.
"""

import psycopg
from psycopg import errors

from runyard.db.contract import Constraint, DatabaseError, Unavailable

_TOO_LARGE = "54"  # the class of SQLSTATEs for what exceeds a limit that is built in


class Conflict(Unavailable):
    """A serialization failure or a deadlock: rolled back, and worth running again."""


def translate(error: psycopg.Error) -> DatabaseError:
    """The error of a statement or of a refused commit: in each case nothing was committed."""
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return Conflict(told)
    if isinstance(error, psycopg.IntegrityError):
        # A violated NOT NULL has no constraint name; its column says as much.
        return Constraint(error.diag.constraint_name or error.diag.column_name or "", told)
    if (error.sqlstate or "").startswith(_TOO_LARGE):
        return DatabaseError(
            told
        )  # for psycopg it is the server's state, but this write fails always
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(told)  # includes a statement that was cancelled at its deadline
    return DatabaseError(told)
