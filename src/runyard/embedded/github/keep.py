"""The practice GitHub's memory on disk: one SQLite file in WAL mode.

What was acknowledged survives `kill -9`: the core commits before it answers. A record is one row of JSON under its
kind and key, so a commit writes what has changed and nothing else. Logs are rows of their own, only ever
appended to. The file also survives a loss of power, less perhaps the last moments before it: a practice GitHub is
not worth waiting for the disk at each request.

Invariants:
- One process at a time: the file is locked as long as it is open, and the lock dies with its holder.
- A commit is whole or absent. One that failed has changed nothing and may be tried again.
- The file is its owner's alone (0600): it holds JIT configurations of runners that have not come yet.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runyard.embedded.github.changes import Kind

_VERSION = 1
_RECORDS = """
    CREATE TABLE records (
        kind TEXT NOT NULL, key NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
"""
_LOGS = """
    CREATE TABLE logs (
        job INTEGER NOT NULL, start INTEGER NOT NULL, chunk BLOB NOT NULL, PRIMARY KEY (job, start)
    )
"""

Key = int | str
LogChunk = tuple[int, int, bytes]  # job, start, bytes


class KeepError(Exception):
    """The memory cannot be read or written; `fix` says what a person can do."""

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(f"{cause}. {fix}")
        self.cause = cause
        self.fix = fix


class Keeper:
    """One open file. Make it, hand it to one core, close it last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            _make_private(path)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=2.0)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error
        except KeepError:
            self._connection.close()
            raise

    def records(self, kind: Kind) -> Iterator[tuple[Key, bytes]]:
        """Every record of a kind, by key."""
        query = "SELECT key, value FROM records WHERE kind = ? ORDER BY key"
        try:
            yield from self._connection.execute(query, (kind,))
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def log_sizes(self) -> dict[int, int]:
        """How long each job's log is."""
        query = "SELECT job, max(start + length(chunk)) FROM logs GROUP BY job ORDER BY job"
        try:
            return dict(self._connection.execute(query))
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def read_log(self, job: int, start: int, end: int) -> bytes:
        """A part of a job's log."""
        query = (
            "SELECT start, chunk FROM logs"
            " WHERE job = ? AND start < ? AND start + length(chunk) > ? ORDER BY start"
        )
        try:
            found = self._connection.execute(query, (job, end, start)).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        return b"".join(chunk[max(0, start - at) : end - at] for at, chunk in found)

    def commit(
        self,
        records: Mapping[tuple[Kind, Key], bytes | None],
        *,
        logs: Iterable[LogChunk] = (),
        forgotten_logs: Iterable[int] = (),
    ) -> None:
        """Write all of it in one transaction; `None` deletes a record."""
        put = [(kind, key, value) for (kind, key), value in records.items() if value is not None]
        drop = [(kind, key) for (kind, key), value in records.items() if value is None]
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", put)
            connection.executemany("DELETE FROM records WHERE kind = ? AND key = ?", drop)
            # A log that was forgotten may have begun anew since: first it goes, then it grows.
            gone = [(job,) for job in forgotten_logs]
            connection.executemany("DELETE FROM logs WHERE job = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?)", logs)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._unusable(error) from error

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        self._connection.close()

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_RECORDS)
            connection.execute(_LOGS)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
        elif version != _VERSION:
            raise KeepError(
                f"{self._path} was written by another version ({version}, not {_VERSION})",
                fix="Use the version that wrote it, or move the file away to begin anew.",
            )

    def _unusable(self, error: Exception) -> KeepError:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return KeepError(
                f"{self._path} is in use by another process",
                fix="Stop the other practice GitHub that uses this data directory.",
            )
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            return KeepError(
                f"{self._path} is damaged: {error}",
                fix="Move the file away to begin anew; what it held is lost.",
            )
        return KeepError(
            f"{self._path} cannot be used: {error}",
            fix="Check that the disk has room and that the directory is writable.",
        )


def _make_private(path: Path) -> None:
    """Make the file if need be. SQLite would make it readable for others, and gives its log the mode that it finds."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(file).st_mode & 0o077:  # a copy from elsewhere
            os.fchmod(file, 0o600)
    finally:
        os.close(file)
