"""Measures claims per second: the real matcher of a real replica, on tables of any size.

A replica is wired as in production, with an embedded Kubernetes API and without GitHub, and its matcher is stepped:
snapshot, decision, claims, commits. Runners are not registered: that is GitHub's cost. Each size has its own database
on one server, and the sizes are measured alternately, so that all have the same conditions.
"""

import asyncio
import itertools
import os
import random
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import psycopg
from benches.dispatch.processes import cpu_of
from psycopg.conninfo import conninfo_to_dict

from runyard.clock import RealClock
from runyard.components import server
from runyard.db import migrate
from runyard.db.contract import Database
from runyard.db.pooled import open_pool
from runyard.dispatch.deps import Deps
from runyard.dispatch.settings import Settings
from runyard.embedded.github.identity import generate_key_pair
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.postgres.binaries import find
from runyard.embedded.postgres.databases import create_database
from runyard.github.app import AppAuth
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.client import Kube
from runyard.kube.kinds import RUNNER_POOLS
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter

TENANTS = 20
REPOSITORIES = 5  # of each tenant
LABELS = ("self-hosted", "macOS", "shape-mac")
_QUEUED = 0.5  # of all jobs; the rest is over
_NAMESPACE = "tuist-runners"

# The smallest possible claim: one statement, one row, no choice, no budget, no fairness, no log.
_ONE_STATEMENT = """
\\set job random(1, {rows})
UPDATE jobs SET claimed_at = now() WHERE job_id = :job;
"""


class Rate(msgspec.Struct, frozen=True):
    rows: int
    per_second: float
    per_cpu_second: float  # of this process and of its Postgres together


def fill(url: str, rows: int) -> None:
    """Fill a database with jobs (by COPY), tenants, repositories and limits."""
    with psycopg.connect(url, autocommit=True) as link, link.cursor() as cursor:
        for number in range(TENANTS):
            name = f"tenant-{number}"
            cursor.execute(
                "INSERT INTO tenants (tenant, installation_id) VALUES (%s, %s)", [name, number + 1]
            )
            cursor.execute(
                "INSERT INTO tenant_limits VALUES (%s, 'macos', 10000000, 10000000)", [name]
            )
            for app in range(REPOSITORIES):
                cursor.execute(
                    "INSERT INTO repositories (tenant, repository) VALUES (%s, %s)",
                    [name, f"{name}/app-{app}"],
                )
        with cursor.copy(
            "COPY jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at) FROM STDIN"
        ) as copy:
            for job in range(rows):
                tenant, app = job % TENANTS, job // TENANTS % REPOSITORIES
                state = "queued" if random.Random(job).random() < _QUEUED else "done"
                copy.write_row(
                    [
                        job + 1,
                        f"tenant-{tenant}",
                        f"tenant-{tenant}/app-{app}",
                        list(LABELS),
                        state,
                        True,
                        "2026-01-01T00:00:00Z",
                        "2100-01-01T00:00:00Z",
                    ]
                )
        cursor.execute("VACUUM (ANALYZE) jobs")
        cursor.execute("CHECKPOINT")


class Claiming:
    """A replica on one database, and its waiting Pods."""

    def __init__(self, url: str, wired: server.Wired, database: Database) -> None:
        self._url = url
        self.database = database
        self.wired = wired
        self._numbers = itertools.count()

    async def round(self, claims: int) -> tuple[float, float]:
        """Claim for so many Pods; returns the elapsed seconds and the CPU seconds of this process and of Postgres."""
        uids = self._open(claims)
        waiters = self.wired.shared.waiters
        with ExitStack() as stack:
            for uid in uids:
                stack.enter_context(waiters.registered(uid))
                waiters.mark_idle(uid, "mac")
            began, used = time.perf_counter(), self._cpu()
            left = claims
            while left:
                got = await self.wired.matcher.step(_forget)
                assert got, "nothing was claimed although jobs and runners wait"
                left -= got
            return time.perf_counter() - began, self._cpu() - used

    def _cpu(self) -> float:
        """CPU seconds used so far by this process and its Postgres processes."""
        with psycopg.connect(self._url, autocommit=True) as link:
            rows = link.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        return time.process_time() + sum(cpu_of(pid) for (pid,) in rows)

    def _open(self, count: int) -> list[str]:
        """Insert idle slots, as polls do."""
        batch = next(self._numbers)
        uids = [f"{os.getpid()}-{batch}-{number}" for number in range(count)]
        with psycopg.connect(self._url, autocommit=True) as link, link.cursor() as cursor:
            # Close the slots of the last round, as in a fleet; the rows stay.
            cursor.execute(
                "UPDATE slots SET state = 'closed', intended_job = NULL WHERE state <> 'closed'"
            )
            # Queue their jobs again, so that every round has the same number.
            cursor.execute(
                "UPDATE jobs SET state = 'queued', verified = true WHERE state = 'bound'"
            )
            cursor.execute("VACUUM jobs")
            with cursor.copy(
                "COPY slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at) FROM STDIN"
            ) as copy:
                for uid in uids:
                    moment = "2026-01-01T00:00:00Z"
                    copy.write_row(
                        [uid, uid, "mac", 1, "idle", "2100-01-01T00:00:00Z", moment, moment]
                    )
            cursor.execute("VACUUM (ANALYZE) slots")
        return uids


def _forget(work: Coroutine[object, object, None]) -> None:
    work.close()


class _NoGitHub:
    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        return json_response(503, {})


@asynccontextmanager
async def claiming(url: str) -> AsyncIterator[Claiming]:
    """Wire a replica as in production, without running its matcher."""
    clock, rng = RealClock(), random.Random(1)
    kube = Loopback(KubeCore(clock=clock, rng=random.Random(2)).handle)
    spec = {
        "image": "vm:1",
        "fleetSelector": "f",
        "dispatchLabel": "shape-mac",
        "runnerLabels": ["self-hosted", "macOS"],
        "podCPUMilli": 4000,
        "podMemoryMB": 8192,
    }
    await Kube(kube).create(
        RUNNER_POOLS, {"metadata": {"name": "mac"}, "spec": spec}, namespace=_NAMESPACE
    )
    async with open_pool(url, clock=clock, rng=rng, deadline=60.0) as database:
        deps = Deps(
            name="bench",
            kube=Kube(kube),
            github=_NoGitHub(),
            auth=AppAuth(app_id=1, private_key=generate_key_pair().private_pem, clock=clock),
            database=database,
            clock=clock,
            rng=rng,
            meter=Meter(),
            log=get_logger("bench"),
            settings=Settings(webhook_secrets=("s",), seal_key=bytes(32)),
            health=Health(clock, conditions.ALL),
            freshness=Freshness(clock),
        )
        wired = server.wire(deps)
        await wired.shared.pools.refresh()
        yield Claiming(url, wired, database)


@contextmanager
def databases(conninfo: str, sizes: tuple[int, ...]) -> Iterator[dict[int, str]]:
    """Create and fill one database for each size."""
    urls = {}
    for rows in sizes:
        urls[rows] = create_database(conninfo, f"jobs_{rows}")
        migrate.apply(urls[rows])
        fill(urls[rows], rows)
    yield urls


def measure(urls: dict[int, str], *, claims: int, rounds: int) -> list[Rate]:
    """Return the best round of each size."""

    async def run() -> list[Rate]:
        async with AsyncExitStack() as stack:
            each = {
                rows: await stack.enter_async_context(claiming(url)) for rows, url in urls.items()
            }
            for one in each.values():
                await one.round(claims // 4)  # warm up plans and caches, as in a running server
            spent: dict[int, list[tuple[float, float]]] = {rows: [] for rows in each}
            for _ in range(rounds):
                for rows, one in each.items():
                    spent[rows].append(await one.round(claims))
        return [
            Rate(rows, claims / min(wall for wall, _ in all_), claims / min(cpu for _, cpu in all_))
            for rows, all_ in spent.items()
        ]

    return asyncio.run(run())


def one_statement(url: str, *, rows: int, seconds: int = 3) -> float:
    """Measure the limit: pgbench with a claim of one statement, one client, the same tables and synced commits."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_ONE_STATEMENT.format(rows=rows))
        script.flush()
        given = conninfo_to_dict(url)
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
        environ = os.environ | {
            env: str(given[name]) for name, env in names.items() if given.get(name)
        }
        command = [find().program("pgbench"), "-n", "-M", "prepared", "-c", "1", "-T", str(seconds)]
        done = subprocess.run(
            [*command, "-f", script.name, str(given["dbname"])],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(script.name).parent,
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])
