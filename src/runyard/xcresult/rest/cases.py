"""Reads one case of a run with everything below it, and its attachments.

A link to an attachment is made on request and expires. It leads to our own route, whose headers keep a browser from
displaying the file, or to S3 if the operator configured that.
"""

from collections.abc import Sequence

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.links import Links
from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.wire import testruns as wire
from runyard.xcresult.rest import cursors
from runyard.xcresult.rest.problems import not_found
from runyard.xcresult.rest.runs import failure_of, of_scope, places
from runyard.xcresult.rest.settings import Settings
from runyard.xcresult.rest.tokens import Scope

SQL = load("runyard.xcresult.rest")
EXECUTIONS_SHOWN = 50
BELOW_SHOWN = 1000  # arguments, repetitions, failures, attachments, each


class _Below(msgspec.Struct, frozen=True, kw_only=True):
    """Rows below the executions of a case."""

    failures: list[Row]
    arguments: list[Row]
    repetitions: list[Row]
    attachments: list[Row]
    crashes: list[Row]


class Cases:
    """Reads cases and attachments."""

    def __init__(
        self, database: Database, *, blobs: Blobs, links: Links, clock: Clock, settings: Settings
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._links = links
        self._clock = clock
        self._settings = settings

    async def show(self, run_id: str, case: str, *, scope: Scope, base: str) -> wire.CaseDetail:
        """One case of a run."""

        async def work(tx: Tx) -> tuple[Row, list[Row], _Below]:
            params = {"run_id": run_id, "case": case, **of_scope(scope)}
            found = await tx.all(SQL.executions_of, **params, limit=EXECUTIONS_SHOWN)
            test = await tx.one(SQL.test_of, cases=[case], **of_scope(scope))
            if not found or test is None:
                raise not_found("case in this run")
            return test, found, await _below(tx, found, params)

        test, found, below = await self._database.transact(work, name="test case of run")
        attachments = [
            (row["shard"], row["number"], await self._attachment(row, base))
            for row in below.attachments
        ]
        return wire.CaseDetail(
            run=run_id,
            test=msgspec.convert(test, wire.Test),
            executions=tuple(_execution(row, below, attachments) for row in found),
        )

    async def attachments(
        self, run_id: str, *, case: str | None, scope: Scope, cursor: str, limit: int, base: str
    ) -> wire.Attachments:
        """Attachments of a run, or of one case of it."""
        shard, after, place = cursors.numbers(cursor, 3)

        async def work(tx: Tx) -> list[Row]:
            params = {"run_id": run_id, **of_scope(scope)}
            if not await tx.one(SQL.run_facts, **params):
                raise not_found("run")
            return await tx.all(
                SQL.attachments_page,
                **params,
                case=case,
                shard=shard,
                after=after,
                place=place,
                limit=limit + 1,
            )

        rows = await self._database.transact(work, name="attachments of test run")
        last = rows[limit - 1] if len(rows) > limit else None
        return wire.Attachments(
            items=tuple([await self._attachment(row, base) for row in rows[:limit]]),
            next="" if last is None else cursors.of(last["shard"], last["number"], last["place"]),
        )

    async def attachment(self, attachment: str, *, scope: Scope, base: str) -> wire.Attachment:
        """One attachment."""

        async def work(tx: Tx) -> Row | None:
            return await tx.one(SQL.attachment_of, attachment=attachment, **of_scope(scope))

        row = await self._database.transact(work, name="test attachment")
        if row is None:
            raise not_found("attachment")
        return await self._attachment(row, base)

    async def _attachment(self, row: Row, base: str) -> wire.Attachment:
        lasts, key = self._settings.link_lasts, row["storage_key"]
        direct = ""
        if self._settings.direct_downloads:
            direct = await self._blobs.presign("GET", key, lasts=lasts)
        url = direct or base + self._links.get(key, lasts=lasts, name=row["file_name"])
        return msgspec.convert(
            {**row, "url": url, "expires_at": self._clock.now() + lasts}, wire.Attachment
        )


async def _below(tx: Tx, found: Sequence[Row], params: dict[str, object]) -> _Below:
    at = {"run_id": params["run_id"], **places(found)}
    return _Below(
        failures=await tx.all(SQL.failures_of, **at, most=BELOW_SHOWN),
        arguments=await tx.all(SQL.arguments_of, **at, limit=BELOW_SHOWN),
        repetitions=await tx.all(SQL.repetitions_of, **at, limit=BELOW_SHOWN),
        crashes=await tx.all(SQL.crashes_of, **at, limit=BELOW_SHOWN),
        attachments=await tx.all(
            SQL.attachments_page, **params, shard=-1, after=-1, place=-1, limit=BELOW_SHOWN
        ),
    )


def _execution(
    row: Row, below: _Below, attachments: Sequence[tuple[int, int, wire.Attachment]]
) -> wire.Execution:
    at = (row["shard_index"], row["number"])
    failures = _at(below.failures, at)
    repetitions = _at(below.repetitions, at)
    return msgspec.convert(
        {
            **row,
            "failures": _failures(failures, 0, 0),
            "repetitions": _repetitions(repetitions, failures, 0),
            "arguments": tuple(
                wire.Argument(
                    name=each["name"],
                    status=each["status"],
                    duration_ms=each["duration_ms"],
                    failures=_failures(failures, each["argument"], 0),
                    repetitions=_repetitions(repetitions, failures, each["argument"]),
                )
                for each in _at(below.arguments, at)
            ),
            "attachments": tuple(
                each for shard, number, each in attachments if (shard, number) == at
            ),
            "crashes": tuple(msgspec.convert(each, wire.Crash) for each in _at(below.crashes, at)),
        },
        wire.Execution,
    )


def _at(rows: Sequence[Row], at: tuple[int, int]) -> list[Row]:
    return [row for row in rows if (row["shard"], row["number"]) == at]


def _failures(rows: Sequence[Row], argument: int, repetition: int) -> tuple[wire.Failure, ...]:
    return tuple(
        failure_of(row)
        for row in rows
        if (row["argument"], row["repetition"]) == (argument, repetition)
    )


def _repetitions(
    rows: Sequence[Row], failures: Sequence[Row], argument: int
) -> tuple[wire.Repetition, ...]:
    return tuple(
        wire.Repetition(
            repetition_number=row["repetition_number"],
            name=row["name"],
            status=row["status"],
            duration_ms=row["duration_ms"],
            failures=_failures(failures, argument, row["repetition"]),
        )
        for row in rows
        if row["argument"] == argument
    )
