"""A claim takes the points of its mint from the rate budget, in the same transaction, and never more than there are."""

import asyncio
import random
from contextlib import AsyncExitStack

import psycopg
import pytest

from runyard.clock import RealClock
from runyard.db.contract import Database
from runyard.db.inline import InlineDatabase
from runyard.db.pooled import open_pool
from runyard.dispatch.budget import SharedBudget
from runyard.dispatch.claiming import Claimed, Claims
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.matching.values import Proposal
from runyard.github.errors import BudgetExhausted
from runyard.http.messages import Response
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.wire.reasons_dispatch import Proposed


def claimed(url: str, jobs: int, installation: int) -> None:
    """A tenant with queued jobs and idle slots for them."""
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(
            "INSERT INTO tenants (tenant, installation_id) VALUES ('acme', %s)", [installation]
        )
        link.execute("INSERT INTO tenant_limits VALUES ('acme', 'macos', 1000, 1000)")
        link.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at)"
            " SELECT n, 'acme', 'acme/app', '{x}', 'queued', true, now(), now() FROM generate_series(1, %s) n",
            [jobs],
        )
        link.execute(
            "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at)"
            " SELECT 'u' || n, 'p' || n, 'mac', n, 'idle', now(), now(), now() FROM generate_series(1, %s) n",
            [jobs],
        )


def offer(number: int, installation: int) -> Proposal:
    event = Offer(
        generation=number,
        job_id=number,
        tenant="acme",
        scope="orgs/acme",
        installation_id=installation,
        vcpus=1,
        memory_gb=1,
        platform="macos",
        runner_name=f"p{number}",
    )
    return Proposal(
        pod_uid=f"u{number}",
        event=event,
        tenant="acme",
        repository="acme/app",
        pool="mac",
        cost=1.0,
        reason=Proposed.NEXT_IN_TURN.because(tenant="acme", vtime=0.0),
        platform="macos",
    )


def test_claims_take_the_points_of_their_mints_and_no_more_than_there_are(
    database_url: str,
) -> None:
    claimed(database_url, 8, installation=7)

    async def scenario(budget: SharedBudget, database: InlineDatabase) -> None:
        claims = Claims(ctx=Context(), actor="me", budget=budget)

        async def claim(*numbers: int) -> Claimed:
            offers = [offer(number, 7) for number in numbers]
            return await database.transact(
                lambda tx: claims.claim(tx, offers, trial_within=8.0), name="claim"
            )

        first = await claim(1)
        assert first.paid == frozenset()  # this installation has no budget yet: its mint opens it
        await budget.spend(5, purpose="mint", key="7")
        left = 60 - 5
        second = await claim(2, 3, 4)
        assert second.paid == {2, 3, 4}
        (figures,) = await budget.rate_budgets()
        assert figures.points == pytest.approx(left - 15)
        await budget.spend(5, purpose="mint", key="7", taken=True)  # takes nothing again
        (figures,) = await budget.rate_budgets()
        assert figures.points == pytest.approx(left - 15)
        assert (await claim(2)).paid == frozenset()  # refused: it is bound already
        await budget.spend(33, purpose="mint", key="7")
        last = await claim(5, 6)  # 7 points are left, for one mint
        assert all(each.refused is None for each in last.decisions)
        assert len(last.paid) == 1

    async def main() -> None:
        clock = VirtualClock()
        with InlineDatabase(database_url, clock=clock) as database:
            budget = SharedBudget(database, clock=clock, points_per_minute=60, patience=0)
            await scenario(budget, database)

    run_virtual(main(), seed=1)


def test_points_that_were_taken_do_not_pass_a_rate_limit(database_url: str) -> None:
    async def scenario(budget: SharedBudget, clock: VirtualClock) -> None:
        await budget.record_response(
            Response(status=403, headers=(("retry-after", "30"),)), key="7"
        )
        with pytest.raises(BudgetExhausted):
            await budget.spend(5, purpose="mint", key="7", taken=True)
        await clock.sleep(30)
        await budget.spend(5, purpose="mint", key="7", taken=True)

    async def main() -> None:
        clock = VirtualClock()
        with InlineDatabase(database_url, clock=clock) as database:
            await scenario(SharedBudget(database, clock=clock, patience=0), clock)

    run_virtual(main(), seed=1)


def test_three_replicas_that_claim_together_never_exceed_it(database_url: str) -> None:
    """Real Postgres, real connections: each claims jobs of its own as fast as it can."""
    claimed(database_url, 60, installation=7)

    async def main() -> None:
        clock, paid = RealClock(), list[int]()
        async with AsyncExitStack() as stack:
            began = clock.monotonic()

            async def one(pool: Database, claims: Claims, job: int) -> Claimed:
                offers = [offer(job, 7)]
                return await pool.transact(
                    lambda tx: claims.claim(tx, offers, trial_within=8.0), name="claim"
                )

            async def replica(number: int) -> None:
                pool = await stack.enter_async_context(
                    open_pool(database_url, clock=clock, rng=random.Random(number), max_size=2)
                )
                budget = SharedBudget(pool, clock=clock, points_per_minute=60, patience=0.0)
                claims = Claims(ctx=Context(), actor=f"me-{number}", budget=budget)
                for job in range(1 + number, 61, 3):
                    paid.extend((await one(pool, claims, job)).paid)

            budget = SharedBudget(
                await stack.enter_async_context(
                    open_pool(database_url, clock=clock, rng=random.Random(9), max_size=1)
                ),
                clock=clock,
                points_per_minute=60,
            )
            await budget.spend(5, purpose="mint", key="7")
            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(replica(number))
            elapsed = clock.monotonic() - began
        assert 11 <= len(paid) <= (60 - 5 + elapsed * 1.0) / 5 + 1e-6
        assert len(set(paid)) == len(paid)

    asyncio.run(main())
