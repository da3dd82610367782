"""Runs everything there is to run, stage by stage, and goes on where it was interrupted: `make test-long`.

A stage that passed is written into `.cache/test-long.json` and not run again while the checkout stays as it is; another
commit or an edited file begins anew, and so does `--fresh`. A stage that fails does not keep the next one from running.
At the end, also after an interruption, a table shows every stage.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

STATE = Path(".cache/test-long.json")
BLOCK = 100  # seeds in one stage
NOT_YET = "not run"


class Stage(NamedTuple):
    """One command under a name."""

    name: str
    argv: tuple[str, ...]


def stages(seeds: int) -> list[Stage]:
    """Every stage, in the order in which they run."""
    python, runyard = sys.executable, str(Path(sys.executable).with_name("runyard"))
    make = os.environ.get("MAKE", "make")
    pytest = (python, "-m", "pytest", "-n", "2", "--dist", "worksteal")
    found = [Stage("checks", (make, "check"))]
    found += [Stage(f"tests of {path}", (*pytest, path)) for path in directories(Path("tests"))]
    found.append(Stage("proof of the slot machine", (runyard, "prove")))
    for first in range(1, seeds + 1, BLOCK):
        count = min(BLOCK, seeds - first + 1)
        asked = ("sim", "--seed", str(first), "--seeds", str(count), "--hours", "1")
        found.append(Stage(f"seeds {first} to {first + count - 1}", (runyard, *asked)))
    benches = (
        "bench",
        "bench-kube",
        "bench-help",
        "bench-dispatch",
        "bench-node",
        "bench-xcresult",
        "recovery-many",
    )
    found += [Stage(f"make {target}", (make, target)) for target in benches]
    return found


def directories(tests: Path) -> list[str]:
    """The directories with tests, as deep as two levels, so that a stage is small enough to be repeated."""
    found: list[str] = []
    for top in sorted(path for path in tests.iterdir() if path.is_dir()):
        inner = [path for path in sorted(top.iterdir()) if any(path.rglob("test_*.py"))]
        direct = sorted(top.glob("test_*.py"))
        whole = not inner and bool(direct)
        found += [str(top)] if whole else [str(path) for path in (*inner, *direct)]
    return [*found, *(str(path) for path in sorted(tests.glob("test_*.py")))]


def checkout() -> str:
    """What tells this state of the sources from another."""
    asked = (
        ["rev-parse", "HEAD"],
        ["diff", "HEAD"],
        ["ls-files", "--others", "--exclude-standard"],
    )
    said = [
        subprocess.run(["git", *words], capture_output=True, check=False).stdout for words in asked
    ]
    return hashlib.sha256(b"\0".join(said)).hexdigest()


class State:
    """What has passed so far, on disk after every stage."""

    def __init__(self, path: Path, sources: str, *, fresh: bool) -> None:
        self._path = path
        self._sources = sources
        self.passed: dict[str, float] = {}
        if not fresh and path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["sources"] == sources:
                self.passed = kept["passed"]

    def keep(self, name: str, seconds: float) -> None:
        """Note a stage that passed."""
        self.passed[name] = seconds
        self._path.parent.mkdir(exist_ok=True)
        whole = json.dumps({"sources": self._sources, "passed": self.passed}, indent=1)
        beside = self._path.with_suffix(".new")
        beside.write_text(whole, encoding="utf-8")
        beside.replace(self._path)


def run(found: list[Stage], state: State) -> list[tuple[str, str, float]]:
    """Run what has not passed yet; returns a row for each stage, also when it is interrupted."""
    rows: dict[str, tuple[str, float]] = {stage.name: (NOT_YET, 0.0) for stage in found}
    env = {**os.environ, "RUNYARD_TIER": "long"}
    try:
        for stage in found:
            if stage.name in state.passed:
                rows[stage.name] = ("passed before", state.passed[stage.name])
                continue
            print(f"\n── {stage.name}", flush=True)
            began = time.monotonic()  # noqa: TID251 a tool has no Clock to ask
            status = subprocess.run(stage.argv, env=env, check=False).returncode
            seconds = time.monotonic() - began  # noqa: TID251 a tool has no Clock to ask
            rows[stage.name] = ("passed" if status == 0 else f"FAILED ({status})", seconds)
            if status == 0:
                state.keep(stage.name, seconds)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here")
    return [(name, *row) for name, row in rows.items()]


def main(argv: list[str]) -> int:
    """Run every stage and print the table; 0 if all have passed, now or before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=BLOCK)
    parser.add_argument("--fresh", action="store_true")
    asked = parser.parse_args(argv)
    rows = run(stages(asked.seeds), State(STATE, checkout(), fresh=asked.fresh))
    print()
    for name, verdict, seconds in rows:
        print(f"{seconds:8.0f} s  {verdict:14} {name}")
    return 0 if all(verdict.startswith("passed") for _, verdict, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
