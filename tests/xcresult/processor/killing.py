"""Kills processors at random moments until all runs have ended; then the scratch directory must be empty.

Run as a program, in a mount namespace of its own with a small filesystem as the scratch:

    python -m tests.xcresult.processor.killing CONNINFO BLOBS SCRATCH RUNS SEED

It forks workers from itself, which is cheap and makes them real processes; it kills workers and their readers with
SIGKILL, and starts new workers. It prints one JSON object: what was killed, and what was left.
"""

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import psycopg

from runyard.blobs.location import Directory
from runyard.blobs.opening import open_blobs
from runyard.clock import RealClock
from runyard.components import processor
from runyard.db.pooled import open_pool
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import configure, get_logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.plans.attempts import Retrying
from runyard.xcresult.processor.child_process import MODULE
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.scratch import Scratch
from runyard.xcresult.settings import MEBIBYTE, Settings

WORKERS = 2
PATIENCE = 2000.0
_PR_SET_PDEATHSIG = 1
OVER = "SELECT count(*) FROM test_runs WHERE state IN ('processed', 'failed_processing')"


def settings(scratch: Path) -> Settings:
    """Production settings with short times: a lease expires within a second, and kills do not make a run fail."""
    return Settings(
        scratch=scratch,
        poll=0.05,
        lease=1.0,
        beat=0.2,
        sweep=0.2,
        reserve=MEBIBYTE,
        retrying=Retrying(attempts=200, claims=200, delays=(0.05,), elsewhere=0.05),
    )


def fork(conninfo: str, blobs: Path, scratch: Path, number: int) -> int:
    """A new worker process."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it ends with this process
    code = 1
    try:
        asyncio.run(_work(conninfo, blobs, scratch, f"worker-{number}"))
        code = 0
    finally:
        os._exit(code)


async def _work(conninfo: str, blobs: Path, scratch: Path, name: str) -> None:
    clock, rng, ending = RealClock(), random.Random(name), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    async with open_pool(conninfo, clock=clock, rng=rng, max_size=4) as database:
        deps = Deps(
            name=name,
            database=database,
            results=database,
            blobs=open_blobs(Directory(path=blobs), clock=clock),
            clock=clock,
            rng=rng,
            meter=Meter(),
            log=get_logger(name),
            settings=settings(scratch),
            health=Health(clock, processor.CONDITIONS),
            freshness=Freshness(clock),
        )
        await processor.run(deps, ending=ending)


def readers(pid: int) -> list[int]:
    """The children of a worker that read bundles."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(each) for each in listed if MODULE in Path(f"/proc/{each}/cmdline").read_text()]
    except OSError:
        return []


def supervise(
    conninfo: str, blobs: Path, scratch: Path, *, runs: int, rng: random.Random
) -> dict[str, int]:
    """Kill and start workers until all runs have ended; returns how often workers and readers were killed."""
    killed = {"workers": 0, "readers": 0}
    workers = [fork(conninfo, blobs, scratch, number) for number in range(WORKERS)]
    started, until, never = WORKERS, time.monotonic() + PATIENCE, threading.Event()
    with psycopg.connect(conninfo, autocommit=True) as link:
        while (over := _over(link)) < runs and time.monotonic() < until:
            never.wait(rng.uniform(0.02, 0.5))  # the moment of the next kill is random
            place = rng.randrange(len(workers))
            victims = readers(workers[place])
            if sum(killed.values()) > 3 + over // 2:
                continue  # on a slow machine no run would ever finish
            if victims and rng.random() < 0.4:
                killed["readers"] += _kill(rng.choice(victims))
            elif rng.random() < 0.5:
                killed["workers"] += _kill(workers[place])
                os.waitpid(workers[place], 0)
                workers[place] = fork(conninfo, blobs, scratch, started)
                started += 1
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    return killed


def _over(link: "psycopg.Connection[tuple[int]]") -> int:
    """The number of runs that have ended."""
    row = link.execute(OVER).fetchone()
    return 0 if row is None else row[0]


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def main() -> None:
    """Run the program and print the report."""
    conninfo, blobs, scratch, runs, seed = sys.argv[1:]
    configure(level="critical")
    killed = supervise(
        conninfo, Path(blobs), Path(scratch), runs=int(runs), rng=random.Random(int(seed))
    )
    place = Scratch(Path(scratch))
    place.sweep()  # as at any start
    found = os.statvfs(scratch)
    report = {
        **killed,
        "left": sorted(str(path) for path in Path(scratch).rglob("*")),
        "used": (found.f_blocks - found.f_bfree) * found.f_frsize,
        "size": found.f_blocks * found.f_frsize,
    }
    print(json.dumps(report))  # noqa: T201  (a program of the tests)


if __name__ == "__main__":
    main()
