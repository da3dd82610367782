"""Reads the history and the figures of a test across runs, and the flaky tests.

A test is flaky in a run if it failed and then succeeded in it, and flaky on a commit if it did both there in two
uploads. Failing on one device of a run and succeeding on another is not flaky. The figures count both kinds separately.
"""

from collections.abc import Sequence

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.wire import testruns as wire
from runyard.xcresult.rest import cursors
from runyard.xcresult.rest.problems import not_found
from runyard.xcresult.rest.runs import of_scope
from runyard.xcresult.rest.tokens import Scope

SQL = load("runyard.xcresult.rest")


class TestFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests of a project; empty matches any."""

    module: str = ""
    suite: str = ""
    name: str = ""


class History:
    """Reads tests and their results."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tests(
        self, which: TestFilter, *, account: str, project: str, cursor: str, limit: int
    ) -> wire.Tests:
        """Tests of a project; the caller has checked the scope."""
        after = cursors.uuid(cursor)

        async def work(tx: Tx) -> list[Row]:
            params = {"account": account, "project": project, **msgspec.structs.asdict(which)}
            return await tx.all(SQL.tests_page, **params, after=after, limit=limit + 1)

        rows = await self._database.transact(work, name="tests")
        return wire.Tests(
            items=tuple(msgspec.convert(row, wire.Test) for row in rows[:limit]),
            next=rows[limit - 1]["case"] if len(rows) > limit else "",
        )

    async def test(self, case: str, *, scope: Scope, days: int) -> wire.TestDetail:
        """One test, with its recent figures."""

        async def work(tx: Tx) -> tuple[list[wire.Test], dict[str, wire.Figures]]:
            return await _tests_of(tx, [case], scope=scope, days=days)

        found, figures = await self._database.transact(work, name="test")
        if not found:
            raise not_found("test")
        return wire.TestDetail(test=found[0], figures=figures[case])

    async def history(
        self, case: str, *, branch: str, status: str, scope: Scope, cursor: str, limit: int
    ) -> wire.History:
        """Results of a test, newest first."""
        micros, after, (shard, number) = cursors.moment(cursor, 2)

        async def work(tx: Tx) -> list[Row]:
            if not await tx.all(SQL.test_of, cases=[case], **of_scope(scope)):
                raise not_found("test")
            return await tx.all(
                SQL.history_page,
                case=case,
                **of_scope(scope),
                branch=branch,
                status=status,
                micros=micros,
                after=after,
                shard=shard,
                number=number,
                limit=limit + 1,
            )

        rows = await self._database.transact(work, name="history of test")
        last = rows[limit - 1] if len(rows) > limit else None
        return wire.History(
            items=tuple(msgspec.convert(row, wire.Past) for row in rows[:limit]),
            next=""
            if last is None
            else cursors.of(last["micros"], last["run"], last["shard_index"], last["number"]),
        )

    async def flaky(
        self, *, account: str, project: str, branch: str, days: int, limit: int
    ) -> wire.FlakyTests:
        """The most flaky tests of the last days, of one project or of all in the scope."""
        within = Scope(account=account, project=project)

        async def work(tx: Tx) -> wire.FlakyTests:
            rows = await tx.all(
                SQL.flaky_tests, **of_scope(within), branch=branch, days=days, limit=limit
            )
            cases = [row["case"] for row in rows]
            tests, figures = await _tests_of(tx, cases, scope=within, days=days)
            named = {test.case: test for test in tests}
            return wire.FlakyTests(
                days=days,
                items=tuple(
                    wire.FlakyTest(
                        test=named[row["case"]],
                        figures=figures[row["case"]],
                        last_flaky_at=row["last_flaky_at"],
                    )
                    for row in rows
                    if row["case"] in named
                ),
            )

        return await self._database.transact(work, name="flaky tests")


async def _tests_of(
    tx: Tx, cases: Sequence[str], *, scope: Scope, days: int
) -> tuple[list[wire.Test], dict[str, wire.Figures]]:
    """Those of these tests that are in the scope, and the figures of each."""
    tests = await tx.all(SQL.test_of, cases=list(cases), **of_scope(scope))
    converted = [msgspec.convert(row, wire.Test) for row in tests]
    rows = await tx.all(SQL.figures_of, cases=[test.case for test in converted], days=days)
    found = {row["case"]: msgspec.convert({**row, "days": days}, wire.Figures) for row in rows}
    none = wire.Figures(
        days=days, runs=0, succeeded=0, failed=0, skipped=0, flaky=0, mixed_commits=0
    )
    return converted, {test.case: found.get(test.case, none) for test in converted}
