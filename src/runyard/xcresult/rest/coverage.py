"""Reads code coverage of a run: totals, files, lines.

For a run of one shard the numbers are those of its bundle, which are Apple's: a file's lines are the sum over its
functions. With several shards each file is merged: a line ran if a shard ran it, and its count is the sum. The number
of covered lines of a merged file is the larger of two lower bounds: the best shard's number, and the number of
different lines that ran.

Merging takes processor time, so it runs in a thread, some files at a time.
"""

import asyncio
from collections.abc import Sequence

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.wire import testruns as wire
from runyard.xcresult.coverage_encoding import unpack
from runyard.xcresult.rest import cursors
from runyard.xcresult.rest.problems import not_found
from runyard.xcresult.rest.runs import of_scope
from runyard.xcresult.rest.tokens import Scope

SQL = load("runyard.xcresult.rest")
_AT_ONCE = 200  # files
_MOST = 500  # pages of them in one answer
_SHARDS = 100


class Coverages:
    """Reads coverage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self, run_id: str, *, scope: Scope) -> wire.Coverage:
        """Totals of a run, by target."""

        async def work(tx: Tx) -> list[Row]:
            await _known(tx, run_id, scope)
            return await tx.all(SQL.coverage_totals, run_id=run_id, **of_scope(scope))

        rows = await self._database.transact(work, name="coverage of test run")
        if len({row["shard"] for row in rows}) <= 1:
            targets = [(row["name"], row["covered_lines"], row["executable_lines"]) for row in rows]
        else:
            targets = await self._summed(run_id, scope)
        totals = tuple(
            wire.CoverageTotal(name=name, covered_lines=covered, executable_lines=executable)
            for name, covered, executable in targets
        )
        return wire.Coverage(
            covered_lines=sum(each.covered_lines for each in totals),
            executable_lines=sum(each.executable_lines for each in totals),
            targets=totals,
        )

    async def files(
        self, run_id: str, *, target: str, scope: Scope, cursor: str, limit: int
    ) -> wire.CoverageFiles:
        """Files of a run, by target and path."""
        after = cursors.texts(cursor)
        rows = await self._page(run_id, scope, only=target, after=after, limit=limit + 1)
        shown = await asyncio.to_thread(_merged, rows[:limit])
        last = shown[-1] if len(rows) > limit else None
        return wire.CoverageFiles(
            items=tuple(shown),
            next="" if last is None else cursors.of_texts(last.target, last.path),
        )

    async def lines(
        self, run_id: str, *, target: str, path: str, scope: Scope
    ) -> wire.CoverageLines:
        """Execution counts of the lines of a file."""

        async def work(tx: Tx) -> list[Row]:
            await _known(tx, run_id, scope)
            return await tx.all(
                SQL.coverage_lines,
                run_id=run_id,
                target=target,
                path=path,
                **of_scope(scope),
                limit=_SHARDS,
            )

        rows = await self._database.transact(work, name="lines of test run")
        if not rows:
            raise not_found("file")
        counts = await asyncio.to_thread(_counts, [bytes(row["lines"]) for row in rows])
        return wire.CoverageLines(target=target, path=path, lines=tuple(sorted(counts.items())))

    async def _summed(self, run_id: str, scope: Scope) -> list[tuple[str, int, int]]:
        """Totals by target of several shards, from their merged files."""
        sums: dict[str, tuple[int, int]] = {}
        after = "", ""
        for _ in range(_MOST):
            rows = await self._page(run_id, scope, only="", after=after, limit=_AT_ONCE)
            for file in await asyncio.to_thread(_merged, rows):
                covered, executable = sums.get(file.target, (0, 0))
                sums[file.target] = (
                    covered + file.covered_lines,
                    executable + file.executable_lines,
                )
                after = file.target, file.path
            if len(rows) < _AT_ONCE:
                break
        return [(name, *counted) for name, counted in sums.items()]

    async def _page(
        self, run_id: str, scope: Scope, *, only: str, after: tuple[str, str], limit: int
    ) -> list[Row]:
        async def work(tx: Tx) -> list[Row]:
            await _known(tx, run_id, scope)
            return await tx.all(
                SQL.coverage_files_page,
                run_id=run_id,
                **of_scope(scope),
                only=only,
                target=after[0],
                path=after[1],
                limit=limit,
            )

        return await self._database.transact(work, name="covered files of test run")


async def _known(tx: Tx, run_id: str, scope: Scope) -> None:
    if not await tx.one(SQL.run_facts, run_id=run_id, **of_scope(scope)):
        raise not_found("run")


def _merged(rows: Sequence[Row]) -> list[wire.CoverageFile]:
    return [
        wire.CoverageFile(
            target=row["target"],
            path=row["path"],
            covered_lines=_covered(row),
            executable_lines=max(row["executable"]),
        )
        for row in rows
    ]


def _covered(row: Row) -> int:
    best, most = max(row["covered"]), max(row["executable"])
    if best >= most or sum(1 for covered in row["covered"] if covered) <= 1:
        return int(best)  # every line is covered
    counts = _counts([bytes(each) for each in row["lines"]])
    return int(max(best, min(most, sum(1 for count in counts.values() if count))))


def _counts(packed: Sequence[bytes]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for each in packed:
        for line, count in unpack(each):
            counts[line] = counts.get(line, 0) + count
    return counts
