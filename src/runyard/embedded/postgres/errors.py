"""The errors of the embedded Postgres server.

One error type on purpose: a caller can only show it to the user, so the message is written for the user and ends
with the last lines of the server's log.
"""

from pathlib import Path

_TAIL_BYTES = 4096
_TAIL_LINES = 15


class EmbeddedPostgresError(Exception):
    """The embedded server could not be found, created, started or stopped."""


class Abandoned(EmbeddedPostgresError):
    """The start was cancelled."""


class AlreadyRunning(EmbeddedPostgresError):
    """Another process holds this data directory."""


def tail(log: Path, *, since: int = 0) -> str:
    """The last lines of a log, from byte `since` on; empty when there is nothing to show."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(since, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:])
