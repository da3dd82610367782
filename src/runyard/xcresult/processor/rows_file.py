"""Writes and reads the file that carries rows from the child process to the transaction that loads them.

Each line is `TABLE<tab>JSON`, a batch of rows for one statement (`sql/load_TABLE.sql`). The parent passes the text on
without decoding it, so its memory does not grow with the bundle. Batches are in an order that can be loaded.

Invariant: Postgres accepts every value. It rejects NUL and half surrogate pairs, which untrusted text may contain; each
becomes U+FFFD. Texts are cut after `LONGEST` characters and numbers limited to `LARGEST`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from runyard.xcresult.reader.budget import ROW, WRITTEN_KIB, Budget

BATCH = 2000
BATCH_BYTES = 4 * 1024 * 1024
LONGEST = 100_000
LARGEST = 2**63 - 1
_REFUSED = re.compile("[\x00\ud800-\udfff]")

Row = dict[str, object]


def clean(text: str) -> str:
    """Replace characters that Postgres rejects, and cut the text."""
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    if text.isascii() and "\x00" not in text:
        return text
    return _REFUSED.sub("\ufffd", text)


def bounded(number: int) -> int:
    """Limit the number to the range of its column."""
    return max(min(number, LARGEST), -LARGEST)


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    return bounded(value) if isinstance(value, int) else value


class RowsFile:
    """Writes batches; a batch is written when it is full or when rows of another table begin."""

    def __init__(self, path: Path, *, budget: Budget | None = None) -> None:
        self._path = path
        self._budget = budget or Budget()
        self._file: BinaryIO | None = None
        self._table = ""
        self._rows: list[bytes] = []
        self._size = 0
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> Self:
        self._file = self._path.open("xb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        try:
            if error is None:
                self._flush()
        finally:
            self._file.close()

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows of one table; texts and numbers are cleaned here."""
        if table != self._table:
            self._flush()
            self._table = table
        for row in rows:
            text = self._encoder.encode({key: _cleaned(value) for key, value in row.items()})
            self._budget.spend(ROW)
            self._budget.spend_kib(len(text), WRITTEN_KIB)
            self._rows.append(text)
            self._size += len(text)
            if len(self._rows) >= BATCH or self._size >= BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._rows:
            assert self._file is not None
            self._file.write(b"%s\t[%s]\n" % (self._table.encode(), b",".join(self._rows)))
        self._rows, self._size = [], 0


def batches(path: Path, *tables: str) -> Iterator[tuple[str, str]]:
    """The batches of a file, or those of the named tables: table and text."""
    with path.open("rb") as file:
        for line in file:
            name, _, text = line.partition(b"\t")
            table = name.decode()
            if not tables or table in tables:
                yield table, text.decode().rstrip("\n")
