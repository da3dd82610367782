"""Measures the recovery table and writes it into its page.

    python -m benches.recovery.run [--repeat N] [--side-by-side N] [--only TEXT] [--print]

The process is killed before and after every effect of a real `runyard server`, on a real Postgres, with other jobs in
progress. Fails if a bound is missed, a job does not run exactly once, anything is left, or an effect was not reached.
Only a complete run without a failure is written to the page.
"""

import argparse
import asyncio
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from benches.recovery import table
from benches.recovery.faults import FAULTS, Fault, measure
from benches.recovery.matrix import (
    Case,
    Environment,
    Outcome,
    cases,
    discover,
    open_environment,
    run_cases,
)
from benches.recovery.rows import Row, row_of

PAGE = Path(__file__).parents[2] / "docs" / "recovery.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the recovery table.")
    parser.add_argument("--repeat", type=int, default=2, help="how often each point is killed at")
    parser.add_argument("--side-by-side", type=int, default=3, help="fleets at once")
    parser.add_argument("--only", default="", help="only points whose name has this in it")
    parser.add_argument("--print", action="store_true", help="leave the page as it is")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after that")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    load = os.getloadavg()[0]  # before our own
    commit = _commit()  # before another one is made meanwhile
    began = time.monotonic()
    with open_environment() as environment:
        todo, outcomes, faults = asyncio.run(_measure(environment, options))
    found = failures(outcomes, faults)
    text = _text(
        outcomes, faults, load=load, commit=commit, minutes=(time.monotonic() - began) / 60
    )
    print(text)
    whole = not options.only and len(outcomes) == len(todo)
    if not options.print and whole and not found:
        table.write(PAGE, text)
    for failure in found:
        print(failure, file=sys.stderr)
    sys.exit(1 if found else 0)


async def _measure(
    environment: Environment, options: argparse.Namespace
) -> tuple[list[Case], list[Outcome], list[tuple[Row, list[float]]]]:
    rng = random.Random(options.seed)
    async with environment.fleet("discovery") as made:
        usual, repair = await discover(made)
    print(f"{len(usual)} effects of a dispatch, {len(repair)} more of a repair")
    todo: list[Case] = []
    for _ in range(options.repeat):
        todo += [case for case in cases(usual, repair, rng=rng) if options.only in str(case.point)]
    rng.shuffle(todo)
    todo.sort(
        key=lambda case: row_of(case).key == "elsewhere"
    )  # crashes that leave most behind come first
    outcomes: list[Outcome] = []
    lost = asyncio.ensure_future(_measure_faults(environment, options.only))
    async for outcome in run_cases(
        environment, todo, side_by_side=options.side_by_side, minutes=options.minutes
    ):
        outcomes.append(outcome)
        took = "not reached" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
        print(f"{len(outcomes)}/{len(todo)} {outcome.case.point}: {outcome.failure[:300] or took}")
    return todo, outcomes, await lost


async def _measure_faults(environment: Environment, only: str) -> list[tuple[Row, list[float]]]:
    chosen = [fault for fault in FAULTS if only in fault.row.key]

    permits = asyncio.Semaphore(2)

    async def one(fault: Fault) -> tuple[Row, list[float]]:
        async with permits, environment.fleet(f"fault_{fault.row.key.replace('-', '_')}") as made:
            try:
                seconds = [await measure(made, fault)]
            except AssertionError as error:  # this row has failed; the others are still measured
                print(f"{fault.row.what}: {error}")
                return fault.row, []
        print(f"{fault.row.what}: {seconds[0]:.1f} s")
        return fault.row, seconds

    # The slowest first: the rest is measured while one of them waits for a quarter of an hour.
    first = sorted(chosen, key=lambda fault: -fault.row.bound)
    measured = dict(zip(first, await asyncio.gather(*(one(fault) for fault in first)), strict=True))
    return [measured[fault] for fault in chosen]


def failures(outcomes: list[Outcome], faults: list[tuple[Row, list[float]]]) -> list[str]:
    """List every missed bound and unreached effect."""
    found = [f"{each.case.point}: {each.failure}" for each in outcomes if each.failure]
    for each in outcomes:
        bound = row_of(each.case).bound
        if each.seconds is None and not each.failure:
            found.append(f"{each.case.point}: not reached, so nothing is known about it")
        elif each.seconds is not None and each.seconds > bound:
            late = f"{each.seconds:.1f} s, the bound is {bound:g} s"
            found.append(f"{each.case.point}: {late}; the last to come to rest: {each.last}")
    for row, values in faults:
        if not values:
            found.append(f"{row.what}: not recovered, see above; the bound is {row.bound:g} s")
        elif max(values) > row.bound:
            found.append(f"{row.what}: {max(values):.1f} s, the bound is {row.bound:g} s")
    return found


def _commit() -> str:
    """The commit that is measured, with a mark if files differ from it."""
    argv = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(argv, cwd=PAGE.parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _text(
    outcomes: list[Outcome],
    faults: list[tuple[Row, list[float]]],
    *,
    load: float,
    commit: str,
    minutes: float,
) -> str:
    reached = [each for each in outcomes if each.seconds is not None]
    names = {(each.case.second, each.case.point.name) for each in outcomes}
    head = (
        f"One run of {minutes:.0f} minutes on {time.strftime('%Y-%m-%d', time.gmtime())}, at commit "
        f"{commit}: {len(names)} effects were found, each with a point before and one after it; "
        f"the process was killed {len(reached)} times, on a machine with {os.cpu_count()} processors "
        f"and a load of {load:.1f} before it began."
    )
    return "\n\n".join((head, table.matrix(outcomes, faults), table.points(outcomes)))


if __name__ == "__main__":
    main()
