"""Writes a processor's claims, heartbeats, ends and repairs. Row and delivery change in one transaction.

If the outcome of a commit is unknown (the connection broke during it), the row is read before anything is concluded:
a claim by its owner, which is a random name used once; an end by the attempt's own record.

Invariants:
- A committed claim is processed even if the outcome of its commit was unknown: no attempt is lost.
- `True` or a claim means committed. An exception means that nothing is known to be committed; a retry is safe.
"""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runyard.db.contract import CommitUnknown, Database, Tx
from runyard.xcresult import store
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.plans.rescuing import Redeliver, Rescue, Seen, plan
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.settings import QUEUE, Settings
from runyard.xcresult.store import SQL, Backlog, Claim

T = TypeVar("T")
_AT_ONCE = 50  # runs repaired in one transaction
_BATCHES = (
    20  # such transactions in one step: a queue that is lost completely is restored in few steps
)
_DEAD = 1.5  # leases without heartbeat after which a consumer is removed
_AWAY = 2  # failed steps in a row after which we assume that other workers could not write heartbeats either
_ROUNDS = 2  # steps that rescue no run after that, so that live workers can write heartbeats first


class Busy(Exception):
    """Another transaction is changing that run; the delivery stays in the queue."""


class RunClaims:
    """Claims runs and repairs the queue for one processor."""

    def __init__(
        self, database: Database, *, name: str, rng: random.Random, settings: Settings
    ) -> None:
        self._database = database
        self._name = name
        self._rng = rng
        self._settings = settings
        self._worker: int | None = None
        self._unsure: list[str] = []  # owners of claims with an unknown commit
        self._failed = 0  # steps in a row
        self._wait = 0  # steps left that rescue no run

    async def next(self) -> Claim | None:
        """Claim the next run; None if no run is due."""
        if self._unsure:
            found = await self._recover(self._unsure[0])
            self._unsure.pop(0)
            if found is not None:
                return found
        owner = f"{self._name}/{self._rng.getrandbits(64):016x}"
        worker = await self.beat()

        async def take(tx: Tx) -> tuple[Claim | None, bool]:
            return await self._take(tx, owner=owner, worker=worker)

        while True:
            try:
                taken, more = await self._database.transact(take, name="xcresult claim")
            except CommitUnknown:
                self._unsure.append(owner)
                raise
            except Busy:
                return None
            if taken is not None or not more:
                return taken

    async def _take(self, tx: Tx, *, owner: str, worker: int) -> tuple[Claim | None, bool]:
        """A claim, and whether there was a delivery at all."""
        got = await delivery.fetch(tx, worker=worker)
        if got is None:
            return None, False
        key = {"run_id": got.run_id, "shard": got.shard}
        if await tx.one(SQL.run_lock, **key) is None and await tx.one(SQL.run_there, **key):
            raise Busy
        taken = await store.claim(
            tx,
            run_id=got.run_id,
            shard=got.shard,
            owner=owner,
            job=got.job,
            lease=self._settings.lease,
        )
        if taken is None:  # the run was processed, given up or deleted meanwhile
            await delivery.retire(tx, job=got.job)
        return taken, True

    async def _recover(self, owner: str) -> Claim | None:
        async def read(tx: Tx) -> Claim | None:
            return await store.claimed(tx, owner=owner)

        return await self._database.transact(read, name="xcresult claimed")

    async def beat(self) -> int:
        """Write this consumer's heartbeat; returns its number. A consumer that was removed as dead gets a new one."""

        async def work(tx: Tx) -> int:
            return await delivery.write_heartbeat(tx, worker=self._worker)

        self._worker = await self._database.transact(work, name="xcresult consumer")
        return self._worker

    async def leave(self) -> None:
        """Remove this consumer from the queue."""

        async def work(tx: Tx) -> None:
            if self._worker is not None:
                await delivery.unregister(tx, worker=self._worker)

        await self._database.transact(work, name="xcresult consumer gone")
        self._worker = None

    async def renew(self, held: Claim) -> bool:
        """Renew the claim; False: another worker has taken the run, and results of this attempt will be rejected."""

        async def work(tx: Tx) -> bool:
            return await store.renew(tx, held, lease=self._settings.lease)

        return await self._database.transact(work, name="xcresult heartbeat")

    async def end(self, held: Claim, decision: Decision) -> bool:
        """End an attempt without results; False: another worker had taken the run."""

        async def work(tx: Tx) -> bool:
            return await _conclude(tx, held, decision)

        try:
            return await self._database.transact(work, name="xcresult end")
        except CommitUnknown:
            return await self.outcome(held) == decision.verdict

    async def outcome(self, held: Claim) -> str:
        """The recorded outcome of an attempt; `running` until one is written."""

        async def read(tx: Tx) -> str:
            return await store.outcome(tx, held)

        return await self._database.transact(read, name="xcresult outcome")

    async def repair(self) -> dict[str, int]:
        """Rescue runs of dead workers and make rows and queue agree; returns the number of repairs of each kind.

        After a database outage no run is rescued at once, because live workers could not write heartbeats.
        """
        try:
            repaired = await self._repair(rescuing=not self._wait)
        except BaseException:
            self._failed += 1
            if self._failed >= _AWAY:
                self._wait = _ROUNDS
            raise
        self._failed, self._wait = 0, max(0, self._wait - 1)
        return repaired

    async def _repair(self, *, rescuing: bool) -> dict[str, int]:
        async def lost(tx: Tx) -> tuple[Rescue | Redeliver, ...]:
            return await self._apply(tx, await store.lapsed(tx, most=_AT_ONCE))

        async def undelivered(tx: Tx) -> tuple[Rescue | Redeliver, ...]:
            rows = await tx.all(SQL.runs_undelivered, prefix=f"{QUEUE}/", most=_AT_ONCE)
            return await self._apply(tx, tuple(_seen(row) for row in rows))

        async def strays(tx: Tx) -> tuple[int, ...]:
            found = await delivery.stray(tx, most=_AT_ONCE)
            for job in found:
                await delivery.retire(tx, job=job)
            await delivery.remove_dead(tx, dead_after=_DEAD * self._settings.lease)
            return found

        rescued = await self._all(lost, name="xcresult rescue") if rescuing else []
        retired = await self._all(strays, name="xcresult strays")
        again = await self._all(undelivered, name="xcresult redeliver")
        given_up = sum(isinstance(each, Rescue) and each.decision.final for each in rescued)
        return {
            "rescued": len(rescued) - given_up,
            "given_up": given_up,
            "retired": len(retired),
            "redelivered": len(again),
        }

    async def _all(self, work: Callable[[Tx], Awaitable[tuple[T, ...]]], *, name: str) -> list[T]:
        """Run one batch after the other until a batch is not full."""
        found: list[T] = []
        for _ in range(_BATCHES):
            batch = await self._database.transact(work, name=name)
            found += batch
            if len(batch) < _AT_ONCE:
                break
        return found

    async def _apply(self, tx: Tx, seen: tuple[Seen, ...]) -> tuple[Rescue | Redeliver, ...]:
        actions = plan(seen, settings=self._settings.retrying)
        for action in actions:
            if isinstance(action, Rescue):
                await _conclude(tx, action.run, action.decision)
            else:
                await delivery.deliver(tx, run_id=action.run.run_id, shard=action.run.shard)
        return actions

    async def tidy(self) -> None:
        """Delete old deliveries from the queue."""

        async def work(tx: Tx) -> None:
            await delivery.prune(tx, keep_hours=self._settings.keep_jobs_hours)

        await self._database.transact(work, name="xcresult prune")

    async def backlog(self) -> Backlog:
        """The number of runs in each state."""
        return await self._database.transact(store.backlog, name="xcresult backlog")


async def _conclude(tx: Tx, held: Claim | Seen, decision: Decision) -> bool:
    if decision.final:
        job = await store.give_up(tx, held, decision)
        if job is None:
            return False
        await delivery.retire(tx, job=job)
        return True
    put = await store.back(tx, held, decision)
    if put is None:
        return False
    due_at, job = put
    if not await delivery.reschedule(tx, job=job, at=due_at):
        await delivery.deliver(tx, run_id=held.run_id, shard=held.shard, at=due_at)
    return True


def _seen(row: dict[str, object]) -> Seen:
    return Seen(
        run_id=str(row["run_id"]),
        shard=int(str(row["shard"])),
        state="queued",
        attempt=int(str(row["attempt"])),
        claims=int(str(row["claims"])),
        spent=int(str(row["spent"])),
    )
