"""Stores the practice GitHub's records on disk: one SQLite file in WAL mode.

Acknowledged changes survive `kill -9`: the core commits before it answers. A record is one row of JSON under its
kind and key, so a commit writes only what has changed. Logs are rows of their own, only ever appended to. After a
loss of power the last moments before it may be missing: a practice GitHub does not wait for the disk at each
request.

Invariants:
- One process at a time: the file is locked as long as it is open, and the lock ends with its holder.
- A commit is atomic. One that failed has changed nothing and may be tried again.
- Only its owner can read the file (0600): it holds JIT configurations of runners that have not connected yet.
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


class StoreError(Exception):
    """The store cannot be read or written; `fix` says what an operator can do."""

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(f"{cause}. {fix}")
        self.cause = cause
        self.fix = fix


class RecordStore:
    """One open file. Create it, pass it to one core, close it last."""

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
        except StoreError:
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
        """The size of each job's log."""
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
        """Writes all of it in one transaction; `None` deletes a record."""
        put = [(kind, key, value) for (kind, key), value in records.items() if value is not None]
        drop = [(kind, key) for (kind, key), value in records.items() if value is None]
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", put)
            connection.executemany("DELETE FROM records WHERE kind = ? AND key = ?", drop)
            # A log that was dropped may have started again since: delete first, then insert.
            gone = [(job,) for job in forgotten_logs]
            connection.executemany("DELETE FROM logs WHERE job = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?)", logs)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._unusable(error) from error

    def close(self) -> None:
        """Closes the file; may be called twice."""
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
            raise StoreError(
                f"{self._path} was written by another version ({version}, not {_VERSION})",
                fix="Use the version that wrote it, or move the file away to start with an empty one.",
            )

    def _unusable(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return StoreError(
                f"{self._path} is in use by another process",
                fix="Stop the other practice GitHub that uses this data directory.",
            )
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            return StoreError(
                f"{self._path} is damaged: {error}",
                fix="Move the file away to start with an empty one; its records are lost.",
            )
        return StoreError(
            f"{self._path} cannot be used: {error}",
            fix="Check that the disk has free space and that the directory is writable.",
        )


def _make_private(path: Path) -> None:
    """Creates the file with mode 0600: SQLite would make it readable for others, and gives its log the same mode."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(file).st_mode & 0o077:  # a copy from elsewhere
            os.fchmod(file, 0o600)
    finally:
        os.close(file)
