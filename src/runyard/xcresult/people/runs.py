"""Runs as people see them: pages of runs, one run with its shards merged, its modules, suites and cases.

Everything is asked within a scope, row by row: a run of somebody else's is not there.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.wire import testruns as wire
from runyard.xcresult.people import cursors
from runyard.xcresult.people.refusing import nothing
from runyard.xcresult.people.tokens import Scope
from runyard.xcresult.plans.merging import state_of, status_of

SQL = load("runyard.xcresult.people")
FAILURES_SHOWN = 5  # of each case, in a page of them
ISSUES_SHOWN = 500
_SUMMED = ("cases", "failed", "skipped", "flaky")


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs; empty is any."""

    account: str = ""
    project: str = ""
    branch: str = ""
    commit: str = ""
    scheme: str = ""
    ci_run: str = ""
    state: str = ""
    status: str = ""
    flaky: bool = False


class CaseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases of a run; empty is any."""

    status: str = ""
    module: str = ""
    suite: str = ""
    name: str = ""
    flaky: bool = False


class Runs:
    """Reads runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, which: RunFilter, *, scope: Scope, cursor: str, limit: int
    ) -> wire.TestRuns:
        """Some runs, newest first."""
        micros, after, _ = cursors.moment(cursor)
        if not scope.holds(which.account or scope.account, which.project or scope.project):
            return wire.TestRuns(items=())
        asked = msgspec.structs.asdict(which)
        asked["account"] = which.account or scope.account
        asked["project"] = which.project or scope.project

        async def work(tx: Tx) -> wire.TestRuns:
            found = await tx.all(
                SQL.runs_page, **asked, micros=micros, after=after, limit=limit + 1
            )
            shown = found[:limit]
            runs = [row["run_id"] for row in shown]
            rows = await tx.all(SQL.runs_shards, runs=runs, **of_scope(scope))
            last = shown[-1] if len(found) > limit else None
            return wire.TestRuns(
                items=tuple(_merged([row for row in rows if row["run_id"] == run]) for run in runs),
                next="" if last is None else cursors.of(last["micros"], last["run_id"]),
            )

        return await self._database.transact(work, name="test runs")

    async def show(self, run_id: str, *, scope: Scope) -> wire.RunDetail:
        """One run."""

        async def work(tx: Tx) -> wire.RunDetail:
            rows = await tx.all(SQL.runs_shards, runs=[run_id], **of_scope(scope))
            if not rows:
                raise nothing("run")
            said = await tx.all(SQL.run_said, run_id=run_id, **of_scope(scope))
            return wire.RunDetail(
                run=_merged(rows),
                destinations=tuple(
                    msgspec.convert(each, wire.Destination) for each in _once(said, "destinations")
                ),
                errors=_once(said, "errors"),
                warnings=_once(said, "warnings"),
                build_issues=_once(said, "build_issues"),
            )

        return await self._database.transact(work, name="test run")

    async def modules(self, run_id: str, *, scope: Scope, cursor: str, limit: int) -> wire.Modules:
        """Modules of a run."""
        shard, number = cursors.numbers(cursor, 2)
        asked = {"shard": shard, "number": number}
        rows, following = await self._of_run(run_id, SQL.modules_page, scope, limit, asked)
        return wire.Modules(items=_structs(rows, wire.Module), next=following)

    async def suites(
        self, run_id: str, *, module: str, scope: Scope, cursor: str, limit: int
    ) -> wire.Suites:
        """Suites of a run."""
        shard, number = cursors.numbers(cursor, 2)
        asked = {"shard": shard, "number": number, "module": module}
        rows, following = await self._of_run(run_id, SQL.suites_page, scope, limit, asked)
        return wire.Suites(items=_structs(rows, wire.Suite), next=following)

    async def cases(
        self, run_id: str, which: CaseFilter, *, scope: Scope, cursor: str, limit: int
    ) -> wire.CaseRuns:
        """Cases of a run, each with its first failures."""
        shard, number = cursors.numbers(cursor, 2)
        asked = {"shard": shard, "number": number, **msgspec.structs.asdict(which)}

        async def work(tx: Tx) -> wire.CaseRuns:
            await self.known(tx, run_id, scope)
            found = await tx.all(
                SQL.cases_page, run_id=run_id, **of_scope(scope), **asked, limit=limit + 1
            )
            shown = found[:limit]
            failed = [row for row in shown if row["status"] == "failure" or row["is_flaky"]]
            failures = await tx.all(
                SQL.failures_of, run_id=run_id, **places(failed), most=FAILURES_SHOWN
            )
            items = tuple(_case(row, failures) for row in shown)
            return wire.CaseRuns(items=items, next=_next(found, limit))

        return await self._database.transact(work, name="test cases of run")

    async def known(self, tx: Tx, run_id: str, scope: Scope) -> None:
        """Raises unless there is such a run in the scope."""
        if not await tx.one(SQL.run_said, run_id=run_id, **of_scope(scope)):
            raise nothing("run")

    async def _of_run(
        self, run_id: str, sql: str, scope: Scope, limit: int, asked: dict[str, Any]
    ) -> tuple[list[Row], str]:
        async def work(tx: Tx) -> tuple[list[Row], str]:
            await self.known(tx, run_id, scope)
            found = await tx.all(sql, run_id=run_id, **of_scope(scope), **asked, limit=limit + 1)
            return found[:limit], _next(found, limit)

        return await self._database.transact(work, name="parts of test run")


def of_scope(scope: Scope) -> dict[str, object]:
    """What every statement is asked with."""
    return {"account": scope.account, "project": scope.project}


def places(rows: Sequence[Row]) -> dict[str, object]:
    """Some cases of a run, for the statements that take several."""
    return {
        "shards": [row["shard_index"] for row in rows],
        "numbers": [row["number"] for row in rows],
    }


def failure_of(row: Row) -> wire.Failure:
    """A row as a failure."""
    return wire.Failure(
        message=row["message"],
        path=row["path"],
        line_number=row["line_number"],
        issue_type=row["issue_type"],
    )


def _case(row: Row, failures: Sequence[Row]) -> wire.CaseRun:
    own = (
        failure_of(each)
        for each in failures
        if (each["shard"], each["number"]) == (row["shard_index"], row["number"])
    )
    return msgspec.convert({**row, "failures": tuple(own)}, wire.CaseRun)


def _next(found: Sequence[Row], limit: int) -> str:
    if len(found) <= limit:
        return ""
    last = found[limit - 1]
    return cursors.of(last["shard_index"], last["number"])


def _structs(rows: Sequence[Row], kind: Any) -> Any:
    return tuple(msgspec.convert(row, kind) for row in rows)


def _merged(rows: Sequence[Row]) -> wire.TestRun:
    """The shards of one run as one; what the client said is said by the first of them."""
    first = rows[0]
    whole = {
        **first,
        "id": first["run_id"],
        "state": state_of([row["state"] for row in rows]),
        "status": status_of([row["status"] for row in rows]),
        "duration_ms": max(row["duration_ms"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in _SUMMED},
        "shards": _structs(rows, wire.ShardOfRun),
    }
    return msgspec.convert(whole, wire.TestRun)


def _once(said: Sequence[Row], column: str) -> tuple[Any, ...]:
    """What all shards say, without repetitions, and not without end."""
    found = {
        msgspec.json.encode(each, order="sorted"): each for row in said for each in row[column]
    }
    return tuple(found.values())[:ISSUES_SHOWN]
