"""The store writes what the machine decides, under locks, by generation, with one log entry per change."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row
from tests.tiers import examples

from runyard.clock import RealClock
from runyard.db.contract import Database, Row, Statement, Tx, Unavailable
from runyard.db.inline import InlineDatabase
from runyard.db.pooled import open_pool
from runyard.dispatch.claiming import Claims
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    Claim,
    Event,
    FenceAnswer,
    Fenced,
    Inconclusive,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    MintAbandoned,
    MintFailed,
    Offer,
    PodGone,
    Polled,
    Retire,
)
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import CLAIMS, Decision, Headroom, Job, Slot, SlotState, View
from runyard.dispatch.matching.values import Proposal
from runyard.dispatch.store import JobInfo, Store, to_slot
from runyard.wire.reasons_dispatch import Why

REFUSED = Why.MINT_REFUSED.because(kind="rejected", message="")
UNCLEAR = Why.STAMP_FAILED.because(stamp="unclear")
GONE = Why.POD_NOT_FOUND.because()
LEAKED = Why.STAMPED_WITHOUT_CLAIM.because()

LIMIT = 8
INFO = JobInfo(repository="acme/app", labels=("shape-mac",))
Maker = Callable[[str], Any]


def link(url: str) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(url, autocommit=True, row_factory=dict_row)


@contextmanager
def fresh(url: str, *tenants: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with link(url) as own:
        own.execute("TRUNCATE slots, jobs, transitions, tenant_limits, tenants CASCADE")
        for tenant in tenants or ("acme",):
            own.execute("INSERT INTO tenants (tenant, installation_id) VALUES (%s, 1)", (tenant,))
            own.execute(
                "INSERT INTO tenant_limits VALUES (%s, 'macos', %s, %s)", (tenant, LIMIT, 2 * LIMIT)
            )
        yield own


@asynccontextmanager
async def inline(url: str) -> Any:
    with InlineDatabase(url, clock=RealClock()) as database:
        yield database


@asynccontextmanager
async def pooled(url: str) -> Any:
    async with open_pool(url, clock=RealClock(), rng=random.Random(1), max_size=10) as database:
        yield database


BOTH = pytest.mark.parametrize("made", [inline, pooled], ids=["inline", "pooled"])


def proposal(uid: str, event: Claim, *, tenant: str = "acme") -> Proposal:
    """Build a proposal of the matcher."""
    return Proposal(
        pod_uid=uid,
        event=event,
        tenant=tenant,
        repository=f"{tenant}/app",
        pool="mac",
        cost=1.0,
        reason="next",
        platform="macos",
    )


async def claim(store: Store, *proposals: Proposal) -> tuple[Decision, ...]:
    """Claim as the matcher does: all of them in one transaction of the store."""
    claims = Claims(ctx=Context(), actor="me")

    async def work(tx: Tx) -> tuple[Decision, ...]:
        return (await claims.claim(tx, proposals, trial_within=8.0)).decisions

    return await store.transact(work, name="claim")


class Model:
    """The same rows in memory, changed by the same machine."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.jobs: dict[int, Job] = {}
        self.ctx = Context()
        self.changes = 0

    def apply_to_slot(self, uid: str, event: Event) -> None:
        slot = self.slots.get(uid)
        named = [getattr(event, "job_id", None)]
        named += [slot.intended_job, slot.executing_job] if slot else []
        self._apply(View(slot=slot, jobs=self._jobs(named), headroom=self._headroom()), event)

    def about_job(self, event: Any) -> None:
        runner = getattr(event, "runner_name", "")
        slot = next(
            (each for each in self.slots.values() if runner and each.runner_name == runner), None
        )
        holder = next((e for e in self.slots.values() if e.intended_job == event.job_id), None)
        if holder is slot:
            holder = None
        named = [event.job_id, *([slot.intended_job, slot.executing_job] if slot else [])]
        self._apply(View(slot=slot, holder=holder, jobs=self._jobs(named)), event)

    def _jobs(self, named: list[int | None]) -> tuple[Job, ...]:
        return tuple(
            self.jobs[each] for each in sorted({n for n in named if n}) if each in self.jobs
        )

    def _headroom(self) -> Headroom:
        held = [each for each in self.slots.values() if each.state in CLAIMS]
        used = sum(each.vcpus for each in held)
        memory = sum(each.memory_gb for each in held)
        return Headroom(vcpus=LIMIT - used, memory_gb=2 * LIMIT - memory)

    def _apply(self, view: View, event: Event) -> None:
        decision = transition(view, event, self.ctx)
        for change in decision.slots:
            self.changes += change.slot.generation != change.before
            self.slots[change.slot.pod_uid] = change.slot
        for job in decision.jobs:
            self.changes += 1
            self.jobs[job.job.job_id] = job.job


class Pair:
    """A store on Postgres and the model beside it, given the same events."""

    def __init__(self, store: Store, own: psycopg.Connection[dict[str, Any]]) -> None:
        self.store, self.own, self.model = store, own, Model()

    def generation(self, uid: str, *, late: int = 0) -> tuple[int, int]:
        row = self.own.execute("SELECT generation FROM slots WHERE pod_uid = %s", (uid,)).fetchone()
        slot = self.model.slots.get(uid)
        return (row["generation"] - late if row else 0), (slot.generation - late if slot else 0)

    async def slot(self, uid: str, event: Event, *, late: int = 0) -> None:
        real, model = self.generation(uid, late=late)
        stored, modelled = event, event
        if getattr(event, "generation", None) is not None:
            stored = msgspec.structs.replace(event, generation=real)  # type: ignore[type-var]  # all that get here have a generation
            modelled = msgspec.structs.replace(event, generation=model)  # type: ignore[type-var]  # as above
        if isinstance(event, Polled):
            await self.store.poll(event)
        elif isinstance(stored, Claim):
            await claim(self.store, proposal(uid, stored))
        else:
            await self.store.apply_to_slot(uid, stored, name="test")
        self.model.apply_to_slot(uid, modelled)

    async def job(self, event: Any) -> None:
        async def work(tx: Tx) -> object:
            return await self.store.apply_job_fact(tx, event, "acme", INFO)

        await self.store.transact(work, name="test")
        self.model.about_job(event)

    def compare(self) -> None:
        rows = self.own.execute("SELECT * FROM slots ORDER BY pod_uid").fetchall()
        same = msgspec.structs.replace
        stored = [same(to_slot(row), generation=0) for row in rows]
        modelled = [same(self.model.slots[uid], generation=0) for uid in sorted(self.model.slots)]
        assert stored == modelled
        rows = self.own.execute("SELECT * FROM jobs ORDER BY job_id").fetchall()
        jobs = [msgspec.convert(row, Job) for row in rows]
        assert jobs == [self.model.jobs[each] for each in sorted(self.model.jobs)]
        logged = self.own.execute("SELECT count(*) AS n FROM transitions").fetchone()
        assert logged is not None and logged["n"] == self.model.changes


def offer(job_id: int, uid: str) -> Offer:
    return Offer(
        generation=0,
        job_id=job_id,
        tenant="acme",
        scope="orgs/acme",
        installation_id=1,
        vcpus=4,
        memory_gb=8,
        platform="macos",
        runner_name=f"runner-{uid}",
    )


UIDS, JOBS = st.sampled_from(["a", "b", "c"]), st.integers(1, 4)
RUNNERS = st.sampled_from(["runner-a", "runner-b", "runner-c", "foreign"])
LATE = st.sampled_from([0, 0, 0, 1])


def steps() -> st.SearchStrategy[tuple[str, str | None, Any, int]]:
    about_slot = st.one_of(
        UIDS.map(lambda u: (u, Polled(pod_uid=u, pod_name=f"pod-{u}", pool="mac"))),
        st.tuples(UIDS, JOBS).map(lambda t: (t[0], offer(t[1], t[0]))),
        st.tuples(UIDS, JOBS).map(lambda t: (t[0], offer(t[1], t[0]))),
        st.tuples(UIDS, JOBS).map(lambda t: (t[0], Adopt(generation=0, job_id=t[1]))),
        UIDS.map(lambda u: (u, Arm(generation=0, runner_id=9, jit=b"\x00\xffjit", stamped=True))),
        UIDS.map(
            lambda u: (
                u,
                MintFailed(
                    generation=0,
                    reason=REFUSED,
                    hold_job=3.0,
                ),
            )
        ),
        UIDS.map(
            lambda u: (
                u,
                MintAbandoned(generation=0, reason=UNCLEAR, runner_id=4),
            )
        ),
        st.tuples(UIDS, st.sampled_from(list(FenceAnswer)), st.booleans()).map(
            lambda t: (t[0], Fenced(generation=0, answer=t[1], scope_read=t[2]))
        ),
        UIDS.map(lambda u: (u, Inconclusive(generation=0))),
        UIDS.map(lambda u: (u, PodGone(reason=GONE))),
        UIDS.map(
            lambda u: (
                u,
                Retire(
                    pod_uid=u,
                    pod_name=f"pod-{u}",
                    pool="mac",
                    generation=0,
                    reason=LEAKED,
                ),
            )
        ),
    ).flatmap(lambda pair: LATE.map(lambda late: ("slot", pair[0], pair[1], late)))
    about_job = st.one_of(
        JOBS.map(lambda j: JobQueued(job_id=j, tenant="acme")),
        JOBS.map(lambda j: JobQueued(job_id=j, tenant="acme")),
        JOBS.map(lambda j: JobStillQueued(job_id=j)),
        st.tuples(JOBS, RUNNERS).map(
            lambda t: JobStarted(job_id=t[0], tenant="acme", runner_name=t[1])
        ),
        st.tuples(JOBS, RUNNERS | st.just("")).map(
            lambda t: JobEnded(job_id=t[0], tenant="acme", runner_name=t[1], conclusion="success")
        ),
    ).map(lambda event: ("job", None, event, 0))
    return st.one_of(about_slot, about_slot, about_job)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(st.lists(steps(), min_size=5, max_size=40))
def test_the_store_writes_what_the_machine_decides(
    database_url: str, story: list[tuple[str, str | None, Any, int]]
) -> None:
    async def scenario() -> None:
        async with inline(database_url) as database:
            with fresh(database_url) as own:
                pair = Pair(Store(database, ctx=Context(), actor="me"), own)
                for kind, uid, event, late in story:
                    if kind == "job":
                        await pair.job(event)
                    else:
                        await pair.slot(str(uid), event, late=late)
                pair.compare()
                assert {row["actor"] for row in own.execute("SELECT actor FROM transitions")} <= {
                    "me"
                }

    asyncio.run(scenario())


STORY: list[tuple[str, str | None, Any, int]] = [
    ("job", None, JobQueued(job_id=1, tenant="acme"), 0),
    ("job", None, JobQueued(job_id=2, tenant="acme"), 0),
    ("slot", "a", Polled(pod_uid="a", pod_name="pod-a", pool="mac"), 0),
    ("slot", "a", offer(1, "a"), 0),
    (
        "slot",
        "a",
        MintFailed(generation=0, reason=REFUSED, hold_job=3.0),
        0,
    ),
    ("job", None, JobStillQueued(job_id=1), 0),
    ("slot", "a", offer(1, "a"), 0),
    ("slot", "a", Arm(generation=0, runner_id=9, jit=b"\x00\xffjit", stamped=True), 1),
    ("slot", "a", Arm(generation=0, runner_id=9, jit=b"\x00\xffjit", stamped=True), 0),
    ("job", None, JobStarted(job_id=1, tenant="acme", runner_name="other"), 0),
    ("slot", "a", Adopt(generation=0, job_id=2), 0),
    ("job", None, JobStarted(job_id=2, tenant="acme", runner_name="runner-a"), 0),
    ("job", None, JobEnded(job_id=2, tenant="acme", runner_name="runner-a", conclusion="x"), 0),
    ("slot", "a", PodGone(reason=GONE), 0),
    (
        "slot",
        "b",
        Retire(
            pod_uid="b",
            pod_name="pod-b",
            pool="mac",
            generation=None,
            reason=LEAKED,
        ),
        0,
    ),
    ("slot", "c", Polled(pod_uid="c", pod_name="pod-c", pool="mac"), 0),
]


@BOTH
def test_both_database_clients_write_the_same_rows(database_url: str, made: Maker) -> None:
    async def scenario() -> None:
        async with made(database_url) as database:
            with fresh(database_url) as own:
                pair = Pair(Store(database, ctx=Context(), actor="me"), own)
                for kind, uid, event, late in STORY:
                    await (
                        pair.job(event) if kind == "job" else pair.slot(str(uid), event, late=late)
                    )
                    pair.compare()
                assert pair.model.slots["a"].state is SlotState.CLOSED

    asyncio.run(scenario())


@BOTH
def test_a_generation_never_repeats_and_a_stale_one_changes_nothing(
    database_url: str, made: Maker
) -> None:
    async def scenario() -> None:
        async with made(database_url) as database:
            with fresh(database_url) as own:
                pair = Pair(Store(database, ctx=Context(), actor="me"), own)
                seen: list[int] = []
                for kind, uid, event, late in STORY[:9]:
                    await (
                        pair.job(event) if kind == "job" else pair.slot(str(uid), event, late=late)
                    )
                    seen.append(pair.generation("a")[0])
                used = list(dict.fromkeys(each for each in seen if each))
                assert used == sorted(used) and len(used) == 5
                # An old backup is restored: the row is as it was, and answers from the time between are void.
                own.execute(
                    "UPDATE slots SET generation = %s, state = 'offered' WHERE pod_uid = 'a'",
                    (used[1],),
                )
                await pair.store.apply_to_slot("a", Inconclusive(generation=used[1]), name="test")
                abandon = MintAbandoned(generation=used[1], reason=UNCLEAR)
                await pair.store.apply_to_slot("a", abandon, name="test")
                assert pair.generation("a")[0] not in used
                before = own.execute("SELECT * FROM slots").fetchall()
                for stale in used:
                    event = Arm(generation=stale, runner_id=1, jit=b"x", stamped=True)
                    assert (await pair.store.apply_to_slot("a", event, name="test")).refused
                assert own.execute("SELECT * FROM slots").fetchall() == before

    asyncio.run(scenario())


def test_rows_that_change_at_every_attempt_raise_unavailable(
    database_url: str,
) -> None:
    async def scenario() -> None:
        async with inline(database_url) as database:
            with fresh(database_url) as own:
                store = Store(database, ctx=Context(), actor="me")
                await store.poll(Polled(pod_uid="old", pod_name="pod", pool="mac"))
                leak = Retire(
                    pod_uid="new",
                    pod_name="pod",
                    pool="mac",
                    generation=None,
                    reason=LEAKED,
                )
                with pytest.raises(Unavailable):
                    await store.apply_to_slot("new", leak, name="test")
                assert len(own.execute("SELECT * FROM slots").fetchall()) == 1

    asyncio.run(scenario())


class Watched:
    """A database that records the order of each transaction's locks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.orders: list[list[str]] = []

    async def transact(self, work: Callable[[Tx], Awaitable[Any]], *, name: str) -> Any:
        async def spied(tx: Tx) -> Any:
            self.orders.append([])
            return await work(_Spy(tx, self.orders[-1]))

        return await self._database.transact(spied, name=name)


class _Spy:
    def __init__(self, tx: Tx, order: list[str]) -> None:
        self._tx, self._order = tx, order

    def _note(self, sql: str) -> None:
        if "FOR UPDATE" in sql:
            self._order.append(sql.split("FROM ")[1].split(maxsplit=1)[0])

    async def all(self, sql: str, /, **params: object) -> Any:
        self._note(sql)
        return await self._tx.all(sql, **params)

    async def one(self, sql: str, /, **params: object) -> Any:
        self._note(sql)
        return await self._tx.one(sql, **params)

    async def run(self, sql: str, /, **params: object) -> int:
        return await self._tx.run(sql, **params)

    async def several(self, *statements: Statement) -> list[list[Row]]:
        for sql, _ in statements:
            self._note(sql)
        return await self._tx.several(*statements)

    async def read(self, *statements: Statement) -> list[list[Row]]:
        return await self._tx.read(*statements)

    async def finish(self, *statements: Statement, alone: bool = False) -> list[list[Row]]:
        for sql, _ in statements:
            self._note(sql)
        return await self._tx.finish(*statements, alone=alone)


def test_locks_are_taken_in_one_order(database_url: str) -> None:
    async def scenario() -> None:
        async with inline(database_url) as database:
            with fresh(database_url) as own:
                watched = Watched(database)
                pair = Pair(Store(watched, ctx=Context(), actor="me"), own)
                for kind, uid, event, late in STORY:
                    await (
                        pair.job(event) if kind == "job" else pair.slot(str(uid), event, late=late)
                    )
                order = {"tenants": 0, "jobs": 1, "slots": 2}
                for taken in watched.orders:
                    places = [order[table] for table in taken]
                    assert places == sorted(places), taken
                assert ["tenants", "jobs", "slots"] in watched.orders

    asyncio.run(scenario())
