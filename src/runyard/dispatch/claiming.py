"""Claims jobs for slots: applies many proposals in one transaction, on locked rows.

The rows of all proposals are locked in one round trip, in the one order that every transaction keeps (tenants, jobs,
slots), and written and committed in a second one. So a hundred claims cost as many round trips as one. The write also
takes the points of the mints from the rate budgets, as far as there are any; their rows are locked last, in order.

Invariants:
- Each proposal is decided on the rows as changed by the proposals before it: together they never exceed a budget.
- A proposal that is outdated is refused and does not affect the others.
- Only successful claims are charged to virtual time.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runyard.db.contract import Row, Statement, Tx
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Decision, Headroom, Job, Slot, View
from runyard.dispatch.matching.values import Proposal
from runyard.dispatch.writing import SQL, Writer

_NO_HEADROOM = Headroom(vcpus=0, memory_gb=0)


class MintPoints(Protocol):
    """Takes the points of mints from the rate budgets within the claim's transaction; `budget.SharedBudget`."""

    def mint_statements(self, installations: Sequence[int]) -> list[Statement]:
        """The statements that take the points of one mint for each of these sorted installations."""
        ...

    def is_taken(self, rows: list[Row]) -> bool:
        """Whether the statement with this answer took the points."""
        ...


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for each proposal, in order, and the era of the database.

    `paid` are the jobs for whose mints the points were taken from the rate budget.
    """

    decisions: tuple[Decision, ...] = ()
    era: str = ""
    paid: frozenset[int] = frozenset()


class _Rows:
    """The locked rows, with the changes of the proposals so far."""

    def __init__(self, jobs: list[Row], slots: list[Row], headrooms: list[Row]) -> None:
        self._jobs = {row["job_id"]: msgspec.convert(row, Job) for row in jobs}
        self._slots = {
            row["pod_uid"]: msgspec.convert(row, Slot, builtin_types=(bytes,)) for row in slots
        }
        self._headrooms = {
            (row["tenant"], row["platform"]): Headroom(
                vcpus=row["vcpus"], memory_gb=row["memory_gb"]
            )
            for row in headrooms
        }

    def view(self, proposal: Proposal) -> View:
        job = self._jobs.get(proposal.event.job_id)
        return View(
            slot=self._slots.get(proposal.pod_uid),
            jobs=() if job is None else (job,),
            headroom=self._headrooms.get(_budget_key(proposal), _NO_HEADROOM),
        )

    def apply(self, proposal: Proposal, decision: Decision) -> None:
        for job in decision.jobs:
            self._jobs[job.job.job_id] = job.job
        for slot in decision.slots:
            self._slots[slot.slot.pod_uid] = slot.slot
        event = proposal.event
        if not decision.refused and isinstance(event, Offer):
            left = self._headrooms[_budget_key(proposal)]
            self._headrooms[_budget_key(proposal)] = Headroom(
                vcpus=left.vcpus - event.vcpus, memory_gb=left.memory_gb - event.memory_gb
            )


class _Charge(msgspec.Struct, kw_only=True):
    """What new runners cost a tenant or a repository: all of them together, and the last one."""

    tenant: str
    repository: str  # empty: the tenant itself
    platform: str
    floor: float
    cost: float = 0.0
    last: float = 0.0

    def add(self, cost: float) -> None:
        self.cost += cost
        self.last = cost


class Claims:
    """Applies the matcher's proposals."""

    def __init__(self, *, ctx: Context, actor: str, budget: MintPoints | None = None) -> None:
        self._ctx = ctx
        self._budget = budget  # None: a mint takes its points itself
        self._writer = Writer(actor)

    async def claim(self, tx: Tx, proposals: Sequence[Proposal], *, trial_within: float) -> Claimed:
        """Apply every proposal that is still valid."""
        tenants = sorted({each.tenant for each in proposals})
        locked, jobs, slots, headroom = await tx.several(
            (SQL.tenants_lock, {"tenants": tenants}),
            (SQL.job_lock, {"job_ids": sorted({each.event.job_id for each in proposals})}),
            (SQL.slots_lock, {"pod_uids": sorted({each.pod_uid for each in proposals})}),
            (SQL.match_headroom, {"tenants": tenants}),
        )
        rows = _Rows(jobs, slots, headroom)
        decided = []
        for proposal in proposals:
            view = rows.view(proposal)
            decision = transition(view, proposal.event, self._ctx)
            rows.apply(proposal, decision)
            decided.append((view, decision))
        made = [
            proposal
            for proposal, (_, decision) in zip(proposals, decided, strict=True)
            if not decision.refused and proposal.cost
        ]
        charges = _charges(made, trial_within)
        mints = sorted(
            (each.event.installation_id, each.event.job_id)
            for each in made
            if isinstance(each.event, Offer)
        )
        budget = self._budget
        points = [] if budget is None else budget.mint_statements([key for key, _ in mints])
        written = await self._writer.write(tx, decided, beside=(*charges, *points), last=True)
        answers = written.beside[len(charges) :]
        return Claimed(
            decisions=written.decisions,
            era=str(locked[0]["era"]) if locked else "",
            paid=frozenset(
                job
                for (_, job), rows in zip(mints, answers, strict=False)
                if budget is not None and budget.is_taken(rows)
            ),
        )


def _charges(made: Sequence[Proposal], trial_within: float) -> list[Statement]:
    """The statements that charge claims to their tenants and repositories, and mark the trials among them."""
    if not made:
        return []
    accounts: dict[tuple[str, str, str], _Charge] = {}
    for each in made:
        for repository, floor in (("", each.floor), (each.repository, each.own_floor)):
            key = (each.tenant, repository, each.platform)
            fresh = _Charge(
                tenant=each.tenant, repository=repository, platform=each.platform, floor=floor
            )
            accounts.setdefault(key, fresh).add(each.cost)
    charges = msgspec.json.encode(list(accounts.values())).decode()
    statements: list[Statement] = [(SQL.charges, {"charges": charges})]
    for each in made:
        if each.trial:
            kind, _, name = each.trial.partition(":")
            tried = {"kind": kind, "name": name, "within": trial_within}
            statements.append((SQL.exclusion_try, tried))
    return statements


def _budget_key(proposal: Proposal) -> tuple[str, str]:
    event = proposal.event
    return proposal.tenant, event.platform if isinstance(event, Offer) else ""
