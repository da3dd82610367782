"""Measures reading result bundles, and fails if a target is missed.

    python -m benches.xcresult.run [--json] [--only WORD] [--cases N] [--gigabytes N] [--jobs N]

Prints target, measured value and verdict; exits with 1 if a target is missed. Bundles are generated (`writer/`); the
real ones are read if they are available (`../shared/fixtures/xcresult`). Each task runs in its own process and is
measured in CPU time, so other load on the machine hardly counts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from benches import table
from benches.xcresult import processor
from benches.xcresult.work import Cost
from msgspec.structs import replace
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "fixtures" / "xcresult"
ROUNDS = 3
CASES = 50_000
SIZES = (1_000, 10_000, 100_000)
APPLE = 0.115
"""Seconds that Apple's tool was publicly reported to need for one test."""
ATTACHMENT = 100 * 1000 * 1000
JOBS = 60
SPARE = 3 * 1000 * 1000 * 1000


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def work(task: str, *bundles: Path, rounds: int = 1) -> Cost:
    """Run a task several times, each in its own process; returns the lowest cost."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "benches.xcresult.work", task, *map(str, bundles)]
    costs = []
    for _ in range(rounds):
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
        costs.append(msgspec.json.decode(done.stdout, type=Cost))
    best = min(costs, key=lambda cost: cost.cpu)
    say(f"  {task}: {best.cpu:.2f} s of CPU, {best.peak:.0f} MB")
    return best


def generated(home: Path, cases: int, *, retries: int = 0) -> Path:
    """Generate a bundle with this many cases, of six activities each. With retries every summary has details."""
    bundle = home / f"{cases}-{retries}.xcresult"
    if not bundle.exists():
        say(f"writing {cases:,} cases")
        plan = Plan(cases=cases, targets=5, suites=max(1, cases // 500), activities=6)
        plan = replace(plan, failures=cases // 100, retries=retries, iterations=2)
        write_bundle(bundle, plan)
    return bundle


def shown(name: str, measured: str) -> table.Row:
    return table.Row(name, "shown", measured, table.OK)


def against_limit(name: str, cost: Cost, limit: Cost, most: float) -> table.Row:
    """Compare CPU time with decompressing the same payloads and parsing the same objects from JSON."""
    text = f"{name}: {cost.cpu:.2f} s of CPU, to zstd and JSON alone ({limit.cpu:.2f} s)"
    return table.at_most(text, cost.cpu / limit.cpu, most, "times", inclusive=True)


def against_raw(name: str, cost: Cost, bare: Cost) -> table.Row:
    """Compare megabytes per second with decompressing the same payloads."""
    mine, limit = cost.stored / cost.cpu / 1e6, bare.stored / bare.cpu / 1e6
    text = f"{mine:.0f} MB/s of {limit:.0f} MB/s raw zstd: {mine / limit:.2f}"
    return shown(f"  {name}: bundle against raw zstd of the same payloads", text)


def bench_cases(home: Path, cases: int) -> list[table.Row]:
    bundle, again = generated(home, cases), generated(home, cases, retries=cases // 100)
    say(f"{cases:,} generated cases")
    cost, bare = work("read", bundle, rounds=ROUNDS), work("raw", bundle, rounds=ROUNDS)
    limit = work("limit", bundle, rounds=ROUNDS)
    retried, other = work("read", again, rounds=ROUNDS), work("limit", again, rounds=ROUNDS)
    decoding, hashing = work("typed", bundle), work("verified", bundle)
    rate = cost.cases / cost.cpu
    name = f"{cases:,} generated cases, 6 activities each"
    held = cost.peak * 1e6 / bare.decoded
    return [
        against_limit(name, cost, limit, 3.0),
        table.at_most(
            f"  peak memory of {cost.peak:.0f} MB, to the decompressed payloads", held, 1.0, "times"
        ),
        against_limit("  the same, all under a retry policy", retried, other, 5.0),
        shown("  peak memory", f"{retried.peak:.0f} MB"),
        shown("  cases a second of CPU", f"{rate:,.0f}"),
        shown("  Apple's tool at 115 ms a case", f"{rate * APPLE:,.0f} times slower"),
        against_raw("generated", cost, bare),
        shown("  typed objects decoded", f"{decoding.decoded / decoding.cpu / 1e6:.0f} MB/s"),
        shown("  every object verified", f"{hashing.cpu:.2f} s, {hashing.peak:.0f} MB"),
    ]


def bench_processes(home: Path, cases: int) -> list[table.Row]:
    bundle = generated(home, cases)
    say(f"{cases:,} generated cases, one process and two")
    one, two = work("read", bundle), work("read_2", bundle)
    text = f"{two.cpu / one.cpu:.2f} of the CPU of one, {two.peak:.0f} MB in the first of them"
    return [shown(f"{cases:,} generated cases by two processes", text)]


def bench_real(home: Path) -> list[table.Row]:
    archives = sorted(REAL.glob("*.xcresult.zip"))
    if not archives:
        return [table.unmeasured("real bundles", "<= 2 times the limit", "no real bundles here")]
    say(f"{len(archives)} real bundles")
    bundles: list[Path] = []
    for archive in archives:
        folder = home / "real" / archive.name
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
        bundles += folder.glob("*.xcresult")
    stores = [bundle for bundle in bundles if (bundle / "Data").is_dir()]
    cost, bare = work("read_again", *stores, rounds=ROUNDS), work("raw", *stores, rounds=ROUNDS)
    limit, decoding = (work(task, *stores, rounds=ROUNDS) for task in ("limit_again", "typed"))
    rate = cost.cases / cost.cpu
    return [
        against_limit(f"{len(stores)} real bundles with their logs", cost, limit, 2.0),
        shown("  cases a second of CPU", f"{rate:,.0f}"),
        shown("  Apple's tool at 115 ms a case", f"{rate * APPLE:,.0f} times slower"),
        against_raw("real", cost, bare),
        shown(
            "  typed objects decoded, all logs", f"{decoding.decoded / decoding.cpu / 1e6:.0f} MB/s"
        ),
    ]


def bench_memory(home: Path) -> list[table.Row]:
    peaks = {cases: work("read", generated(home, cases)).peak for cases in SIZES}
    return [shown(f"peak memory with {cases:,} cases", f"{peaks[cases]:.0f} MB") for cases in SIZES]


def bench_attachments(home: Path, gigabytes: int) -> list[table.Row]:
    """Measure attachments of 100 MB each. They compress well, and exported files are deleted, to save disk."""
    name = f"attachments: peak memory of {gigabytes} GB to that of 1 GB"
    if shutil.disk_usage(home).free < SPARE:
        return [table.unmeasured(name, "<= 1.1 times", "less than 3 GB of free disk")]
    costs = []
    for size in (1, gigabytes):
        say(f"{size} GB of attachments")
        bundle = home / f"{size}gb.xcresult"
        count = size * 10
        write_bundle(bundle, Plan(cases=10, attachments=count, attachment_bytes=ATTACHMENT))
        costs.append(work("exported", bundle))
        assert costs[-1].decoded == count * ATTACHMENT, "not all attachments were exported"
    small, large = costs
    noise = home / "noise.xcresult"
    pictures = Plan(cases=10, attachments=300, attachment_bytes=1_000_000, compressible=False)
    write_bundle(noise, pictures)
    raw = work("exported", noise)
    return [
        table.at_most(name, large.peak / small.peak, 1.1, "times", inclusive=True),
        shown("  peak memory", f"{small.peak:.0f} MB and {large.peak:.0f} MB"),
        shown("  exported", f"{large.decoded / large.cpu / 1e6:,.0f} MB/s of CPU"),
        shown(
            "  exported, of 1 MB each that do not compress",
            f"{raw.decoded / raw.cpu / 1e6:,.0f} MB/s",
        ),
    ]


def bench_processor(home: Path, jobs: int) -> list[table.Row]:
    say(
        f"{jobs} uploads of {processor.PLAN.cases} cases and {processor.PLAN.attachments} attachments"
    )
    found = processor.measure(home, jobs=jobs, slots=2)
    assert found.good == jobs, f"only {found.good} of {jobs} uploads were processed"
    each = found.cpu / jobs
    return [
        shown(
            "the processor with 2 slots, by the clock", f"{60 * jobs / found.seconds:,.0f} jobs/min"
        ),
        shown("  CPU of an upload, its reader included", f"{each:.2f} s"),
        shown("  jobs that 2 cores can process", f"{120 / each:,.0f} jobs/min"),
    ]


NOTES = [
    "Seconds are of CPU, each the best of some rounds, of a process that does nothing else. MB are 10^6 bytes.",
    "The limit decompresses every payload and parses the same objects from JSON with the standard library.",
    "Raw zstd reads and decompresses every payload of the bundle, those too that a reader of results never opens.",
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure reading result bundles.")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument(
        "--only", default="", help="cases, processes, real, memory, attachments or processor"
    )
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--gigabytes", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    say(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows: list[table.Row] = []
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        home = Path(name)
        parts: dict[str, Callable[[], list[table.Row]]] = {
            "real": lambda: bench_real(home),
            "cases": lambda: bench_cases(home, given.cases),
            "processes": lambda: bench_processes(home, given.cases),
            "memory": lambda: bench_memory(home),
            "attachments": lambda: bench_attachments(home, given.gigabytes),
            "processor": lambda: bench_processor(home, given.jobs),
        }
        for part, measure in parts.items():
            if given.only in ("", part):
                rows += measure()
    return table.show(rows, NOTES, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
