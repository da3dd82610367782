"""Claims per second against the bare statements, and flat in the number of jobs that lie around."""

import asyncio

import psycopg
from benches.conftest import Ratios, best_rate

from runyard.clock import RealClock
from runyard.db.contract import Tx
from runyard.db.inline import InlineDatabase
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Offer, Polled
from runyard.dispatch.store import SQL, Store

_CLAIMS = 300


def _fill(url: str, *, done: int, queued: int) -> None:
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("TRUNCATE slots, jobs, tenants, tenant_limits, transitions CASCADE")
        link.execute("INSERT INTO tenants (tenant, installation_id) VALUES ('acme', 1)")
        link.execute("INSERT INTO tenant_limits VALUES ('acme', 'macos', 1000000, 1000000)")
        for state, first, count in (("done", 1, done), ("queued", 10_000_000, queued)):
            link.execute(
                "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at)"
                " SELECT n, 'acme', 'acme/app', ARRAY['macos'], %s, true, now(), now() + interval '1 day'"
                " FROM generate_series(%s::bigint, %s::bigint) n",
                [state, first, first + count - 1],
            )
        link.execute("ANALYZE")


def _offer(generation: int, job: int, name: str) -> Offer:
    return Offer(
        generation=generation,
        job_id=job,
        tenant="acme",
        scope="orgs/acme",
        installation_id=1,
        vcpus=1,
        memory_gb=1,
        platform="macos",
        runner_name=name,
    )


def _claims(url: str, tag: str) -> int:
    async def run() -> int:
        with InlineDatabase(url, clock=RealClock()) as database:
            store = Store(database, ctx=Context(), actor="bench")
            for number in range(_CLAIMS):
                name = f"{tag}-{number}"
                slot = await store.poll(Polled(pod_uid=name, pod_name=name, pool="pool"))
                rows = await database.transact(
                    lambda tx: tx.all(SQL.match_jobs, per_tenant=1), name="head of the queue"
                )
                offer = _offer(slot.generation, rows[0]["job_id"], name)
                decision = await store.about_slot(name, offer, name="claim")
                assert not decision.refused, decision.refused
        return _CLAIMS

    return asyncio.run(run())


def _bare(url: str) -> int:
    """The least that a claim could cost: an insert, a look, and one update of a row, committed."""

    async def run() -> int:
        with InlineDatabase(url, clock=RealClock()) as database:
            for number in range(_CLAIMS):

                async def insert(tx: Tx, number: int = number) -> None:
                    await tx.run(SQL.cursor_write, name=f"c{number}", value="1")

                async def update(tx: Tx) -> None:
                    await tx.one(SQL.tenant_lock, tenant="acme")
                    await tx.run(SQL.tenant_charge, tenant="acme", vtime=1.0)

                await database.transact(insert, name="insert")
                await database.transact(update, name="update")
        return _CLAIMS

    return asyncio.run(run())


def bench_a_claim_costs_a_small_multiple_of_its_bare_statements(
    ratios: Ratios, database_url: str
) -> None:
    """Poll, look and claim with all checks, locks and the log, against two bare transactions."""
    _fill(database_url, done=0, queued=10_000)
    runs = iter(range(100))
    ours = best_rate(lambda: _claims(database_url, f"a{next(runs)}"))
    ratios.hold(
        "dispatch: claims, 10 thousand jobs",
        ours,
        best_rate(lambda: _bare(database_url)),
        floor=0.1,
    )


def bench_claims_are_flat_in_the_number_of_jobs(ratios: Ratios, database_url: str) -> None:
    """300 thousand jobs that are over, and as many that wait, must not slow a claim down."""
    runs = iter(range(100))
    _fill(database_url, done=1_000, queued=9_000)
    few = best_rate(lambda: _claims(database_url, f"b{next(runs)}"))
    _fill(database_url, done=300_000, queued=300_000)
    many = best_rate(lambda: _claims(database_url, f"c{next(runs)}"))
    ratios.hold("dispatch: claims, 600 thousand jobs against 10 thousand", many, few, floor=0.5)
