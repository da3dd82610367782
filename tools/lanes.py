"""Runs lanes of make targets side by side: `lanes.py "a b" "c"` runs a, then b, and beside them c.

The first lane writes to the terminal as it runs; each other lane's output is kept in `.cache/lane-N.log` and printed
when the lane has ended, so that the lines of two lanes are never mixed. A target that fails does not keep the next
one of its lane from running. The exit status is that of the first lane that failed.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

CACHE = Path(".cache")


def main(lanes: list[str]) -> int:
    """Run the lanes, print what each wrote, and return the status of the first that failed."""
    CACHE.mkdir(exist_ok=True)
    running: list[tuple[subprocess.Popen[bytes], Path | None]] = []
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for number, targets in enumerate(lanes):
            running.append(_start(number, shlex.split(targets)))
        return _finish(running)
    finally:
        for process, _ in running:
            if process.poll() is None:
                process.terminate()


def _start(number: int, targets: list[str]) -> tuple[subprocess.Popen[bytes], Path | None]:
    argv = [os.environ.get("MAKE", "make"), "--no-print-directory", "-k", *targets]
    if number == 0:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL), None
    path = CACHE / f"lane-{number}.log"
    with path.open("wb") as log:
        started = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    return started, path


def _finish(running: list[tuple[subprocess.Popen[bytes], Path | None]]) -> int:
    statuses = []
    for process, path in running:
        statuses.append(process.wait())
        if path is not None:
            sys.stdout.write(path.read_text(encoding="utf-8", errors="replace"))
            sys.stdout.flush()
    return next((status for status in statuses if status), 0)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
