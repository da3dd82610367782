"""Many dispatchers at once on a real Postgres: no budget exceeded, no job bound twice, no waiting in a circle."""

import asyncio
import random
from typing import Any

import psycopg
import pytest
from tests.dispatch.test_dispatch_store import fresh

from runyard.clock import RealClock
from runyard.db.contract import Tx
from runyard.db.pooled import open_pool
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Arm,
    FenceAnswer,
    Fenced,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    MintFailed,
    Offer,
    PodGone,
    Polled,
)
from runyard.dispatch.store import JobInfo, Store

TENANTS = ("acme", "mona")
LIMIT = 8
OVER = """
SELECT l.tenant FROM tenant_limits l JOIN slots s USING (tenant, platform)
WHERE s.state IN ('offered', 'armed', 'executing', 'draining')
GROUP BY l.tenant, l.vcpus, l.memory_gb HAVING sum(s.vcpus) > l.vcpus OR sum(s.memory_gb) > l.memory_gb
"""
TWICE = """
SELECT intended_job FROM slots WHERE intended_job IS NOT NULL GROUP BY 1 HAVING count(*) > 1
UNION ALL SELECT job_id FROM jobs j WHERE state = 'bound'
    AND NOT EXISTS (SELECT FROM slots s WHERE s.intended_job = j.job_id)
"""


class Dispatcher:
    """One replica that does everything at random: polls, offers, mints, webhooks, fences, Pods that die."""

    def __init__(self, database: Any, number: int, counts: dict[str, int]) -> None:
        self.rng = random.Random(number)
        self.store = Store(database, ctx=Context(), actor=f"server-{number}")
        self.database = database
        self.counts = counts
        self.held: dict[str, int] = {}

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self.rng.choice(
                (self.poll, self.offer, self.offer, self.offer, self.finish, self.github)
            )()
            await self.database.transact(self.check, name="check")

    async def check(self, tx: Tx) -> None:
        assert await tx.all(OVER) == [], "a budget is exceeded"
        assert await tx.all(TWICE) == [], "a job is bound twice, or to nobody"

    async def poll(self) -> None:
        uid = f"u{self.rng.randrange(12)}"
        name = f"pod-{uid}" if self.rng.random() < 0.9 else "pod-shared"
        await self.store.poll(Polled(pod_uid=uid, pod_name=name, pool="mac"))

    async def offer(self) -> None:
        async def idle(tx: Tx) -> Any:
            return await tx.all("SELECT pod_uid, generation FROM slots WHERE state = 'idle'")

        async def queued(tx: Tx) -> Any:
            return await tx.all(
                "SELECT job_id, tenant FROM jobs WHERE state = 'queued' AND verified"
            )

        slots = await self.database.transact(idle, name="idle")
        jobs = await self.database.transact(queued, name="queued")
        if not slots or not jobs:
            return
        slot, job = self.rng.choice(slots), self.rng.choice(jobs)
        event = Offer(
            generation=slot["generation"],
            job_id=job["job_id"],
            tenant=job["tenant"],
            scope=f"orgs/{job['tenant']}",
            installation_id=1,
            vcpus=self.rng.choice([2, 3, 4]),
            memory_gb=4,
            platform="macos",
            runner_name=f"runner-{slot['pod_uid']}",
        )
        decision = await self.store.about_slot(slot["pod_uid"], event, name="offer")
        if decision.slot is None:
            self.counts[decision.refused] = self.counts.get(decision.refused, 0) + 1
            return
        self.counts["offered"] = self.counts.get("offered", 0) + 1
        await asyncio.sleep(0)
        generation = decision.slot.generation
        done: Any = Arm(generation=generation, runner_id=1, jit=b"jit", stamped=True)
        if self.rng.random() < 0.3:
            done = MintFailed(generation=generation, why="refused")
        await self.store.about_slot(slot["pod_uid"], done, name="mint")

    async def finish(self) -> None:
        uid = f"u{self.rng.randrange(12)}"

        async def read(tx: Tx) -> Any:
            return await tx.one("SELECT * FROM slots WHERE pod_uid = %(uid)s", uid=uid)

        slot = await self.database.transact(read, name="read")
        if slot is None:
            return
        answer = self.rng.choice(list(FenceAnswer))
        fenced = Fenced(generation=slot["generation"], answer=answer, scope_read=True)
        await self.store.about_slot(uid, fenced, name="fence")
        if self.rng.random() < 0.5:
            await self.store.about_slot(uid, PodGone(why="gone"), name="gone")

            async def forget(tx: Tx) -> int:
                return await tx.run(
                    "DELETE FROM slots WHERE pod_uid = %(uid)s AND state = 'closed'"
                    " AND intended_job IS NULL",
                    uid=uid,
                )

            await self.database.transact(forget, name="a new Pod")

    async def github(self) -> None:
        tenant = self.rng.choice(TENANTS)
        job = self.rng.randrange(1, 60) * 2 + TENANTS.index(tenant)
        runner = f"runner-u{self.rng.randrange(12)}"
        event = self.rng.choice(
            (
                JobQueued(job_id=job, tenant=tenant),
                JobQueued(job_id=job, tenant=tenant),
                JobStillQueued(job_id=job),
                JobStarted(job_id=job, tenant=tenant, runner_name=runner),
                JobEnded(job_id=job, tenant=tenant, runner_name=runner, conclusion="success"),
            )
        )

        async def apply(tx: Tx) -> object:
            info = JobInfo(repository=f"{tenant}/app", labels=())
            return await self.store.job_fact(tx, event, tenant, info)

        await self.store.transact(apply, name="webhook")


@pytest.mark.parametrize("seed", [1, 2])
def test_many_dispatchers_agree(database_url: str, seed: int) -> None:
    conflicts: list[str] = []
    counts: dict[str, int] = {}

    def observe(name: str, outcome: str, seconds: float) -> None:
        if outcome == "conflict":
            conflicts.append(name)

    async def scenario() -> None:
        async with (
            open_pool(
                database_url,
                clock=RealClock(),
                rng=random.Random(seed),
                max_size=10,
                patience=60.0,  # how fast this machine is, is not what is tested
                deadline=60.0,
                observe=observe,
            ) as database,
            asyncio.TaskGroup() as group,
        ):
            for number in range(10):
                dispatcher = Dispatcher(database, 100 * seed + number, counts)
                group.create_task(dispatcher.run(40))

    with fresh(database_url, *TENANTS) as own:
        asyncio.run(scenario())
        assert own.execute(OVER).fetchall() == [] == own.execute(TWICE).fetchall()
        # Every change of a slot has one entry, and entries follow on each other.
        log = own.execute(
            "SELECT pod_uid, source, target FROM transitions WHERE subject = 'slot' ORDER BY id"
        ).fetchall()
        last: dict[str, str] = {}
        for entry in log:
            uid = entry["pod_uid"]
            expected = last.get(uid, "")
            assert entry["source"] == expected or (entry["source"] == "" and expected == "closed")
            last[uid] = entry["target"]
        jobs = own.execute(
            "SELECT job_id, source, target FROM transitions WHERE subject = 'job' ORDER BY id"
        ).fetchall()
        was: dict[int, str] = {}
        for entry in jobs:
            assert entry["source"] == was.get(entry["job_id"], "")
            was[entry["job_id"]] = entry["target"]
    assert counts["offered"] >= 5
    assert conflicts == [], "two transactions waited for each other in a circle"


def test_the_last_seat_is_given_once(database_url: str) -> None:
    """Eight offers for the room of two, all at the same moment."""

    async def scenario() -> int:
        async with open_pool(
            database_url, clock=RealClock(), rng=random.Random(1), min_size=8, max_size=8
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            slots = []
            for number in range(8):
                polled = Polled(pod_uid=f"u{number}", pod_name=f"pod-{number}", pool="mac")
                slots.append(await store.poll(polled))

            async def claim(number: int) -> bool:
                event = Offer(
                    generation=slots[number].generation,
                    job_id=number + 1,
                    tenant="acme",
                    scope="orgs/acme",
                    installation_id=1,
                    vcpus=4,
                    memory_gb=4,
                    platform="macos",
                    runner_name=f"runner-{number}",
                )
                decision = await store.about_slot(f"u{number}", event, name="offer")
                return not decision.refused

            return sum(await asyncio.gather(*(claim(number) for number in range(8))))

    with fresh(database_url) as own:
        for number in range(8):
            own.execute(
                "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
                " look_at) VALUES (%s, 'acme', 'acme/app', '{}', 'queued', true, now(), now())",
                (number + 1,),
            )
        assert asyncio.run(scenario()) == 2
        assert own.execute(OVER).fetchall() == []


def test_one_job_is_given_once(database_url: str) -> None:
    async def scenario() -> int:
        async with open_pool(
            database_url, clock=RealClock(), rng=random.Random(1), min_size=8, max_size=8
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            slots = []
            for number in range(8):
                polled = Polled(pod_uid=f"u{number}", pod_name=f"pod-{number}", pool="mac")
                slots.append(await store.poll(polled))

            async def claim(number: int) -> bool:
                event = Offer(
                    generation=slots[number].generation,
                    job_id=1,
                    tenant="acme",
                    scope="orgs/acme",
                    installation_id=1,
                    vcpus=1,
                    memory_gb=1,
                    platform="macos",
                    runner_name=f"runner-{number}",
                )
                return not (await store.about_slot(f"u{number}", event, name="offer")).refused

            return sum(await asyncio.gather(*(claim(number) for number in range(8))))

    with fresh(database_url) as own:
        own.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
            " look_at) VALUES (1, 'acme', 'acme/app', '{}', 'queued', true, now(), now())"
        )
        assert asyncio.run(scenario()) == 1
        (row,) = own.execute("SELECT state FROM jobs").fetchall()
        assert row["state"] == "bound"


def test_two_incarnations_that_poll_at_once_leave_one_open_slot(database_url: str) -> None:
    async def scenario() -> None:
        async with open_pool(
            database_url, clock=RealClock(), rng=random.Random(1), min_size=8, max_size=8
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            polls = [
                store.poll(Polled(pod_uid=f"u{number % 4}", pod_name="pod", pool="mac"))
                for number in range(16)
            ]
            await asyncio.gather(*polls)

    with fresh(database_url) as own:
        asyncio.run(scenario())
        assert len(own.execute("SELECT * FROM slots WHERE state <> 'closed'").fetchall()) == 1
        assert isinstance(own, psycopg.Connection)
