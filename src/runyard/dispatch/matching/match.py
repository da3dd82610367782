"""Which waiting runner gets which job: a number per tenant, and one per repository.

Each tenant has a virtual time on each platform that grows by cost/weight with every runner it is given there; the
tenant that is furthest behind is served first. Within a tenant the jobs of the highest priority go first, and
among those the repositories take turns in the same way (`turns`). A repository's jobs go by age; one that fits nowhere
steps aside for the next, so nothing at the head of a queue can block it.

Runners that are armed and lost their job are supply first: GitHub will give them any job with their
labels anyway.

Pure: a snapshot in, proposals out, and for each kind of job that got none what holds it.
"""

from heapq import heapify, heappop, heappush

import msgspec

from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.matching.select import held_by, nobody_waits
from runyard.dispatch.matching.supply import Supply
from runyard.dispatch.matching.turns import Line, Turn
from runyard.dispatch.matching.values import (
    Candidate,
    Held,
    Hold,
    Kind,
    Matching,
    Proposal,
    Snapshot,
    TenantQueue,
)
from runyard.wire.names import runner_name


class _Found(msgspec.Struct, kw_only=True):
    """What was decided so far."""

    proposals: list[Proposal] = []
    held: dict[Kind, Held] = {}
    tried: dict[str, None] = {}  # exclusions that one job tries


def match(snapshot: Snapshot, *, thorough: bool = False, guards: Guards = SHIPPED) -> Matching:
    """Propose who gets what, fairest first, and say what holds the rest.

    Once nobody waits any more the rest is not looked at, unless somebody wants to know of everything (`thorough`).
    """
    supply, found = Supply(snapshot), _Found()
    lanes = _lanes(snapshot, supply)
    for turns in lanes:
        _serve(turns, supply, found, thorough=thorough, guards=guards)
    return Matching(proposals=tuple(found.proposals), held=tuple(found.held.values()))


def _lanes(snapshot: Snapshot, supply: Supply) -> list[list[Turn]]:
    """The tenants, once for each platform that they have jobs for."""
    lanes: dict[str, list[Turn]] = {pool.platform: [] for pool in snapshot.pools}
    for queue in snapshot.tenants:
        budgets = {each.platform: each for each in queue.budgets}
        wanted: dict[str, dict[str, list[Candidate]]] = {}
        for repository in queue.repositories:
            for job in repository.jobs:
                fitting = supply.fitting(job.labels)
                own = wanted.setdefault(fitting[0].platform if fitting else "", {})
                own.setdefault(repository.repository, []).append(job)
        for platform, jobs in wanted.items():
            floor = snapshot.floors.get(platform, 0.0)
            turn = Turn(queue, platform, jobs, floor=floor, budgets=budgets)
            lanes.setdefault(platform, []).append(turn)
    return list(lanes.values())


def _serve(
    turns: list[Turn], supply: Supply, found: _Found, *, thorough: bool, guards: Guards
) -> None:
    """Serve one platform."""
    heap = [(_place(turn, guards), at) for at, turn in enumerate(turns)]
    heapify(heap)
    while heap and (supply.left or thorough):
        _, at = heappop(heap)
        turn = turns[at]
        line, job = turn.next()
        kind = Kind(tenant=turn.queue.tenant, repository=line.queue.repository, labels=job.labels)
        trial = line.queue.trial
        if trial in found.tried:
            other = held_by(kind, Hold.EXCLUDED, "another job tries first")
            found.held.setdefault(kind, other)
        elif kind not in found.held:
            proposal = _adopt(turn, line, job, supply) or _offer(turn, line, job, supply)
            if proposal is None:
                found.held[kind] = _why_not(turn, kind, supply)
            else:
                found.proposals.append(proposal)
                if proposal.trial:
                    found.tried[proposal.trial] = None
        if kind in found.held and not guards.step_aside:
            continue
        turn.back(line)
        if turn.waits:
            heappush(heap, (_place(turn, guards), at))


def _place(turn: Turn, guards: Guards) -> tuple[float, float, str]:
    return turn.place if guards.fair_turns else (0.0, 0.0, turn.queue.tenant)


def scope_of(queue: TenantQueue, repository: str) -> str:
    """Where a runner for this job is registered: at the organisation, or at the repository."""
    return f"orgs/{queue.tenant}" if queue.at_org else f"repos/{repository}"


def _adopt(turn: Turn, line: Line, job: Candidate, supply: Supply) -> Proposal | None:
    scope = scope_of(turn.queue, line.queue.repository)
    for pool in supply.fitting(job.labels):
        vacancy = supply.take_vacancy(pool, turn.queue.tenant, scope)
        if vacancy is not None:
            return Proposal(
                pod_uid=vacancy.pod_uid,
                event=Adopt(generation=vacancy.generation, job_id=job.job_id),
                tenant=turn.queue.tenant,
                repository=line.queue.repository,
                pool=pool.name,
                cost=0.0,
                reason="a runner that lost its job is supply first",
            )
    return None


def _offer(turn: Turn, line: Line, job: Candidate, supply: Supply) -> Proposal | None:
    slot = supply.take_waiting(pool for pool in supply.fitting(job.labels) if turn.affords(pool))
    if slot is None:
        return None
    pool, began = supply.pools[slot.pool], turn.vtime
    turn.spend(pool, line)
    event = Offer(
        generation=slot.generation,
        job_id=job.job_id,
        tenant=turn.queue.tenant,
        scope=scope_of(turn.queue, line.queue.repository),
        installation_id=turn.queue.installation_id,
        vcpus=pool.vcpus,
        memory_gb=pool.memory_gb,
        platform=pool.platform,
        runner_name=runner_name(slot.pod_name),
    )
    return Proposal(
        pod_uid=slot.pod_uid,
        event=event,
        tenant=turn.queue.tenant,
        repository=line.queue.repository,
        pool=pool.name,
        cost=float(pool.vcpus),
        reason=f"{turn.queue.tenant} is next at virtual time {began:g}",
        platform=pool.platform,
        floor=turn.floor,
        own_floor=turn.own_floor,
        trial=line.queue.trial,
    )


def _why_not(turn: Turn, kind: Kind, supply: Supply) -> Held:
    """The budget, if it has none left for any pool that fits; otherwise nobody is free there."""
    fitting = supply.fitting(kind.labels)
    if not fitting or any(turn.affords(pool) for pool in fitting):
        return nobody_waits(kind, fitting)
    pool = fitting[0]
    names = tuple(each.name for each in fitting)
    budget = turn.budgets.get(pool.platform)
    if budget is None:
        text = f"{kind.tenant} has no budget on {pool.platform}"
        return held_by(kind, Hold.TENANT_CAP, text, pools=names)
    left, limit = budget.room, budget.limit
    short = "vCPUs" if pool.vcpus > left.vcpus else "GB"
    has, of, needs = (
        (left.vcpus, limit.vcpus, pool.vcpus)
        if short == "vCPUs"
        else (left.memory_gb, limit.memory_gb, pool.memory_gb)
    )
    text = (
        f"{kind.tenant} has {max(0, has)} of {of} {short} left on {pool.platform}, {needs} needed"
    )
    numbers = (("left", float(has)), ("limit", float(of)), ("needed", float(needs)))
    return held_by(kind, Hold.TENANT_CAP, text, numbers=numbers, pools=names)
