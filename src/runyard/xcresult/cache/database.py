"""Reads Apple's cache of a bundle, an untrusted SQLite file, as tables of plain rows.

A database can contain code: views and triggers, computed columns, functions in the schema. So only stored columns of
ordinary tables are read, one table at a time; a file with anything else is refused. A column may have the name of
SQLite's own key of a row: it must not be computed, and keys must increase, because equal ones multiply rows without
end. The file is opened read-only and immutable (no journal is replayed, no lock is taken, nothing is written beside
it).

Limits, each a `TooLarge`: the size of the file, of one value, the rows of all tables, the memory of the rows that are
kept, and the number of SQLite steps, which bounds the time without a clock. A row that others refer to is counted again
each time it is used: a few thousand rows could otherwise be combined to billions.

Apple's tool changes its tables between versions. A missing table or column reads as empty: `Row` returns an empty text,
zero or None.
"""

import math
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from runyard.db.statements import load
from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.budget import ROW, Budget

FILE_BYTES = 4 * 2**30
VALUE_BYTES = 16 * 2**20
ROWS = 2_000_000
STEPS = 200_000_000
STRIDE = 1_000_000
ROW_BYTES = 400
"""Memory of a row that is kept, in its group, and of what is built from it; its values are added."""
USED_BYTES = 256
"""Memory of another use of a row; longer texts are added."""
STATEMENTS = load("runyard.xcresult.cache")

Value = str | int | float | bytes | None


class Row:
    """One row by column name. Each method returns its own type, whatever type is stored."""

    __slots__ = ("_names", "_values", "id")

    def __init__(self, names: Mapping[str, int], values: tuple[Value, ...]) -> None:
        self._names = names
        self._values = values
        self.id = self.integer("rowid")

    def _get(self, name: str) -> Value:
        index = self._names.get(name)
        return None if index is None else self._values[index]

    def text(self, *names: str) -> str:
        """The text of the first of these columns that has one."""
        for name in names:
            value = self._get(name)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, int | float):
                return str(value)
        return ""

    def integer(self, name: str) -> int:
        """A whole number, or a key of another table; 0 means no key."""
        value = self._get(name)
        return value if isinstance(value, int) else 0

    def real(self, name: str) -> float | None:
        """A number with a fraction; None when there is none."""
        value = self._get(name)
        return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else None

    def flag(self, *names: str, default: bool) -> bool:
        """The first of these columns that has a truth value."""
        values = (self._get(name) for name in names)
        return next((value != 0 for value in values if isinstance(value, int)), default)

    @property
    def size(self) -> int:
        """The memory of its values."""
        return sum(map(_bytes_of, self._values))


class Keyed:
    """The rows of a table by their key. Each use is counted, because any number of rows may refer to one."""

    def __init__(self, rows: Iterable[Row], budget: Budget) -> None:
        self._rows = {row.id: row for row in rows}
        self._budget = budget

    def get(self, key: int) -> Row | None:
        """The row with this key."""
        row = self._rows.get(key)
        if row is not None:
            self._budget.spend(1)
            self._budget.hold(
                max(0, row.size - USED_BYTES)
            )  # the row that refers to it has the rest
        return row

    def values(self) -> Iterable[Row]:
        """All rows, in the order in which they were written."""
        return self._rows.values()


class Database:
    """The tables of one cache."""

    def __init__(self, connection: sqlite3.Connection, budget: Budget) -> None:
        self._connection = connection
        self.budget = budget
        self._tables = _tables(connection)
        if "Actions" not in self._tables:  # SQLite accepts an empty file as a database
            raise BundleInvalid(
                "database.sqlite3 is not a cache of a result bundle: it has no table Actions"
            )
        self._rows = 0

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table in stored order, to be kept; none if the table does not exist."""
        for row in self._stored(table):
            self._keep(row)
            yield row

    def _keep(self, row: Row) -> None:
        self.budget.hold(ROW_BYTES + row.size)

    def _stored(self, table: str) -> Iterator[Row]:
        if table not in self._tables:
            return
        columns: list[str] = []
        for name, hidden in self._connection.execute(STATEMENTS.columns, {"table": table}):
            is_key = name.lower() == "rowid"
            if is_key and hidden:
                raise BundleInvalid(f"database.sqlite3 computes the keys of {table}")
            if not (is_key or hidden):
                columns.append(name)
        if not columns:
            return
        names = {name: index for index, name in enumerate(["rowid", *columns])}
        statement = STATEMENTS.rows.format(
            columns=", ".join(_quoted(name) for name in columns), table=_quoted(table)
        )
        last = -math.inf
        for values in self._connection.execute(statement):
            self._rows += 1
            if self._rows > ROWS:
                raise TooLarge(f"database.sqlite3 has more than {ROWS} rows")
            self.budget.spend(ROW + len(values))
            row = Row(names, values)
            if row.id <= last:
                raise BundleInvalid(f"database.sqlite3 has two rows with one key in {table}")
            last = row.id
            yield row

    def by_id(self, table: str) -> Keyed:
        """The rows of a table by their key."""
        return Keyed(self.rows(table), self.budget)

    def again(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Count another use of these rows, and return them."""
        self.budget.spend(len(rows))
        self.budget.hold(sum(max(USED_BYTES, row.size) for row in rows))
        return rows

    def grouped(self, table: str, key: str, *, order: str = "") -> dict[int, list[Row]]:
        """The rows of a table, grouped by a key of another table and sorted."""
        groups: dict[int, list[Row]] = {}
        for row in self._stored(table):
            owner = row.integer(key)
            if owner:
                self._keep(row)
                groups.setdefault(owner, []).append(row)
        if order:
            for rows in groups.values():
                rows.sort(key=lambda row: row.integer(order))
        return groups


@contextmanager
def opened(path: Path, *, budget: Budget | None = None) -> Iterator[Database]:
    """Open a database file; errors of SQLite become `BundleInvalid`. The rows are spent from `budget`."""
    _check_file(path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            steps = _guarded(connection)
            try:
                yield Database(connection, budget or Budget())
            except sqlite3.OperationalError as error:
                if steps.spent():
                    raise TooLarge(f"database.sqlite3 needs more than {STEPS} steps") from error
                raise
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeDecodeError) as error:
        raise BundleInvalid(f"database.sqlite3 cannot be read: {error}") from error


def _check_file(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise BundleInvalid("the bundle has no database.sqlite3") from None
    if not stat.S_ISREG(found.st_mode):
        raise BundleInvalid("database.sqlite3 is not a regular file")
    if found.st_size > FILE_BYTES:
        raise TooLarge(f"database.sqlite3 is larger than {FILE_BYTES} bytes")


class _Steps:
    """Counts SQLite's steps, and interrupts it at the limit."""

    def __init__(self) -> None:
        self._taken = 0

    def tick(self) -> bool:
        self._taken += STRIDE
        return self.spent()

    def spent(self) -> bool:
        return self._taken >= STEPS


def _guarded(connection: sqlite3.Connection) -> _Steps:
    steps = _Steps()
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.set_progress_handler(steps.tick, STRIDE)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return steps


def _tables(connection: sqlite3.Connection) -> set[str]:
    tables = set[str]()
    for kind, name, page in connection.execute(STATEMENTS.schema):
        if kind not in {"table", "index"} or not page:
            raise BundleInvalid(
                f"database.sqlite3 has a {kind} that Apple's tool does not create: {name!r}"
            )
        if kind == "table":
            tables.add(name)
    return tables


def _bytes_of(value: Value) -> int:
    """The memory of a value in a row."""
    return 8 + (49 + len(value) if isinstance(value, str | bytes) else 0 if value is None else 24)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
