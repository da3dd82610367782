"""Maps psycopg's errors to the errors of the contract.

Shared by both databases, so that the errors are the same in production and in the simulator.
"""

import psycopg
from psycopg import errors

from runyard.db.contract import Constraint, DatabaseError, Unavailable

_TOO_LARGE = "54"  # the class of SQLSTATEs for what exceeds a limit that is built in


class Conflict(Unavailable):
    """A serialization failure or a deadlock: rolled back, and worth running again."""


def translate(error: psycopg.Error) -> DatabaseError:
    """The error of a statement or of a refused commit: in each case nothing was committed."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return Conflict(message)
    if isinstance(error, psycopg.IntegrityError):
        # A violated NOT NULL has no constraint name; its column identifies it.
        return Constraint(error.diag.constraint_name or error.diag.column_name or "", message)
    if (error.sqlstate or "").startswith(_TOO_LARGE):
        return DatabaseError(
            message
        )  # for psycopg it is the server's state, but this write fails always
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(message)  # includes a statement that was cancelled at its deadline
    return DatabaseError(message)
