"""Runs the tests and holds the seconds of each directory against `tests/budget.toml`.

    budget.py [--write] -- python -m pytest …

A directory may take 150 % of its budget. The budgets are seconds of one machine; to judge a slower or busier one by
them, a fixed piece of CPU work is timed again and again while the tests run, and every budget is multiplied by how
much longer it took (its median) than the file says. A machine that is faster gets no smaller budget. `--write` writes
the file anew from this run. A test counts for the nearest directory above it that the file names.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self
from xml.etree import ElementTree as ET

BUDGET = Path("tests/budget.toml")
JUNIT = Path(".cache/junit.xml")
OVER = 1.5
SLACK = 10.0  # seconds that no directory is judged for: a fixture that is shared is charged to its first user
EVERY = 15.0
ROUNDS = 150_000
HEADER = """\
# Seconds of tests by directory, summed over the workers, in `make test-all`. `tools/budget.py` holds a run against
# them and says how it scales them to the machine; `make test-all BUDGET=--write` writes this file from its run.
"""


class Line(NamedTuple):
    """One directory: what its tests took, and what they may take on this machine."""

    directory: str
    tests: int
    seconds: float
    budget: float

    @property
    def over(self) -> bool:
        """Whether it took more than its budget allows."""
        return self.seconds > OVER * self.budget + SLACK


class Timing:
    """Times a fixed piece of CPU work, now and then, until it is stopped."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.samples.append(work())
            if self._stop.wait(EVERY):
                return


def work() -> float:
    """Do the fixed work; returns the seconds that it took."""
    began = time.perf_counter()  # noqa: TID251 the point is real time
    seen: dict[bytes, int] = {}
    for number in range(ROUNDS):
        digest = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8).digest()
        seen[digest[:2]] = number
    return time.perf_counter() - began  # noqa: TID251 the point is real time


def took(junit: str, directories: tuple[str, ...]) -> dict[str, tuple[int, float]]:
    """Tests and seconds by directory, each test charged to the nearest named directory above it."""
    found: dict[str, tuple[int, float]] = {}
    for case in ET.fromstring(junit).iter("testcase"):  # noqa: S314 our own pytest wrote it
        path = case.get("classname", "").replace(".", "/")
        named = [name for name in directories if path.startswith(f"{name}/")]
        charged = max(named, key=len, default="/".join(path.split("/")[:2]))
        tests, seconds = found.get(charged, (0, 0.0))
        found[charged] = (tests + 1, seconds + float(case.get("time", "0")))
    return found


def lines(
    found: Mapping[str, tuple[int, float]], budgets: Mapping[str, float], factor: float
) -> list[Line]:
    """Every directory with its budget on this machine, the dearest first; one without a budget has none to spend."""
    rows = [
        Line(name, tests, seconds, budgets.get(name, 0.0) * factor)
        for name, (tests, seconds) in found.items()
    ]
    return sorted(rows, key=lambda row: -row.seconds)


def table(rows: list[Line], factor: float) -> str:
    """What to print."""
    out = [f"Seconds of tests by directory (budgets times {factor:.2f} for this machine):"]
    for row in rows:
        verdict = "OVER" if row.over else ""
        out.append(
            f"{row.seconds:8.0f} s of {row.budget:6.0f}  {row.tests:6} tests  {row.directory}  {verdict}".rstrip()
        )
    out.append(f"{sum(row.seconds for row in rows):8.0f} s in all")
    return "\n".join(out)


def written(found: Mapping[str, tuple[int, float]], factor: float, reference: float) -> str:
    """The budget file for a run on a machine that was `factor` slower than the reference."""
    budgets = [
        f'"{name}" = {max(1, round(seconds / factor))}'
        for name, (_, seconds) in sorted(found.items())
    ]
    return "\n".join([HEADER + f"reference = {reference}", "", "[seconds]", *budgets, ""])


def main(argv: list[str]) -> int:
    """Run the command, print the table, and return the command's status, or 1 if a directory is over its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(argv)
    file = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    reference, budgets = float(file["reference"]), file["seconds"]
    JUNIT.parent.mkdir(exist_ok=True)
    JUNIT.unlink(missing_ok=True)
    with Timing() as timing:
        status = subprocess.run([*asked.command, f"--junit-xml={JUNIT}"], check=False).returncode
    if not JUNIT.exists():
        return status or 1
    found = took(JUNIT.read_text(encoding="utf-8"), tuple(budgets))
    factor = max(1.0, statistics.median(timing.samples) / reference)
    rows = lines(found, budgets, factor)
    print(table(rows, factor))
    if asked.write:
        BUDGET.write_text(written(found, factor, reference), encoding="utf-8")
        return status
    if status == 0 and any(row.over for row in rows):
        print(
            f"some directories took more than {OVER:.0%} of their budget: make their tests cheaper,"
        )
        print(f"move some to the long tier (docs/testing.md), or raise the budget in {BUDGET}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
