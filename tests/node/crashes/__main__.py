"""Runs the crash matrix of a Mac, or those of its cases whose name contains a text.

python -m tests.node.crashes                          every case
python -m tests.node.crashes --list                   their names
python -m tests.node.crashes 'guest | shim: fork'     the cases with this text
"""

import argparse
import asyncio
import sys
from collections import Counter

from tests.node.crashes.matrix import Summary, open_matrix

from runyard.clock import RealClock


async def main(argv: list[str]) -> int:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.crashes")
    parser.add_argument("text", nargs="?", default="", help="a part of the names of cases")
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    parser.add_argument("--hosts", type=int, default=4, help="hosts side by side")
    parser.add_argument("--verbose", action="store_true", help="print the journal of each case")
    given = parser.parse_args(argv)
    clock = RealClock()
    async with open_matrix(1 if given.list else given.hosts) as matrix:
        found = await matrix.discover(matrix.hosts[0])
        effects = Counter(
            (mode, effect.role) for mode, effect in {(c.mode, c.effect) for c in found}
        )
        for (mode, role), count in sorted(effects.items()):
            print(f"{mode}: {count} effects of {role}")
        todo = [case for case in found if given.text in str(case)]
        if given.list:
            print("\n".join(map(str, todo)))
            return 0
        summary, began = Summary(), clock.monotonic()
        async for outcome in matrix.run(todo):
            summary.add(outcome)
            state = "failed" if outcome.wrong else "ok" if outcome.reached else "not reached"
            print(f"{state:12} {outcome.to_result:5.1f} s {outcome.case}", flush=True)
            for line in outcome.wrong:
                print(f"             {line}")
            if given.verbose:
                print("\n".join(str(line) for line in outcome.journal))
        print("\n".join(summary.failures))
        print(f"{summary}; {clock.monotonic() - began:.0f} s")
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
