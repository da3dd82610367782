"""Runs many dispatchers on several servers, while servers and the database are killed and commits are lost.

    python -m benches.recovery.many [--jobs 10000] [--seed 1]

Postgres runs with `synchronous_commit=off` and a slow WAL writer: commits acknowledged just before a SIGKILL are lost,
as in a failover to a replica that lagged behind. The bench verifies that: it counts webhooks that were answered with
200 and are in no table afterwards.

The checks are independent of the code under test: GitHub's record has how often each job ran, and the order of commits
(`track_commit_timestamp`) replays the log of transitions, commit by commit, against the tenants' budgets.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from benches.recovery.fleet import RUNNER, Fleet, Sizes, fleet
from benches.recovery.pollers import Dispatcher
from benches.recovery.replay import LIMITS, LOG, Replayed, Size, replay
from benches.recovery.servers import Server
from psycopg.rows import dict_row

from runyard.db import migrate
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import generate_key_pair
from runyard.embedded.postgres.databases import create_database
from runyard.embedded.postgres.server import EmbeddedPostgres

# GitHub allows an installation three mints a second, and the shared budget holds the servers to it.
TENANTS = tuple(f"tenant-{number}" for number in range(1, 33))
LIMIT = (
    3,
    6,
)  # virtual processors and memory of each: fewer than there are Pods, so budgets are what decides
SETTINGS = {
    "track_commit_timestamp": "on",
    "synchronous_commit": "off",
    "wal_writer_delay": "1000ms",
    "log_min_messages": "log",
}
_REPORT_EVERY = 10.0  # seconds between two progress lines
_ENDS_WITHIN = 120.0  # for a kill that is in progress when the last job ends
_UNWRITTEN = "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() AS yes"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the run, and the number of kills."""

    jobs: int = 10_000
    seed: int = 1
    dispatchers: int = 32
    pods: int = 4  # of each dispatcher
    servers: int = 3
    server_kills: int = 4
    database_kills: int = 2
    ahead: int = 400  # jobs that are queued and not done
    seconds: float = 0.05  # of a job
    within: float = 1200.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `failures` is empty if all checks passed."""

    seconds: float
    done: int
    incarnations: int
    commits: int
    kills: dict[str, int]
    unwritten: int  # kills of the database with acknowledged commits that were not on disk
    forgotten: int  # webhooks answered with 200 that the database lost
    deadlocks: int
    used: dict[str, int]  # the most vCPUs that a tenant's claims held at any commit
    failures: tuple[str, ...]


class Run:
    """One run."""

    def __init__(self, plan: Plan, postgres: EmbeddedPostgres, made: Fleet, url: str) -> None:
        self.plan, self.postgres, self.fleet, self.url = plan, postgres, made, url
        self.rng = random.Random(plan.seed)
        self.acknowledged: list[str] = []
        self.kills: Counter[str] = Counter()
        self.unwritten = 0
        self.forgotten = 0
        self.deadlocks = 0
        carry = made._carry

        async def deliver(delivery: Delivery) -> int:
            status = await carry(delivery)
            if status == 200:
                self.acknowledged.append(delivery.guid)
            return status

        made._carry = deliver

    async def go(self) -> Result:
        plan, made = self.plan, self.fleet
        began = made.clock.monotonic()
        dispatchers = [
            Dispatcher(made, made.hosts, number, pods=plan.pods)
            for number in range(plan.dispatchers)
        ]
        tasks = [asyncio.ensure_future(each.run()) for each in dispatchers]
        tasks.append(asyncio.ensure_future(made.github.run()))
        disturbing = asyncio.ensure_future(self._disturb())
        try:
            await self._feed([*tasks, disturbing])
            if self._done() >= plan.jobs:  # so all kills are due
                await asyncio.wait_for(disturbing, _ENDS_WITHIN)
        finally:
            disturbing.cancel()
            for each in dispatchers:
                each.ended = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, disturbing, return_exceptions=True)
        self.deadlocks += await self._stat("deadlocks")
        replayed = await self._replay()
        return Result(
            seconds=made.clock.monotonic() - began,
            done=self._done(),
            incarnations=sum(each.incarnations for each in dispatchers),
            commits=replayed.commits,
            kills=dict(self.kills),
            unwritten=self.unwritten,
            forgotten=self.forgotten,
            deadlocks=self.deadlocks,
            used=replayed.most,
            failures=(*replayed.failures[:20], *self._judge()),
        )

    async def _feed(self, tasks: list["asyncio.Future[None]"]) -> None:
        """Queue jobs, but not more than a few hundred ahead, until all of them are done."""
        plan, made = self.plan, self.fleet
        reported = made.clock.monotonic()
        until = reported + plan.within
        while self._done() < plan.jobs and made.clock.monotonic() < until:
            while len(made.jobs) < min(plan.jobs, self._done() + plan.ahead):
                made.queue(seconds=plan.seconds, tenant=self.rng.choice(TENANTS))
            for task in tasks:
                if task.done():
                    task.result()
            if made.clock.monotonic() - reported > _REPORT_EVERY:
                reported = made.clock.monotonic()
                print(f"{self._done()} of {plan.jobs} jobs", file=sys.stderr)
            await asyncio.sleep(0.2)

    async def _disturb(self) -> None:
        """Kill servers and the database, spread over the work."""
        plan = self.plan
        kills = ["server"] * plan.server_kills + ["database"] * plan.database_kills
        self.rng.shuffle(kills)
        for number, kill in enumerate(kills, 1):
            while self._done() < plan.jobs * number / (len(kills) + 2):  # noqa: ASYNC110 nobody rings
                await asyncio.sleep(0.05)
            if kill == "server":
                await self._kill_server(self.rng.choice(self.fleet.servers))
            else:
                await self._kill_database()
            self.kills[kill] += 1

    async def _kill_server(self, server: Server) -> None:
        server.signal(signal.SIGKILL)
        await server.dead()
        server.start()

    async def _kill_database(self) -> None:
        """Kill the postmaster and all sessions; unwritten commits are lost."""
        self.deadlocks += await self._stat("deadlocks")
        self.unwritten += await self._unwritten()
        os.kill(self.postgres.pid, signal.SIGKILL)
        await asyncio.to_thread(self._start_again)
        known = await self._rows("SELECT guid FROM deliveries")
        self.forgotten += len(set(self.acknowledged) - {row["guid"] for row in known})

    async def _unwritten(self) -> bool:
        """Wait until a kill would lose commits; False if that did not happen."""
        until = self.fleet.clock.monotonic() + _ENDS_WITHIN
        while self.fleet.clock.monotonic() < until:
            (row,) = await self._rows(_UNWRITTEN)
            if row["yes"]:
                return True
            await asyncio.sleep(0.01)
        return False

    def _start_again(self) -> None:
        self.postgres.stop(immediate=True)
        self.postgres.start()

    def _done(self) -> int:
        jobs = self.fleet.github.jobs()
        return sum(jobs[number].status == "completed" for number in self.fleet.jobs)

    def _judge(self) -> list[str]:
        jobs = self.fleet.github.jobs()
        found = []
        for number in self.fleet.jobs:
            job = jobs[number]
            if job.executions != 1 or job.conclusion != "success":
                found.append(f"job {number}: {job.executions} runs, {job.status} {job.conclusion}")
        if len(self.fleet.jobs) < self.plan.jobs:
            found.append(f"only {len(self.fleet.jobs)} jobs were queued in time")
        due = {"server": self.plan.server_kills, "database": self.plan.database_kills}
        if self.kills != Counter(due):
            found.append(f"kills that ended well: {dict(self.kills)} of {due}")
        if self.unwritten < self.plan.database_kills:
            found.append("a kill of the database met nothing that it had still to write")
        log = self.postgres.log.read_text(errors="replace")
        if self.deadlocks or "deadlock detected" in log:
            found.append(f"{self.deadlocks} deadlocks")
        return found[:20]

    async def _replay(self) -> Replayed:
        limits = {
            row["tenant"]: Size(row["vcpus"], row["memory_gb"]) for row in await self._rows(LIMITS)
        }
        return replay(await self._rows(LOG), limits, Size(*RUNNER))

    async def _stat(self, column: str) -> int:
        found = await self._rows(
            f"SELECT {column} FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(found[0][column])

    async def _rows(self, statement: str) -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(
            self.url, autocommit=True, row_factory=dict_row
        ) as link:
            cursor = await link.execute(statement)
            return await cursor.fetchall()


async def run(plan: Plan, folder: Path) -> Result:
    """Run a plan in a new folder."""
    postgres = EmbeddedPostgres(folder / "postgres", max_connections=100, extra_settings=SETTINGS)
    conninfo = await asyncio.to_thread(postgres.start)
    try:
        url = create_database(conninfo, "many")
        migrate.apply(url)
        sizes = Sizes(servers=plan.servers, replicas=0, tenants=TENANTS, operated=False)
        async with fleet(
            folder / "fleet",
            database=url,
            key=generate_key_pair(),
            sizes=sizes,
            flags=("--database-connections", "16"),
            seed=str(plan.seed),
        ) as made:
            await _sign_contracts(made)
            return await Run(plan, postgres, made, url).go()
    finally:
        with contextlib.suppress(Exception):
            await asyncio.to_thread(postgres.stop, immediate=True)


async def _sign_contracts(made: Fleet) -> None:
    for tenant, installation in made.installations.items():
        await made.sql(
            f"INSERT INTO tenants (tenant, installation_id) VALUES ('{tenant}', {installation})"
        )
        values = f"'{tenant}', 'macos', {LIMIT[0]}, {LIMIT[1]}"
        await made.sql(
            f"INSERT INTO tenant_limits (tenant, platform, vcpus, memory_gb) VALUES ({values})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=Plan().jobs)
    parser.add_argument("--seed", type=int, default=Plan().seed)
    parser.add_argument("--dispatchers", type=int, default=Plan().dispatchers)
    parser.add_argument("--ahead", type=int, default=Plan().ahead)
    options = parser.parse_args()
    plan = Plan(**vars(options))
    with tempfile.TemporaryDirectory(prefix="runyard-many-") as name:
        Path(name).chmod(0o755)
        result = asyncio.run(run(plan, Path(name)))
    print(plan)
    print(result)
    if not result.forgotten:
        print("the database lost no webhook: this run does not show what it is for")
    sys.exit(1 if result.failures or not result.forgotten else 0)


if __name__ == "__main__":
    main()
