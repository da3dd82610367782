"""Reads runs: pages of runs, one run with its shards merged, its modules, suites and cases.

Every statement is limited to a scope: a run outside of it does not exist for the caller.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.wire import testruns as wire
from runyard.wire.reasons_results import ATTEMPTS
from runyard.xcresult.plans.merging import state_of, status_of
from runyard.xcresult.rest import cursors
from runyard.xcresult.rest.problems import not_found
from runyard.xcresult.rest.tokens import Scope

SQL = load("runyard.xcresult.rest")
FAILURES_SHOWN = 5  # of each case, in a page of them
ISSUES_SHOWN = 500
_SUMMED = ("cases", "failed", "skipped", "flaky")


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs; empty matches any."""

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
    """Which cases of a run; empty matches any."""

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
        """A page of runs, newest first."""
        micros, after, _ = cursors.moment(cursor)
        if not scope.holds(which.account or scope.account, which.project or scope.project):
            return wire.TestRuns(items=())
        params = msgspec.structs.asdict(which)
        params["account"] = which.account or scope.account
        params["project"] = which.project or scope.project

        async def work(tx: Tx) -> wire.TestRuns:
            found = await tx.all(
                SQL.runs_page, **params, micros=micros, after=after, limit=limit + 1
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
                raise not_found("run")
            facts = await tx.all(SQL.run_facts, run_id=run_id, **of_scope(scope))
            return wire.RunDetail(
                run=_merged(rows),
                destinations=tuple(
                    msgspec.convert(each, wire.Destination) for each in _once(facts, "destinations")
                ),
                errors=_once(facts, "errors"),
                warnings=_once(facts, "warnings"),
                build_issues=_once(facts, "build_issues"),
            )

        return await self._database.transact(work, name="test run")

    async def modules(self, run_id: str, *, scope: Scope, cursor: str, limit: int) -> wire.Modules:
        """Modules of a run."""
        shard, number = cursors.numbers(cursor, 2)
        params = {"shard": shard, "number": number}
        rows, following = await self._of_run(run_id, SQL.modules_page, scope, limit, params)
        return wire.Modules(items=_structs(rows, wire.Module), next=following)

    async def suites(
        self, run_id: str, *, module: str, scope: Scope, cursor: str, limit: int
    ) -> wire.Suites:
        """Suites of a run."""
        shard, number = cursors.numbers(cursor, 2)
        params = {"shard": shard, "number": number, "module": module}
        rows, following = await self._of_run(run_id, SQL.suites_page, scope, limit, params)
        return wire.Suites(items=_structs(rows, wire.Suite), next=following)

    async def cases(
        self, run_id: str, which: CaseFilter, *, scope: Scope, cursor: str, limit: int
    ) -> wire.CaseRuns:
        """Cases of a run, each with its first failures."""
        shard, number = cursors.numbers(cursor, 2)
        params = {"shard": shard, "number": number, **msgspec.structs.asdict(which)}

        async def work(tx: Tx) -> wire.CaseRuns:
            await self.known(tx, run_id, scope)
            found = await tx.all(
                SQL.cases_page, run_id=run_id, **of_scope(scope), **params, limit=limit + 1
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
        """Raise unless the run exists in the scope."""
        if not await tx.one(SQL.run_facts, run_id=run_id, **of_scope(scope)):
            raise not_found("run")

    async def _of_run(
        self, run_id: str, sql: str, scope: Scope, limit: int, params: dict[str, Any]
    ) -> tuple[list[Row], str]:
        async def work(tx: Tx) -> tuple[list[Row], str]:
            await self.known(tx, run_id, scope)
            found = await tx.all(sql, run_id=run_id, **of_scope(scope), **params, limit=limit + 1)
            return found[:limit], _next(found, limit)

        return await self._database.transact(work, name="parts of test run")


def of_scope(scope: Scope) -> dict[str, object]:
    """Parameters that limit a statement to the scope."""
    return {"account": scope.account, "project": scope.project}


def places(rows: Sequence[Row]) -> dict[str, object]:
    """Parameters that select these cases of a run."""
    return {
        "shards": [row["shard_index"] for row in rows],
        "numbers": [row["number"] for row in rows],
    }


def failure_of(row: Row) -> wire.Failure:
    """Build a failure from a row."""
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
    """Merge the shards of one run; what the client announced is taken from the first."""
    first = rows[0]
    whole = {
        **first,
        "id": first["run_id"],
        "state": state_of([row["state"] for row in rows]),
        "status": status_of([row["status"] for row in rows]),
        "duration_ms": max(row["duration_ms"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in _SUMMED},
        "shards": tuple(_shard(row) for row in rows),
    }
    return msgspec.convert(whole, wire.TestRun)


def _shard(row: Row) -> wire.ShardOfRun:
    code = row["reason_code"]
    reason = ATTEMPTS.text(code, row["reason_detail"]) if code else ""
    return msgspec.convert({**row, "reason": reason}, wire.ShardOfRun)


def _once(facts: Sequence[Row], column: str) -> tuple[Any, ...]:
    """Distinct values of all shards, at most a fixed number."""
    found = {
        msgspec.json.encode(each, order="sorted"): each for row in facts for each in row[column]
    }
    return tuple(found.values())[:ISSUES_SHOWN]
