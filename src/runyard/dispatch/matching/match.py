"""Matches waiting runners to jobs, by a virtual time per tenant and one per repository.

Each tenant has a virtual time on each platform that grows by cost/weight with every runner it is given there; the
tenant that is furthest behind is served first. Within a tenant the jobs of the highest priority go first, and among
those the repositories alternate in the same way (`fair_queue`). A repository's jobs are ordered by age; a job that fits
no pool is skipped, so it cannot block its queue.

Armed runners that lost their job are used first: GitHub assigns them any job with their labels anyway.

Pure: takes a snapshot, returns proposals, and for each kind of job without one what holds it.
"""

from heapq import heapify, heappop, heappush
from operator import attrgetter

import msgspec

from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.matching.fair_queue import RepositoryTurn, TenantTurn
from runyard.dispatch.matching.select import held_by, no_runner_idle
from runyard.dispatch.matching.supply import Supply
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
from runyard.wire.reasons_dispatch import Holding, Proposed


class _Found(msgspec.Struct, kw_only=True):
    """The decisions so far."""

    proposals: list[Proposal] = []
    held: dict[Kind, Held] = {}
    tried: dict[str, None] = {}  # exclusions that a proposed job tests


def match(snapshot: Snapshot, *, thorough: bool = False, guards: Guards = SHIPPED) -> Matching:
    """Propose which runner gets which job, in fair order, and return what holds the other jobs.

    When no waiting runner is left, the remaining jobs are examined only if `thorough` is set.
    """
    supply, found = Supply(snapshot), _Found()
    lanes = _lanes(snapshot, supply)
    for turns in lanes:
        _serve(turns, supply, found, thorough=thorough, guards=guards)
    return Matching(proposals=tuple(found.proposals), held=tuple(found.held.values()))


def _lanes(snapshot: Snapshot, supply: Supply) -> list[list[TenantTurn]]:
    """Group tenants by platform; a tenant is in each group that it has jobs for."""
    lanes: dict[str, list[TenantTurn]] = {pool.platform: [] for pool in snapshot.pools}
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
            turn = TenantTurn(queue, platform, jobs, floor=floor, budgets=budgets)
            lanes.setdefault(platform, []).append(turn)
    return list(lanes.values())


def _serve(
    turns: list[TenantTurn], supply: Supply, found: _Found, *, thorough: bool, guards: Guards
) -> None:
    """Propose runners for the tenants of one platform."""
    order = attrgetter(guards.turn_order)
    heap = [(order(turn), at) for at, turn in enumerate(turns)]
    heapify(heap)
    while heap and (supply.left or thorough):
        _, at = heappop(heap)
        turn = turns[at]
        repository_turn, job = turn.next()
        kind = Kind(
            tenant=turn.queue.tenant, repository=repository_turn.queue.repository, labels=job.labels
        )
        trial = repository_turn.queue.trial
        if trial in found.tried:
            other = held_by(kind, Hold.EXCLUDED, Holding.TRIAL_RUNNING.because())
            found.held.setdefault(kind, other)
        elif kind not in found.held:
            proposal = _adopt(turn, repository_turn, job, supply) or _offer(
                turn, repository_turn, job, supply
            )
            if proposal is None:
                found.held[kind] = _hold_for(turn, kind, supply)
            else:
                found.proposals.append(proposal)
                if proposal.trial:
                    found.tried[proposal.trial] = None
        if kind not in found.held or guards.step_aside:
            turn.put_back(repository_turn)
            if turn.has_jobs:
                heappush(heap, (order(turn), at))


def scope_of(queue: TenantQueue, repository: str) -> str:
    """Return where a runner for this job is registered: at the organisation, or at the repository."""
    return f"orgs/{queue.tenant}" if queue.at_org else f"repos/{repository}"


def _adopt(
    turn: TenantTurn, repository_turn: RepositoryTurn, job: Candidate, supply: Supply
) -> Proposal | None:
    scope = scope_of(turn.queue, repository_turn.queue.repository)
    for pool in supply.fitting(job.labels):
        vacancy = supply.take_vacancy(pool, turn.queue.tenant, scope)
        if vacancy is not None:
            return Proposal(
                pod_uid=vacancy.pod_uid,
                event=Adopt(generation=vacancy.generation, job_id=job.job_id),
                tenant=turn.queue.tenant,
                repository=repository_turn.queue.repository,
                pool=pool.name,
                cost=0.0,
                reason=Proposed.VACANT_FIRST.because(),
            )
    return None


def _offer(
    turn: TenantTurn, repository_turn: RepositoryTurn, job: Candidate, supply: Supply
) -> Proposal | None:
    slot = supply.take_waiting(pool for pool in supply.fitting(job.labels) if turn.affords(pool))
    if slot is None:
        return None
    pool, began = supply.pools[slot.pool], turn.vtime
    turn.spend(pool, repository_turn)
    event = Offer(
        generation=slot.generation,
        job_id=job.job_id,
        tenant=turn.queue.tenant,
        scope=scope_of(turn.queue, repository_turn.queue.repository),
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
        repository=repository_turn.queue.repository,
        pool=pool.name,
        cost=float(pool.vcpus),
        reason=Proposed.NEXT_IN_TURN.because(tenant=turn.queue.tenant, vtime=began),
        platform=pool.platform,
        floor=turn.floor,
        own_floor=turn.own_floor,
        trial=repository_turn.queue.trial,
    )


def _hold_for(turn: TenantTurn, kind: Kind, supply: Supply) -> Held:
    """Return what holds a kind of jobs: the budget, if it allows no fitting pool; otherwise that no runner is idle."""
    fitting = supply.fitting(kind.labels)
    if not fitting or any(turn.affords(pool) for pool in fitting):
        return no_runner_idle(kind, fitting)
    pool = fitting[0]
    names = tuple(each.name for each in fitting)
    budget = turn.budgets.get(pool.platform)
    if budget is None:
        none = Holding.NO_BUDGET.because(tenant=kind.tenant, platform=pool.platform)
        return held_by(kind, Hold.TENANT_CAP, none, pools=names)
    left, limit = budget.headroom, budget.limit
    if pool.vcpus > left.vcpus:
        short, has, of, needs = Holding.CPU_BUDGET, left.vcpus, limit.vcpus, pool.vcpus
    else:
        short = Holding.MEMORY_BUDGET
        has, of, needs = left.memory_gb, limit.memory_gb, pool.memory_gb
    reason = short.because(
        tenant=kind.tenant, platform=pool.platform, left=max(0, has), limit=of, needed=needs
    )
    return held_by(kind, Hold.TENANT_CAP, reason, pools=names)
