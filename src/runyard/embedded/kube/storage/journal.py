"""Stores the objects of the embedded API on disk, in one SQLite file in WAL mode.

The file holds the current objects, the version counter and the key that signs tokens, and nothing else: no
history. Each `commit` is one transaction that is synced before it returns, so an acknowledged write
survives a kill and a power cut, and a step that changes ten objects is stored as a whole or not at all.

Every failure is a `JournalError` with cause and fix:

    JournalError         the file is corrupt, has a newer format, is locked by another process, or the disk fails
    └── JournalFull      no free space: nothing of that step was stored, and the next may succeed

The two differ in what is known afterwards. A full disk refuses the write itself, so the step is certainly
not in the file. Any other failure may have come from the sync, after which the content of the disk is
unknown: the owner of the journal must stop and read it again.

Invariants:
- One process at a time: the file is locked while it is open. The lock of a killed process is released.
- Each row has a checksum over all of its columns; SQLite itself has checksums in the WAL only.
- Rows are read in the order in which their objects were created.
- The file is readable by its owner only: it holds Secrets and the signing key.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import msgspec

_Run = Callable[..., sqlite3.Cursor]

FORMAT = 1
_MAGIC = 0x52594B42  # in the header of every journal, and of no other SQLite file
_VERSION, _KEY = "version", "signing-key"

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)",
    """CREATE TABLE objects (
        plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        version INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL,
        PRIMARY KEY (plural, namespace, name))""",
    f"PRAGMA application_id = {_MAGIC}",
    f"PRAGMA user_version = {FORMAT}",
)
# A changed object keeps its row, and with it its place in the order of creation.
_PUT = (
    "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
    " SET version = excluded.version, body = excluded.body, crc = excluded.crc"
)
_DROP = "DELETE FROM objects WHERE plural = ? AND namespace = ? AND name = ?"
_PUT_META = (
    "INSERT INTO meta VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET value = excluded.value, crc = excluded.crc"
)


class JournalError(Exception):
    """The journal cannot be used; `cause` says why and `fix` what an operator can do."""

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(f"{cause}. {fix}")
        self.cause = cause
        self.fix = fix


class JournalFull(JournalError):
    """There is no space for the write; nothing of it was stored."""


class Row(msgspec.Struct, frozen=True):
    """One object as stored on disk; without a body it is deleted."""

    plural: str
    namespace: str
    name: str
    version: int
    body: bytes | None


class Snapshot(msgspec.Struct, frozen=True):
    """The content of a journal."""

    version: int
    signing_key: bytes  # empty: none yet
    rows: tuple[Row, ...]


class Journal:
    """The one file. Opening takes its lock, or raises `JournalError`."""

    def __init__(self, path: Path | str, *, timeout: float = 5.0) -> None:
        self.path = Path(path)
        try:
            _make_private(self.path)
        except OSError as error:
            raise _unusable(self.path, str(error)) from error
        with self._explained():
            self._db = sqlite3.connect(self.path, timeout=timeout, isolation_level=None)
        try:
            with self._explained():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        run = self._db.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        (magic,) = run("PRAGMA application_id").fetchone()
        (format_,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        self._check_identity(magic=magic, format_=format_, tables=tables)
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA fullfsync = ON")  # macOS: also flushes the cache of the drive
        run("PRAGMA checkpoint_fullfsync = ON")
        run("BEGIN IMMEDIATE")
        if not tables:
            for statement in _TABLES:
                run(statement)
            self._put_meta(_VERSION, b"0")
        run("COMMIT")
        (verdict,) = run("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise _corrupt(self.path, str(verdict))

    def _check_identity(self, *, magic: int, format_: int, tables: int) -> None:
        if not tables and not magic:
            return  # new, or killed before its first transaction
        if magic != _MAGIC:
            cause = f"{self.path} is an SQLite file, but not a journal of the embedded API"
            raise JournalError(cause, fix="Use another path, or move that file away")
        if format_ > FORMAT:
            cause = f"{self.path} has format {format_}, and this version reads up to {FORMAT}"
            raise JournalError(cause, fix="Use the newer version of runyard that wrote it")

    def close(self) -> None:
        """Closes the file; a repeated call has no effect."""
        self._db.close()

    # ---- reading

    def load(self) -> Snapshot:
        """Reads and verifies everything."""
        with self._explained():
            meta = {
                str(name): self._verified(value, crc, name)
                for name, value, crc in self._db.execute("SELECT name, value, crc FROM meta")
            }
            found = self._db.execute(
                "SELECT plural, namespace, name, version, body, crc FROM objects ORDER BY rowid"
            )
            rows = tuple(
                Row(
                    plural,
                    space,
                    name,
                    version,
                    self._verified(body, crc, plural, space, name, version),
                )
                for plural, space, name, version, body, crc in found
            )
        number = meta.get(_VERSION, b"")
        if not number.isdigit() or any(row.version > int(number) for row in rows):
            raise _corrupt(self.path, "the version counter is missing or behind its objects")
        return Snapshot(int(number), meta.get(_KEY, b""), rows)

    def _verified(self, value: object, crc: object, *about: object) -> bytes:
        if not isinstance(value, bytes) or crc != _checksum(value, *about):
            raise _corrupt(self.path, f"the checksum of {'/'.join(map(str, about))} does not match")
        return value

    # ---- writing

    def commit(self, version: int, rows: Iterable[Row]) -> None:
        """Stores these changes and the counter, all or nothing, on disk when this returns."""
        with self._transaction() as run:
            for row in rows:
                key = (row.plural, row.namespace, row.name)
                if row.body is None:
                    run(_DROP, key)
                else:
                    crc = _checksum(row.body, *key, row.version)
                    run(_PUT, (*key, row.version, row.body, crc))
            self._put_meta(_VERSION, b"%d" % version)

    def put_signing_key(self, key: bytes) -> None:
        """Stores the key that signs every token."""
        with self._transaction():
            self._put_meta(_KEY, key)

    def _put_meta(self, name: str, value: bytes) -> None:
        self._db.execute(_PUT_META, (name, value, _checksum(value, name)))

    @contextmanager
    def _transaction(self) -> Iterator[_Run]:
        with self._explained():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db.execute
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(self.path, error) from error
        except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its message
            raise _corrupt(self.path, "a text column is not valid UTF-8") from error


def _checksum(value: bytes, *about: object) -> int:
    return crc32(value, crc32("\0".join(map(str, about)).encode()))


def _make_private(path: Path) -> None:
    """Creates the file with mode 0600, and syncs its directory."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _corrupt(path: Path, detail: str) -> JournalError:
    fix = (
        "Put back a copy of the file, or move it away together with its -wal file to start empty:"
        " runners and nodes register again by themselves"
    )
    return JournalError(f"{path} is damaged: {detail}", fix=fix)


def _unusable(path: Path, detail: str) -> JournalError:
    fix = "Check that its folder exists and that this user may read and write both"
    return JournalError(f"{path} cannot be used: {detail}", fix=fix)


def _explain(path: Path, error: sqlite3.Error) -> JournalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull(f"no space left for {path}", fix="Free some space on its disk")
    if code == sqlite3.SQLITE_BUSY:
        fix = "Stop that process first; two cannot serve one file"
        return JournalError(f"{path} is locked by another process", fix=fix)
    if isinstance(error, sqlite3.ProgrammingError):  # closed already
        return _unusable(path, str(error))
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return _unusable(path, str(error))
    if code == sqlite3.SQLITE_IOERR:
        fix = "Look at the disk; what was acknowledged is read back when the process starts again"
        return JournalError(f"the disk under {path} failed: {error}", fix=fix)
    return _corrupt(path, str(error))
