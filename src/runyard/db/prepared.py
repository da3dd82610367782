"""Run statements on one connection with as little Python in between as possible.

The simulator runs hundreds of thousands of statements, and a server some fifty for each job. A cursor's generality
(generators, waiting, row factories looked up each time) costs more than Postgres does, so this talks to libpq
directly: a statement is parsed once, prepared once for each combination of parameter types, and then only executed.
Values are adapted by psycopg's own transformer, so they have the types that a cursor would give them.

`PreparedStatements` blocks, for the simulator; `AwaitedStatements` waits with the event loop, for servers.
"""

import asyncio
import re
import select
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import abc, pq
from psycopg.adapt import PyFormat, Transformer

from runyard.db.contract import Row

_PLACEHOLDER = re.compile(r"%(?:(%)|\((\w+)\)s)?")


class Result:
    """What one statement answered; rows are made when asked for."""

    __slots__ = ("_names", "_raw", "_transformer")

    def __init__(
        self, raw: pq.abc.PGresult, names: tuple[str, ...], transformer: abc.Transformer
    ) -> None:
        self._raw = raw
        self._names = names
        self._transformer = transformer

    @property
    def touched(self) -> int:
        """How many rows the statement wrote or returned."""
        return self._raw.command_tuples or 0

    def rows(self, limit: int | None = None) -> list[Row]:
        """The rows as dictionaries, at most `limit` of them."""
        names, count = self._names, self._raw.ntuples
        if not count:
            return []
        self._transformer.set_pgresult(self._raw)
        end = count if limit is None else min(limit, count)
        return self._transformer.load_rows(0, end, lambda values: dict(zip(names, values)))  # noqa: B905 checking lengths costs in a hot loop


class _Statements:
    """The statements that one connection knows, and what their values and answers look like."""

    def __init__(
        self, connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
    ) -> None:
        self._link = connection.pgconn
        self._transformer: abc.Transformer = Transformer(connection)
        self._parsed: dict[str, tuple[bytes, tuple[str, ...], list[PyFormat]]] = {}
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._columns: dict[bytes, tuple[str, ...]] = {}

    def _call(self, sql: str, params: dict[str, object]) -> "_Call":
        """A statement with its values, ready to be sent."""
        known = self._parsed.get(sql)
        if known is None:
            known = self._parsed[sql] = _parse(sql)
        text, order, formats = known
        transformer = self._transformer
        try:
            values = transformer.dump_sequence([params[name] for name in order], formats)
        except KeyError as missing:
            raise psycopg.ProgrammingError(f"query parameter missing: {missing}") from None
        types = transformer.types or ()
        key = (sql, types)
        return _Call(text, types, key, cast("Any", values), transformer.formats)

    def _result(self, raw: pq.abc.PGresult, name: bytes) -> Result:
        if raw.status not in _GOOD:
            raise self._error(raw)
        columns = self._columns.get(name)
        if columns is None:
            columns = tuple((raw.fname(index) or b"").decode() for index in range(raw.nfields))
            self._columns[name] = columns
        return Result(raw, columns, self._transformer)

    def _error(self, raw: pq.abc.PGresult) -> psycopg.Error:
        """A connection that broke gives no SQLSTATE to tell the kind of error by."""
        if self._link.status != pq.ConnStatus.OK:
            return psycopg.OperationalError(self._link.get_error_message())
        return psycopg.errors.error_from_result(raw)


class _Call(NamedTuple):
    """One statement on its way."""

    text: bytes
    types: tuple[int, ...]
    key: tuple[str, tuple[int, ...]]
    values: Any
    formats: Any


class PreparedStatements(_Statements):
    """The statements of a connection that blocks."""

    def execute(
        self, sql: str, params: dict[str, object], *, first: tuple[bytes, ...] = ()
    ) -> Result:
        """Run one statement, after the commands in `first`, in one round trip; raises psycopg's errors."""
        call = self._call(sql, params)
        name = self._names.get(call.key)
        if name is None:
            name = self._prepare(call.text, call.types)
            self._names[call.key] = name
        if first:
            raw = self._together(first, name, call.values, call.formats)
        else:
            raw = self._link.exec_prepared(name, call.values, call.formats)
        return self._result(raw, name)

    def command(self, text: bytes) -> None:
        """Run a command without parameters and rows."""
        raw = self._link.exec_(text)
        if raw.status not in _GOOD:
            raise self._error(raw)

    def settle(self) -> bool:
        """Hear the answers to what was sent without waiting; False if the connection is no good any more."""
        try:
            while self._answer() is not None:
                pass
        except psycopg.Error:
            return False
        return self._link.status == pq.ConnStatus.OK

    def _together(
        self, first: tuple[bytes, ...], name: bytes, values: Any, formats: Any
    ) -> pq.abc.PGresult:
        """Send everything, then wait once. The first bad answer is the one that counts."""
        link = self._link
        link.enter_pipeline_mode()
        for command in first:
            link.send_query_params(command, None)
        link.send_query_prepared(name, values, formats)
        link.pipeline_sync()
        answers = [answer for answer in (self._answer() for _ in range(_answers(first))) if answer]
        if link.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(link.get_error_message())
        link.exit_pipeline_mode()
        bad = [answer for answer in answers[:-1] if answer.status not in _GOOD]
        return bad[0] if bad else answers[-2]

    def _answer(self) -> pq.abc.PGresult | None:
        """The next answer. The wait lets other threads run; libpq's own would not."""
        link = self._link
        while link.is_busy():
            select.select([link.socket], [], [])
            link.consume_input()
        return link.get_result()

    def _prepare(self, text: bytes, types: tuple[int, ...]) -> bytes:
        name = b"s%d" % len(self._names)
        raw = self._link.prepare(name, text, types)
        if raw.status != pq.ExecStatus.COMMAND_OK:
            raise self._error(raw)
        return name


class AwaitedStatements(_Statements):
    """The statements of a connection that the event loop waits for. One at a time."""

    async def execute(
        self, sql: str, params: dict[str, object], *, first: tuple[bytes, ...] = ()
    ) -> Result:
        """Run one statement, after the commands in `first`, in one round trip; raises psycopg's errors."""
        call = self._call(sql, params)
        name = self._names.get(call.key)
        if name is not None and not first:
            self._link.send_query_prepared(name, call.values, call.formats)
            return self._result(await self._only(), name)
        raw = await self._together(first, call, name)
        return self._result(raw, self._names[call.key])

    async def command(self, text: bytes) -> None:
        """Run a command without parameters and rows."""
        self._link.send_query(text)
        raw = await self._only()
        if raw.status not in _GOOD:
            raise self._error(raw)

    async def _together(
        self, first: tuple[bytes, ...], call: _Call, name: bytes | None
    ) -> pq.abc.PGresult:
        """Send everything, then wait once. The first bad answer is the one that counts."""
        link, new = self._link, b"s%d" % len(self._names)
        link.enter_pipeline_mode()
        for command in first:
            link.send_query_params(command, None)
        if name is None:
            link.send_prepare(new, call.text, call.types)
        link.send_query_prepared(name or new, call.values, call.formats)
        link.pipeline_sync()
        await self._sent()
        count = 2 * (len(first) + (name is None) + 1) + 1
        answers = [answer for _ in range(count) if (answer := await self._answer()) is not None]
        if link.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(link.get_error_message())
        link.exit_pipeline_mode()
        if name is None and answers[len(first)].status in _GOOD:
            self._names[call.key] = new  # it is known to the server, also if it has failed
        bad = [answer for answer in answers[:-1] if answer.status not in _GOOD]
        if bad:
            raise self._error(bad[0])
        return answers[-2]

    async def _only(self) -> pq.abc.PGresult:
        await self._sent()
        answer = await self._answer()
        while await self._answer() is not None:
            pass
        if answer is None:
            raise psycopg.OperationalError(self._link.get_error_message())
        return answer

    async def _sent(self) -> None:
        while self._link.flush():
            await _event(self._link.socket, write=True)

    async def _answer(self) -> pq.abc.PGresult | None:
        link = self._link
        while link.is_busy():
            await _event(link.socket)
            link.consume_input()
        return link.get_result()


async def _event(socket: int, *, write: bool = False) -> None:
    """Wait until the socket can be read from, or written to."""
    loop = asyncio.get_running_loop()
    happened = loop.create_future()
    add, remove = (
        (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    )
    add(socket, _ring, happened)
    try:
        await happened
    finally:
        remove(socket)


def _ring(happened: "asyncio.Future[None]") -> None:
    if not happened.done():
        happened.set_result(None)


def _answers(first: tuple[bytes, ...]) -> int:
    """Each statement is answered and closed by an empty answer; the sync at the end by one answer."""
    return 2 * (len(first) + 1) + 1


_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


def _parse(sql: str) -> tuple[bytes, tuple[str, ...], list[PyFormat]]:
    """`%(name)s` becomes `$1`, `%%` a percent sign; anything else after a percent sign is an error."""
    order: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        if match[2] is None:
            raise psycopg.ProgrammingError(
                "a percent sign that is no %(name)s placeholder must be written twice"
            )
        return f"${order.setdefault(match[2], len(order) + 1)}"

    text = _PLACEHOLDER.sub(place, sql).encode()
    return text, tuple(order), [PyFormat.AUTO] * len(order)
