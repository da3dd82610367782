"""Executes prepared statements on one connection with little overhead.

The simulator runs hundreds of thousands of statements, and a server some fifty for each job. A cursor's generality
(generators, waiting, row factories looked up each time) costs more than Postgres does, so this uses libpq
directly: a statement is parsed once, prepared once for each combination of parameter types, and then only executed.
Values are adapted by psycopg's own transformer, so they have the types that a cursor would give them.

`PreparedStatements` blocks, for the simulator; `AwaitedStatements` waits with the event loop, for servers.
"""

import asyncio
import re
import select
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import abc, pq
from psycopg.adapt import PyFormat, Transformer

from runyard.db.contract import Row, Statement

_PLACEHOLDER = re.compile(r"%(?:(%)|\((\w+)\)s)?")


class Result:
    """The result of one statement; rows are decoded on request."""

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
    """The prepared statements of one connection, with the types of their parameters and results."""

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

    def _send(
        self, first: tuple[bytes, ...], calls: "list[_Call]", last: tuple[bytes, ...] = ()
    ) -> "_Batch":
        """Queue commands and statements in pipeline mode; a statement that is new is prepared on the way."""
        link = self._link
        link.enter_pipeline_mode()
        for command in first:
            link.send_query_params(command, None)
        steps: list[_Call | None] = [None] * len(first)  # None: not a statement of the caller
        new: dict[int, tuple[tuple[str, tuple[int, ...]], bytes]] = {}
        names = []
        coming: dict[tuple[str, tuple[int, ...]], bytes] = {}
        for call in calls:
            name = self._names.get(call.key) or coming.get(call.key)
            if name is None:
                name = coming[call.key] = b"s%d" % (len(self._names) + len(coming))
                link.send_prepare(name, call.text, call.types)
                new[len(steps)] = (call.key, name)
                steps.append(None)
            link.send_query_prepared(name, call.values, call.formats)
            steps.append(call)
            names.append(name)
        for command in last:
            link.send_query_params(command, None)
            steps.append(None)
        link.pipeline_sync()
        return _Batch(steps, new, names)

    def _received(self, batch: "_Batch", answers: list[pq.abc.PGresult | None]) -> list[Result]:
        """Return the results of the batch's statements; raise the first error among the answers."""
        link = self._link
        if link.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(link.get_error_message())
        link.exit_pipeline_mode()
        received = [answer for answer in answers if answer is not None][
            :-1
        ]  # the last one is the sync's
        for step, (key, name) in batch.new.items():
            if received[step].status in _GOOD:
                self._names[key] = name  # it is prepared, also if executing it failed
        bad = [answer for answer in received if answer.status not in _GOOD]
        if bad:
            raise self._error(bad[0])
        raws = [
            answer for step, answer in zip(batch.steps, received, strict=True) if step is not None
        ]
        return [self._result(raw, name) for raw, name in zip(raws, batch.names, strict=True)]

    def _error(self, raw: pq.abc.PGresult) -> psycopg.Error:
        """Build the error; a broken connection has no SQLSTATE."""
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


class _Batch(NamedTuple):
    """What was sent in one pipeline, step by step."""

    steps: list[_Call | None]
    new: dict[
        int, tuple[tuple[str, tuple[int, ...]], bytes]
    ]  # statements that are prepared, by their step
    names: list[bytes]  # of the statements, in order

    @property
    def answers(self) -> int:
        """Each step is answered and closed by an empty answer; the sync at the end by one answer."""
        return 2 * len(self.steps) + 1


class PreparedStatements(_Statements):
    """The statements of a connection that blocks."""

    def execute(
        self, sql: str, params: dict[str, object], *, first: tuple[bytes, ...] = ()
    ) -> Result:
        """Run one statement, after the commands in `first`, in one round trip; raises psycopg's errors."""
        call = self._call(sql, params)
        name = self._names.get(call.key)
        if name is None or first:
            return self._together(first, [call])[0]
        return self._result(self._link.exec_prepared(name, call.values, call.formats), name)

    def several(
        self, statements: Sequence[Statement], *, first: tuple[bytes, ...] = ()
    ) -> list[Result]:
        """Run statements in order, after the commands in `first`, in one round trip."""
        return self._together(first, [self._call(sql, params) for sql, params in statements])

    def command(self, text: bytes) -> None:
        """Run a command without parameters and rows."""
        raw = self._link.exec_(text)
        if raw.status not in _GOOD:
            raise self._error(raw)

    def settle(self) -> bool:
        """Read the answers to what was sent without waiting; False if the connection is unusable."""
        try:
            while self._answer() is not None:
                pass
        except psycopg.Error:
            return False
        return self._link.status == pq.ConnStatus.OK

    def _together(self, first: tuple[bytes, ...], calls: list[_Call]) -> list[Result]:
        batch = self._send(first, calls)
        link = self._link
        while link.flush():  # reads meanwhile: a server whose responses are not read stops reading
            select.select([link.socket], [link.socket], [])
            link.consume_input()
        return self._received(batch, [self._answer() for _ in range(batch.answers)])

    def _answer(self) -> pq.abc.PGresult | None:
        """The next answer. The wait lets other threads run; libpq's own would not."""
        link = self._link
        while link.is_busy():
            select.select([link.socket], [], [])
            link.consume_input()
        return link.get_result()


class AwaitedStatements(_Statements):
    """The statements of a connection that the event loop waits for. One at a time."""

    async def execute(
        self, sql: str, params: dict[str, object], *, first: tuple[bytes, ...] = ()
    ) -> Result:
        """Run one statement, after the commands in `first`, in one round trip; raises psycopg's errors."""
        call = self._call(sql, params)
        name = self._names.get(call.key)
        if name is None or first:
            return (await self._together(first, [call]))[0]
        self._link.send_query_prepared(name, call.values, call.formats)
        return self._result(await self._only(), name)

    async def several(
        self,
        statements: Sequence[Statement],
        *,
        first: tuple[bytes, ...] = (),
        last: tuple[bytes, ...] = (),
    ) -> list[Result]:
        """Run statements in order, between the commands in `first` and `last`, in one round trip.

        After a statement that fails none of the following and none of `last` is executed.
        """
        calls = [self._call(sql, params) for sql, params in statements]
        return await self._together(first, calls, last)

    async def command(self, text: bytes) -> None:
        """Run a command without parameters and rows."""
        self._link.send_query(text)
        raw = await self._only()
        if raw.status not in _GOOD:
            raise self._error(raw)

    async def _together(
        self, first: tuple[bytes, ...], calls: list[_Call], last: tuple[bytes, ...] = ()
    ) -> list[Result]:
        batch = self._send(first, calls, last)
        await self._sent()
        return self._received(batch, [await self._answer() for _ in range(batch.answers)])

    async def _only(self) -> pq.abc.PGresult:
        await self._sent()
        answer = await self._answer()
        while await self._answer() is not None:
            pass
        if answer is None:
            raise psycopg.OperationalError(self._link.get_error_message())
        return answer

    async def _sent(self) -> None:
        """Send what is queued, and read meanwhile: a server whose responses are not read stops reading."""
        link = self._link
        while link.flush():
            await _event(link.socket, write=True)
            link.consume_input()

    async def _answer(self) -> pq.abc.PGresult | None:
        link = self._link
        while link.is_busy():
            await _event(link.socket)
            link.consume_input()
        return link.get_result()


async def _event(socket: int, *, write: bool = False) -> None:
    """Wait until the socket can be read from; with `write`, until it can be read from or written to."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(socket, _set_done, ready)
    if write:
        loop.add_writer(socket, _set_done, ready)
    try:
        await ready
    finally:
        loop.remove_reader(socket)
        if write:
            loop.remove_writer(socket)


def _set_done(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


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
