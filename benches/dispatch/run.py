"""Measures dispatch, and fails if a target is missed.

    python -m benches.dispatch.run [--json] [--only WORD] [--polls N] [--rows N,N,N]

A table of target, measured and verdict; not zero if something was missed. Servers are processes of `runyard server`,
with a Postgres that syncs its disk, the embedded Kubernetes API and the practice GitHub in a process of their own, and
a load that keeps its pace whatever the server does. Every target is a multiple of a limit that is measured in the same
run on the same rig: a bare aiohttp server (`limit`), pgbench, or a plain count. Run it on an otherwise idle machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
from benches import table
from benches.dispatch import claims, long_polls, signals
from benches.dispatch.dependencies import Dependencies
from benches.dispatch.load import Found, Order
from benches.dispatch.pauses import Pauses, watched
from benches.dispatch.processes import ROOT, Processes, processes

from runyard.db import migrate
from runyard.embedded.postgres.databases import create_database
from runyard.embedded.postgres.provide import provide

ROUNDS = 3
PACE = 50.0
JOBS = 600
WAITING = 100
TENANTS = 30
ROWS = (10_000, 100_000, 1_000_000)
CLAIMS = 2_000
POLLS = 10_000


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percentile(values: list[float], share: float) -> float:
    """Return a percentile in milliseconds; infinite if there are no values."""
    if not values:
        return float("inf")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def delivered(found: Found, jobs: int) -> list[float]:
    """Return the time of each job until its runner had it; infinite for a job that was not delivered."""
    lost = [float("inf")] * (jobs - len(found.delivered))
    return [end - begin for begin, end in found.delivered] + lost


def load(rig: Processes, order: Order, *, ready: Callable[[], None] = lambda: None) -> Found:
    """Run the load generator; jobs are sent after `ready` has returned."""
    command = [sys.executable, "-m", "benches.dispatch.load", str(rig.folder)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, msgspec.json.encode(order).decode()],
        cwd=ROOT,
        env=env,
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline().strip() == "begin", "the load did not start; see above"
        ready()
        process.stdin.write("go\n")
        process.stdin.flush()
        found = msgspec.json.decode(process.stdout.readline(), type=Found)
    report(
        f"  {found.statuses}, {found.seconds:.1f} s; the load was late by {found.late * 1000:.0f} ms at most"
    )
    return found


@contextmanager
def rig_with_database(home: Path, conninfo: str, name: str, *, runners: int) -> Iterator[Processes]:
    """Start a rig with its own database and unlimited tenants."""
    url = create_database(conninfo, name)
    migrate.apply(url, phase="all")
    with processes(home / name, database=url, runners=runners, tenants=TENANTS) as rig:
        dependencies = msgspec.json.decode(
            (rig.folder / "dependencies.json").read_bytes(), type=Dependencies
        )
        with psycopg.connect(url, autocommit=True) as link:
            for account in dependencies.accounts:
                link.execute(
                    "INSERT INTO tenants (tenant, installation_id) VALUES (%s, %s)",
                    [account.name, account.installation],
                )
                link.execute(
                    "INSERT INTO tenant_limits SELECT %s, p, 1000000, 1000000"
                    " FROM unnest('{macos,linux}'::text[]) p",
                    [account.name],
                )
        yield rig


def idle(rig: Processes) -> int:
    """Return the number of idle slots."""
    with psycopg.connect(rig.database, autocommit=True) as link:
        row = link.execute("SELECT count(*) FROM slots WHERE state = 'idle'").fetchone()
    return 0 if row is None else int(row[0])


def bench_webhooks(home: Path, conninfo: str) -> list[table.Row]:
    """Measure the response to a webhook, against a bare server that commits one row; rounds alternate."""
    rows = []
    with rig_with_database(home, conninfo, "webhooks", runners=1) as rig:
        for alone in (False, True):
            server, bare = rig.server(alone=alone), rig.limit("commit")
            name = "webhook answered, p99" + (
                ", GitHub and Kubernetes down" if alone else f" at {PACE:.0f}/s"
            )
            report(name)
            best, limit, cost = float("inf"), float("inf"), float("inf")
            for turn in range(ROUNDS):
                order = Order(
                    webhooks_to=bare.url,
                    jobs=JOBS // 2,
                    per_second=PACE,
                    fits=False,
                    first_job=1 + (turn + ROUNDS * alone) * JOBS,
                )
                limit = min(limit, percentile(load(rig, order).answered, 0.99))
                before = server.cpu()
                found = load(rig, msgspec.structs.replace(order, webhooks_to=server.url))
                whole = set(found.statuses) == {"webhook 200"}
                best = min(best, percentile(found.answered, 0.99) if whole else float("inf"))
                cost = min(cost, (server.cpu() - before) * 1000 / order.jobs)
            report(f"  {cost:.1f} ms of the server's CPU each")
            text = f"{name}: {best:.1f} ms; a commit by a bare server: {limit:.1f} ms"
            rows.append(table.at_most(text, best / limit, 3.0, "times", inclusive=True))
            server.end()
            bare.end()
    return rows


def bench_jobs(home: Path, conninfo: str) -> list[table.Row]:
    """Measure from webhook to JIT, against a bare server with a commit, a mint, a patch and the same polls.

    Rounds alternate.
    """
    name = f"webhook to JIT in a waiting runner's hands at {PACE:.0f} jobs/s"
    report(name)
    limits: list[Found] = []
    rounds: list[Found] = []
    costs = []
    with (
        rig_with_database(home, conninfo, "jobs", runners=(JOBS + WAITING) * ROUNDS) as rig,
        watched() as pauses,
    ):
        server = rig.server()
        for turn in range(ROUNDS):
            limits.append(_bare(rig, jobs=JOBS, per_second=PACE, waiting=WAITING))
            order = Order(
                webhooks_to=server.url,
                polls_to=server.url,
                jobs=JOBS,
                per_second=PACE,
                waiting=WAITING,
                first_job=1 + turn * JOBS,
                first_runner=turn * (JOBS + WAITING),
            )
            before = server.cpu()
            rounds.append(load(rig, order, ready=lambda: _until(rig, WAITING)))
            costs.append((server.cpu() - before) * 1000 / JOBS)
            _gone(rig)
        running = _while_running(name, rounds, limits, pauses)
    times, bare = ([delivered(each, JOBS) for each in found] for found in (rounds, limits))
    rows = _against(name, times, bare, most=3.0)
    # With more than one CPU second per second of jobs the queue would only grow.
    text = "  the server's CPU for the jobs of a second, poll and webhook included"
    return [*rows, running, table.at_most(text, min(costs) * PACE / 1000, 1.0, "s")]


def _while_running(
    name: str, rounds: list[Found], limits: list[Found], pauses: Pauses
) -> table.Row:
    """Compare all rounds without the jobs that a pause of the machine delayed; lost jobs always count."""
    text = f"  {name}, p99 of all rounds, without pauses of the machine"
    if not pauses.known:
        return table.unmeasured(text, "<= 3 times", "pauses of the machine are not known")
    kept = []
    for found in (rounds, limits):
        spans = [span for each in found for span in each.delivered]
        lost = [float("inf")] * (JOBS * ROUNDS - len(spans))
        kept.append(pauses.undelayed(spans) + lost)
    ours, limit = (percentile(each, 0.99) for each in kept)
    counts = " and ".join(f"{len(each):,}" for each in kept)
    text += f": {ours:.0f} ms; bare server: {limit:.0f} ms; {counts} of {JOBS * ROUNDS:,} jobs"
    return table.at_most(text, ours / limit, 3.0, "times", inclusive=True)


def bench_replicas(home: Path, conninfo: str) -> list[table.Row]:
    """Measure a webhook at one replica and a runner that waits at the other, against the same limit."""
    name = "webhook at one replica to JIT at another"
    report(name)
    jobs, pace, tick = (
        60,
        10.0,
        0.1,
    )  # without a direct database URL a replica reads ten times a second
    limits, times = [], []
    with rig_with_database(home, conninfo, "replicas", runners=(jobs + 10) * ROUNDS) as rig:
        one, other = rig.server("server-1"), rig.server("server-2")
        for turn in range(ROUNDS):
            bare = delivered(_bare(rig, jobs=jobs, per_second=pace, waiting=10), jobs)
            limits.append([each + tick for each in bare])
            order = Order(
                webhooks_to=one.url,
                polls_to=other.url,
                jobs=jobs,
                per_second=pace,
                waiting=10,
                first_job=1 + turn * jobs,
                first_runner=turn * (jobs + 10),
            )
            found = load(rig, order, ready=lambda: _until(rig, 10))
            times.append(delivered(found, jobs))
            _gone(rig)
    return _against(f"{name} (with 100 ms between its reads)", times, limits, most=3.0)


def _bare(rig: Processes, *, jobs: int, per_second: float, waiting: int) -> Found:
    """Measure a commit, a mint and a patch of the bare server under that load, until the JIT is at a runner."""
    bare = rig.limit("jit")
    order = Order(
        webhooks_to=bare.url,
        polls_to=bare.url,
        jobs=jobs,
        per_second=per_second,
        waiting=waiting,
    )

    def polled() -> bool:
        with urllib.request.urlopen(f"{bare.url}/waiting") as answer:
            return int(answer.read()) >= waiting

    found = load(
        rig, order, ready=lambda: long_polls.until(polled, f"{waiting} polls did not begin to wait")
    )
    bare.end()
    assert set(found.statuses) == {"webhook 200", "poll 200"}, found.statuses
    return found


def _against(
    name: str, times: list[list[float]], limits: list[list[float]], *, most: float
) -> list[table.Row]:
    rows = []
    for share, word in ((0.5, "p50"), (0.99, "p99")):
        ours = min(percentile(each, share) for each in times)
        limit = min(percentile(each, share) for each in limits)
        text = f"{name}, {word}: {ours:.0f} ms; bare server: {limit:.0f} ms"
        rows.append(table.at_most(text, ours / limit, most, "times", inclusive=True))
    return rows


def _until(rig: Processes, count: int) -> None:
    long_polls.until(lambda: idle(rig) >= count, f"{count} runners did not begin to wait")


def _gone(rig: Processes) -> None:
    """Close the slots of this round, so that the next one starts without them."""
    with psycopg.connect(rig.database, autocommit=True) as link:
        link.execute(
            "UPDATE slots SET state = 'closed', intended_job = NULL WHERE state <> 'closed'"
        )


def bench_claims(conninfo: str, sizes: tuple[int, ...]) -> list[table.Row]:
    """Measure claims a second, against pgbench with one UPDATE of one row by its key on the same tables."""
    report(f"claims, with {', '.join(f'{size:,}' for size in sizes)} jobs")
    rows = []
    with claims.databases(conninfo, sizes) as urls:
        rates = claims.measure(urls, claims=CLAIMS, rounds=ROUNDS)
        for rate in rates:
            report(f"  {rate}")
            limit = claims.one_statement(urls[rate.rows], rows=rate.rows)
            name = (
                f"claims with {rate.rows:,} jobs: {rate.per_second:,.0f}/s; pgbench {limit:,.0f}/s"
            )
            rows.append(table.at_least(name, rate.per_second / limit, 0.33, "times"))
        asked = signals.measure(urls)
        counted = signals.counting(urls)
    speeds = [rate.per_second for rate in rates]
    text = "  slowest to fastest of these"
    rows.append(table.at_most(text, max(speeds) / min(speeds), 1.25, "times", inclusive=True))
    largest = max(sizes)
    spent, limit = (statistics.median(each[largest]) * 1000 for each in (asked, counted))
    name = f"desired_replicas with {largest:,} jobs: {spent:.0f} ms; counting them: {limit:.0f} ms"
    rows.append(table.at_most(name, spent / limit, 5.0, "times", inclusive=True))
    return rows


def bench_polls(home: Path, conninfo: str, polls: int) -> list[table.Row]:
    """Measure very many long polls, against a bare server with as many."""
    report(f"{polls:,} long polls")
    with rig_with_database(home, conninfo, "polls", runners=polls) as rig:
        bare = long_polls.measure_bare(rig, rig.limit("hold"), polls)
        report(f"  bare server: {bare}")
        server = rig.server(settings={"poll_wait_max": 3600.0})
        seen = long_polls.measure(rig, server, polls)
    report(f"  {seen}")
    memory = (
        f"{polls:,} long polls: {seen.megabytes:.0f} MB; a bare server: {bare.megabytes:.0f} MB"
    )
    ended = (
        f"  all of them let go: {seen.all_seconds:.2f} s; a bare server: {bare.all_seconds:.2f} s"
    )
    return [
        table.at_most(memory, seen.megabytes / bare.megabytes, 3.0, "times", inclusive=True),
        table.at_most("  runners that one job wakes", seen.woken, 1.0, "", inclusive=True),
        table.at_most(ended, seen.all_seconds / bare.all_seconds, 3.0, "times", inclusive=True),
    ]


NOTES = [
    "Each the best of some rounds. Webhooks are sent at their pace, whether the ones before were answered or not.",
    "Claims are the matcher's, with all checks, budgets, fairness and the log, committed and synced; without mints.",
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure dispatch, and hold what was promised.")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--only", default="", help="webhooks, jobs, replicas, claims or polls")
    parser.add_argument("--polls", type=int, default=POLLS)
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    given = parser.parse_args()
    sizes = tuple(int(each) for each in given.rows.split(","))
    report(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows: list[table.Row] = []
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        home = Path(name)
        with provide(home / "postgres", durable=True, max_connections=100) as conninfo:
            parts: dict[str, Callable[[], list[table.Row]]] = {
                "webhooks": lambda: bench_webhooks(home, conninfo),
                "jobs": lambda: bench_jobs(home, conninfo),
                "replicas": lambda: bench_replicas(home, conninfo),
                "claims": lambda: bench_claims(conninfo, sizes),
                "polls": lambda: bench_polls(home, conninfo, given.polls),
            }
            for part, measure in parts.items():
                if given.only in ("", part):
                    rows += measure()
    return table.show(rows, NOTES, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
