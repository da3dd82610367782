"""Applies the migrations: numbered files, each once, each in a transaction.

A file is `NNNN_pre_what.sql` or `NNNN_post_what.sql`. `pre` files only add, so the release that is still
running keeps working; they are applied before a new release starts. `post` files take away what only
the old release needed; they are applied when it is gone. `all` applies both in order.

A large table is converted in batches: `NNNN_pre_what.batch.sql` beside a file is one statement for a limited number of
rows with `id > %(after)s`, in the order of `id`, that returns the ids it changed. It is repeated before the file is
applied, each time in a transaction of its own and with the largest id so far, until it changes no row. It is
neither recorded nor compared; an interrupted conversion starts at the smallest id and skips what is converted.

A file that locks several tables may deadlock with the running release; it was rolled back, and is tried again.

Invariants: a file and its record are committed together; appliers exclude each other with a lock of the
transaction, so any number may start at once; a file that was applied and then changed is an error,
because the state of the database would be unknown. Records of files that are not here are
ignored: an older release may run on a newer database. A server that is or becomes unavailable is
`Unavailable`, and everything may be tried again.

The tables of the job queue belong to a library (`libraries.py`); its files follow ours and are recorded beside them,
but not compared.
"""

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal, TypeVar, cast

import msgspec
import psycopg
from psycopg import pq

from runyard.db.address import whole
from runyard.db.contract import DatabaseError, Unavailable
from runyard.db.libraries import Library, Step, queue

Result = TypeVar("Result")
Phase = Literal["pre", "post", "all"]

_NAME = re.compile(r"(\d{4})_(pre|post)_([a-z0-9_]+)\.sql")
_BATCH = ".batch.sql"
_LOCK = 0x72756E79617264  # "runyard" in ASCII
_BEFORE_ALL = -(2**63)  # less than any id
_ATTEMPTS = 5  # of a transaction that deadlocks with the running release
_PATIENCE = (
    5  # seconds for a connection; a server that is unavailable is not waited for without end
)
_TABLE = """
CREATE TABLE IF NOT EXISTS runyard_migrations (
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
)
"""


class MigrationError(DatabaseError):
    """The migrations cannot be applied; the message says which file and why."""


class Migration(msgspec.Struct, frozen=True):
    """One file of the history."""

    number: int
    phase: str
    name: str
    sql: str
    batch: str = ""  # repeated before the file until it changes no row

    @property
    def checksum(self) -> str:
        """Over the text with plain line ends, so that a checkout on another system agrees."""
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()


def history(source: Traversable | None = None) -> tuple[Migration, ...]:
    """Every migration of a folder (ours, if none is given) in the order of application."""
    folder = resources.files("runyard.db") / "migrations" if source is None else source
    found: dict[tuple[int, str], Migration] = {}
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    batches = {
        file.name.removesuffix(_BATCH) + ".sql": file.read_text(encoding="utf-8")
        for file in files
        if file.name.endswith(_BATCH)
    }
    for file in files:
        if not file.name.endswith(".sql") or file.name.endswith(_BATCH):
            continue
        match = _NAME.fullmatch(file.name)
        if match is None:
            raise MigrationError(
                f"{file.name}: a migration is called NNNN_pre_what.sql or NNNN_post_what.sql"
            )
        key = (int(match[1]), match[2])
        if key in found:
            raise MigrationError(
                f"{file.name} and {found[key].name} have the same number and phase: rename one of them"
            )
        text = file.read_text(encoding="utf-8")
        batch = batches.pop(file.name, "")
        found[key] = Migration(number=key[0], phase=key[1], name=file.name, sql=text, batch=batch)
    for name in batches:
        raise MigrationError(f"{name.removesuffix('.sql')}{_BATCH}: there is no {name} beside it")
    return tuple(sorted(found.values(), key=lambda each: (each.number, each.phase != "pre")))


def pending(
    conninfo: str, *, phase: Phase = "all", source: Traversable | None = None
) -> tuple[str, ...]:
    """The names of what `apply` would apply; raises `MigrationError` when a file was changed."""
    files = history(source)
    with _connected(conninfo) as link:
        there = link.execute("SELECT to_regclass('runyard_migrations') IS NOT NULL").fetchone()
        applied = _applied(link) if there and there[0] else {}
    _verify(files, applied)
    ours = tuple(file.name for file in _due(files, applied, phase))
    return ours if source is not None else ours + _names(queue(), applied, phase)


def foreign(conninfo: str) -> bool:
    """Return whether the database belongs to another application: it has tables, and none of ours."""
    with _connected(conninfo) as link:
        row = link.execute(
            "SELECT to_regclass('runyard_migrations') IS NULL AND EXISTS ("
            " SELECT FROM pg_catalog.pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema'))"
        ).fetchone()
    return bool(row and row[0])


def apply(
    conninfo: str, *, phase: Phase = "all", source: Traversable | None = None
) -> tuple[str, ...]:
    """Apply the pending migrations and return their names, which may be none."""
    files = history(source)
    with _connected(conninfo) as link:
        try:
            with link.transaction():
                link.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                link.execute(_TABLE)
                applied = _applied(link)
        except psycopg.Error as error:
            if link.broken:
                raise
            raise MigrationError(
                f"the table runyard_migrations cannot be written: {error}"
            ) from error
        _verify(files, applied)
        due = _due(files, applied, phase)
        if phase == "post":
            _refuse_early_post(files, applied, due)
        names = tuple(file.name for file in due if _apply_one(link, file))
        return names if source is not None else names + _apply_library(link, queue(), phase)


def _names(library: Library, applied: dict[str, str], phase: Phase) -> tuple[str, ...]:
    return tuple(step.name for step in library.due(applied) if phase in {"all", step.phase})


def _apply_library(
    link: psycopg.Connection[Any], library: Library, phase: Phase
) -> tuple[str, ...]:
    """Apply what is due of a library, each step in a transaction of its own."""
    names: list[str] = []
    for name in _names(library, _applied(link), phase):
        try:
            with link.transaction():
                link.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                applied = _applied(link)
                due = {step.name: step for step in library.due(applied)}
                if name in due:  # no other process was faster
                    _refuse_foreign_tables(link, library, due[name])
                    _apply_step(link, due[name], applied)
                    names.append(name)
        except psycopg.Error as error:
            if link.broken:
                raise
            raise MigrationError(f"{name} failed and was rolled back: {error}") from error
    return tuple(names)


def _refuse_foreign_tables(link: psycopg.Connection[Any], library: Library, step: Step) -> None:
    there = link.execute("SELECT to_regclass(%s) IS NOT NULL", [library.table]).fetchone()
    if step.covers and there and there[0]:
        raise MigrationError(
            f"{library.table} exists, and runyard did not create it: give {library.name}'s tables another"
            " schema or database, or drop them"
        )


def _apply_step(link: psycopg.Connection[Any], step: Step, applied: dict[str, str]) -> None:
    link.execute(cast("Any", step.sql))
    if link.info.transaction_status != pq.TransactionStatus.INTRANS:
        raise MigrationError(f"{step.name} ends its transaction: remove its COMMIT or ROLLBACK")
    checksum = hashlib.sha256(step.sql.encode()).hexdigest()
    for name in (step.name, *step.covers):
        if name not in applied:
            link.execute(
                "INSERT INTO runyard_migrations (name, checksum) VALUES (%s, %s)", [name, checksum]
            )


def _apply_one(link: psycopg.Connection[Any], file: Migration) -> bool:
    """Apply one file unless another applier did so while we waited for the lock."""
    try:
        if file.batch:
            _apply_batches(link, file)
        return _without_deadlock(functools.partial(_apply_file, link, file))
    except psycopg.Error as error:
        if link.broken:
            raise
        raise MigrationError(f"{file.name} failed and was rolled back: {error}") from error


def _apply_file(link: psycopg.Connection[Any], file: Migration) -> bool:
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        applied = _applied(link)
        _verify((file,), applied)
        if file.name in applied:
            return False
        link.execute(cast("Any", file.sql))
        if link.info.transaction_status != pq.TransactionStatus.INTRANS:
            raise MigrationError(f"{file.name} ends its transaction: remove its COMMIT or ROLLBACK")
        link.execute(
            "INSERT INTO runyard_migrations (name, checksum) VALUES (%s, %s)",
            [file.name, file.checksum],
        )
    return True


def _apply_batches(link: psycopg.Connection[Any], file: Migration) -> None:
    """Run a file's batch, each time after the ids of the run before, until it changes no row."""
    after: int | None = _BEFORE_ALL
    while after is not None:
        after = _without_deadlock(functools.partial(_apply_batch, link, file, after))


def _apply_batch(link: psycopg.Connection[Any], file: Migration, after: int) -> int | None:
    """Run a file's batch once; return the largest id that it changed, or None if it changed no row."""
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if file.name in _applied(link):
            return None
        # A new column has no statistics yet: without this, each batch would read and sort the whole table.
        link.execute("SET LOCAL enable_sort = off")
        rows = link.execute(cast("Any", file.batch), {"after": after}).fetchall()
    return max((int(row[0]) for row in rows), default=None)


def _without_deadlock(transaction: Callable[[], Result]) -> Result:
    """Run a transaction again if Postgres ended it because of a deadlock; the last failure is raised."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            return transaction()
    return transaction()


@contextlib.contextmanager
def _connected(conninfo: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection; an error that breaks it is `Unavailable`."""
    address = whole(conninfo, connect_timeout=_PATIENCE)
    try:
        link = psycopg.connect(address, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise Unavailable(f"no connection: {error}") from error
    try:
        with link:
            yield link
    except psycopg.Error as error:
        if link.broken:
            raise Unavailable(f"the connection was lost: {error}") from error
        raise DatabaseError(f"the schema cannot be read: {error}") from error


def _applied(link: psycopg.Connection[Any]) -> dict[str, str]:
    rows = link.execute("SELECT name, checksum FROM runyard_migrations ORDER BY name").fetchall()
    return {str(name): str(checksum) for name, checksum in rows}


def _verify(files: Sequence[Migration], applied: dict[str, str]) -> None:
    for file in files:
        if applied.get(file.name, file.checksum) != file.checksum:
            raise MigrationError(
                f"{file.name} was changed after it had been applied: restore it and write the change "
                "as a new migration"
            )


def _due(
    files: Sequence[Migration], applied: dict[str, str], phase: Phase
) -> tuple[Migration, ...]:
    return tuple(
        file for file in files if file.name not in applied and phase in {"all", file.phase}
    )


def _refuse_early_post(
    files: Sequence[Migration], applied: dict[str, str], due: Sequence[Migration]
) -> None:
    """A `post` file may rely on every `pre` file up to its number."""
    last = max((file.number for file in due), default=-1)
    for file in files:
        if file.phase == "pre" and file.number <= last and file.name not in applied:
            raise MigrationError(f"{file.name} is still pending: apply the pre phase first")
