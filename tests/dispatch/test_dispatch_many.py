"""Many dispatchers at once on a real Postgres: no budget is exceeded, no job bound twice, and there is no deadlock."""

import asyncio
import random
from typing import Any

import psycopg
import pytest
from tests.dispatch.test_dispatch_store import claim, fresh, proposal

from runyard.clock import RealClock
from runyard.db.contract import Tx
from runyard.db.pooled import open_pool
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Adopt,
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
from runyard.dispatch.matching.values import Proposal
from runyard.dispatch.store import JobInfo, Store
from runyard.wire.reasons_dispatch import Why

REFUSED = Why.MINT_REFUSED.because(kind="rejected", message="")
GONE = Why.POD_NOT_FOUND.because()

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


def offer(uid: str, generation: int, job_id: int, *, tenant: str = "acme", vcpus: int = 4) -> Offer:
    return Offer(
        generation=generation,
        job_id=job_id,
        tenant=tenant,
        scope=f"orgs/{tenant}",
        installation_id=1,
        vcpus=vcpus,
        memory_gb=4,
        platform="macos",
        runner_name=f"runner-{uid}",
    )


class Dispatcher:
    """One replica that does everything at random: polls, claims, mints, webhooks, fences, Pods that die."""

    def __init__(self, database: Any, number: int, counts: dict[str, int]) -> None:
        self.rng = random.Random(number)
        self.store = Store(database, ctx=Context(), actor=f"server-{number}")
        self.database = database
        self.counts = counts
        self.held: dict[str, int] = {}

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self.rng.choice(
                (self.poll, self.claim, self.claim, self.claim, self.finish, self.github)
            )()
            await self.database.transact(self.check, name="check")

    async def check(self, tx: Tx) -> None:
        assert await tx.all(OVER) == [], "a budget is exceeded"
        assert await tx.all(TWICE) == [], "a job is bound twice, or to nobody"

    async def poll(self) -> None:
        uid = f"u{self.rng.randrange(12)}"
        name = f"pod-{uid}" if self.rng.random() < 0.9 else "pod-shared"
        await self.store.poll(Polled(pod_uid=uid, pod_name=name, pool="mac"))

    async def claim(self) -> None:
        """Up to four proposals in one transaction, in any order: some for the same job or the same slot."""

        async def supply(tx: Tx) -> Any:
            return await tx.all(
                "SELECT pod_uid, generation, state, tenant FROM slots WHERE state = 'idle'"
                " OR (state = 'armed' AND intended_job IS NULL)"
            )

        async def queued(tx: Tx) -> Any:
            return await tx.all(
                "SELECT job_id, tenant FROM jobs WHERE state = 'queued' AND verified"
            )

        slots = await self.database.transact(supply, name="supply")
        jobs = await self.database.transact(queued, name="queued")
        if not slots or not jobs:
            return
        asked = [
            self.propose(self.rng.choice(slots), self.rng.choice(jobs))
            for _ in range(self.rng.randrange(1, 5))
        ]
        decisions = await claim(self.store, *asked)
        await asyncio.sleep(0)
        for each, decision in zip(asked, decisions, strict=True):
            kind = type(each.event).__name__
            outcome = "refused" if decision.slot is None else kind
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if decision.slot is not None and isinstance(each.event, Offer):
                await self.mint(each.pod_uid, decision.slot.generation)

    def propose(self, slot: Any, job: Any) -> Proposal:
        if slot["state"] == "armed":
            adopt = Adopt(generation=slot["generation"], job_id=job["job_id"])
            return proposal(slot["pod_uid"], adopt, tenant=slot["tenant"])
        event = offer(
            slot["pod_uid"],
            slot["generation"],
            job["job_id"],
            tenant=job["tenant"],
            vcpus=self.rng.choice([2, 3, 4]),
        )
        return proposal(slot["pod_uid"], event, tenant=job["tenant"])

    async def mint(self, uid: str, generation: int) -> None:
        done: Any = Arm(generation=generation, runner_id=1, jit=b"jit", stamped=True)
        if self.rng.random() < 0.3:
            done = MintFailed(generation=generation, reason=REFUSED)
        await self.store.apply_to_slot(uid, done, name="mint")

    async def finish(self) -> None:
        uid = f"u{self.rng.randrange(12)}"

        async def read(tx: Tx) -> Any:
            return await tx.one("SELECT * FROM slots WHERE pod_uid = %(uid)s", uid=uid)

        slot = await self.database.transact(read, name="read")
        if slot is None:
            return
        answer = self.rng.choice(list(FenceAnswer))
        fenced = Fenced(generation=slot["generation"], answer=answer, scope_read=True)
        await self.store.apply_to_slot(uid, fenced, name="fence")
        if self.rng.random() < 0.5:
            await self.store.apply_to_slot(uid, PodGone(reason=GONE), name="gone")

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
            return await self.store.apply_job_fact(tx, event, tenant, info)

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
                min_size=10,  # each dispatcher has a connection of its own
                max_size=10,
                patience=60.0,  # the speed of this machine is not tested
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
    assert counts["Offer"] >= 5 and counts["refused"] >= 5
    assert conflicts == [], "two transactions waited for each other in a circle"


async def race(store: Store, asked: list[tuple[int, int, int]], *, vcpus: int = 4) -> int:
    """Claim all of them at once, each on a connection of its own; returns how many succeeded."""

    async def one(generation: int, number: int, job_id: int) -> bool:
        event = offer(f"u{number}", generation, job_id, vcpus=vcpus)
        (decision,) = await claim(store, proposal(f"u{number}", event))
        return not decision.refused

    return sum(await asyncio.gather(*(one(*each) for each in asked)))


def test_the_last_of_a_budget_is_claimed_once(database_url: str) -> None:
    """Eight claims for the headroom of two, all at the same moment."""

    async def scenario() -> int:
        async with open_pool(
            database_url, clock=RealClock(), rng=random.Random(1), min_size=8, max_size=8
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            slots = []
            for number in range(8):
                polled = Polled(pod_uid=f"u{number}", pod_name=f"pod-{number}", pool="mac")
                slots.append(await store.poll(polled))

            return await race(
                store, [(slots[number].generation, number, number + 1) for number in range(8)]
            )

    with fresh(database_url) as own:
        for number in range(8):
            own.execute(
                "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
                " look_at) VALUES (%s, 'acme', 'acme/app', '{}', 'queued', true, now(), now())",
                (number + 1,),
            )
        assert asyncio.run(scenario()) == 2
        assert own.execute(OVER).fetchall() == []


def test_one_job_is_claimed_once(database_url: str) -> None:
    async def scenario() -> int:
        async with open_pool(
            database_url, clock=RealClock(), rng=random.Random(1), min_size=8, max_size=8
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            slots = []
            for number in range(8):
                polled = Polled(pod_uid=f"u{number}", pod_name=f"pod-{number}", pool="mac")
                slots.append(await store.poll(polled))

            return await race(
                store, [(slots[number].generation, number, 1) for number in range(8)], vcpus=1
            )

    with fresh(database_url) as own:
        own.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
            " look_at) VALUES (1, 'acme', 'acme/app', '{}', 'queued', true, now(), now())"
        )
        assert asyncio.run(scenario()) == 1
        (row,) = own.execute("SELECT state FROM jobs").fetchall()
        assert row["state"] == "bound"


def test_two_pods_of_one_name_that_poll_at_once_leave_one_open_slot(database_url: str) -> None:
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


def test_batches_with_the_same_rows_in_opposite_orders_do_not_deadlock(
    database_url: str,
) -> None:
    """Each replica claims the same jobs and slots of both tenants, every second one backwards."""
    conflicts: list[str] = []

    def observe(name: str, outcome: str, seconds: float) -> None:
        if outcome == "conflict":
            conflicts.append(name)

    async def scenario() -> int:
        async with open_pool(
            database_url,
            clock=RealClock(),
            rng=random.Random(1),
            min_size=8,
            max_size=8,
            patience=60.0,
            deadline=60.0,
            observe=observe,
        ) as database:
            store = Store(database, ctx=Context(), actor="me")
            batch = []
            for number in range(6):
                uid, tenant = f"u{number}", TENANTS[number % 2]
                polled = Polled(pod_uid=uid, pod_name=f"pod-{number}", pool="mac")
                slot = await store.poll(polled)
                event = offer(uid, slot.generation, number + 1, tenant=tenant, vcpus=1)
                batch.append(proposal(uid, event, tenant=tenant))
            orders = [batch if number % 2 else batch[::-1] for number in range(8)]
            decided = await asyncio.gather(*(claim(store, *order) for order in orders))
            return sum(not each.refused for decisions in decided for each in decisions)

    with fresh(database_url, *TENANTS) as own:
        for number in range(6):
            own.execute(
                "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
                " look_at) VALUES (%s, %s, 'a/app', '{}', 'queued', true, now(), now())",
                (number + 1, TENANTS[number % 2]),
            )
        assert asyncio.run(scenario()) == 6
        assert own.execute(TWICE).fetchall() == []
    assert conflicts == [], "two transactions waited for each other in a circle"
