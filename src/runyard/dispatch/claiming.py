"""Claiming: many proposals in one transaction, each decided by the machine on rows that are locked.

A claim on its own would cost a dozen statements and a commit. Here the rows of all proposals are locked at once, in
the one order that everybody keeps (tenants, jobs, slots), and written at once.

Invariants:
- Each proposal is decided on the rows as the ones before it left them: together they never exceed a budget.
- One that does not hold any more is refused and costs the others nothing.
- Only what was claimed is charged.
"""

from collections.abc import Sequence

import msgspec

from runyard.db.contract import Row, Tx
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Decision, Job, Room, Slot, View
from runyard.dispatch.matching.values import Proposal
from runyard.dispatch.writing import SQL, Writer

_NO_ROOM = Room(vcpus=0, memory_gb=0)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of proposals, in their order, and in which era of the database."""

    decisions: tuple[Decision, ...] = ()
    era: str = ""


class _Rows:
    """The locked rows, as the proposals so far have left them."""

    def __init__(self, jobs: list[Row], slots: list[Row], rooms: list[Row]) -> None:
        self._jobs = {row["job_id"]: msgspec.convert(row, Job) for row in jobs}
        self._slots = {
            row["pod_uid"]: msgspec.convert(row, Slot, builtin_types=(bytes,)) for row in slots
        }
        self._rooms = {
            (row["tenant"], row["platform"]): Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"])
            for row in rooms
        }

    def view(self, proposal: Proposal) -> View:
        job = self._jobs.get(proposal.event.job_id)
        return View(
            slot=self._slots.get(proposal.pod_uid),
            jobs=() if job is None else (job,),
            room=self._rooms.get(_purse(proposal), _NO_ROOM),
        )

    def learn(self, proposal: Proposal, decision: Decision) -> None:
        for job in decision.jobs:
            self._jobs[job.job.job_id] = job.job
        for slot in decision.slots:
            self._slots[slot.slot.pod_uid] = slot.slot
        event = proposal.event
        if not decision.refused and isinstance(event, Offer):
            left = self._rooms[_purse(proposal)]
            self._rooms[_purse(proposal)] = Room(
                vcpus=left.vcpus - event.vcpus, memory_gb=left.memory_gb - event.memory_gb
            )


class _Account(msgspec.Struct, kw_only=True):
    """What somebody's new runners cost: all of them, and the last one."""

    tenant: str
    repository: str  # nothing: the tenant itself
    platform: str
    floor: float
    cost: float = 0.0
    last: float = 0.0

    def add(self, cost: float) -> None:
        self.cost += cost
        self.last = cost


class Claims:
    """Applies proposals."""

    def __init__(self, *, ctx: Context, actor: str) -> None:
        self._ctx = ctx
        self._writer = Writer(actor)

    async def claim(self, tx: Tx, proposals: Sequence[Proposal], *, trial_within: float) -> Claimed:
        """Claim as many of them as still hold."""
        tenants = sorted({each.tenant for each in proposals})
        locked = await tx.all(SQL.tenants_lock, tenants=tenants)
        rows = _Rows(
            await tx.all(SQL.job_lock, job_ids=sorted({each.event.job_id for each in proposals})),
            await tx.all(SQL.slots_lock, pod_uids=sorted({each.pod_uid for each in proposals})),
            await tx.all(SQL.match_rooms, tenants=tenants),
        )
        decided = []
        for proposal in proposals:
            view = rows.view(proposal)
            decision = transition(view, proposal.event, self._ctx)
            rows.learn(proposal, decision)
            decided.append((view, decision))
        written = await self._writer.write(tx, decided)
        made = [
            proposal
            for proposal, decision in zip(proposals, written, strict=True)
            if not decision.refused and proposal.cost
        ]
        await self._charge(tx, made, trial_within)
        return Claimed(decisions=written, era=str(locked[0]["era"]) if locked else "")

    async def _charge(self, tx: Tx, made: Sequence[Proposal], trial_within: float) -> None:
        if not made:
            return
        accounts: dict[tuple[str, str, str], _Account] = {}
        for each in made:
            for repository, floor in (("", each.floor), (each.repository, each.own_floor)):
                key = (each.tenant, repository, each.platform)
                fresh = _Account(
                    tenant=each.tenant, repository=repository, platform=each.platform, floor=floor
                )
                accounts.setdefault(key, fresh).add(each.cost)
        await tx.run(SQL.charges, charges=msgspec.json.encode(list(accounts.values())).decode())
        for each in made:
            if each.trial:
                kind, _, name = each.trial.partition(":")
                await tx.run(SQL.exclusion_try, kind=kind, name=name, within=trial_within)


def _purse(proposal: Proposal) -> tuple[str, str]:
    event = proposal.event
    return proposal.tenant, event.platform if isinstance(event, Offer) else ""
