"""Which waiting runner gets which job: a number per tenant, and one per repository.

Each tenant has a virtual time that grows by cost/weight with every runner it is given; the tenant
that is furthest behind is served first. Within a tenant the jobs of the highest priority go first, and
among those the repositories take turns in the same way. Whoever comes back from idleness, or is new, starts
where the last one that was served began: it neither starves nor gets a credit for having slept.
A repository's jobs go by age; one that fits nowhere steps aside for the next, so nothing at the head of a
queue can block it.

Runners that are armed and lost their job are supply first: GitHub will give them any job with their
labels anyway.

Pure: a snapshot in, proposals out, and for each kind of job that got none what holds it.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.select import held_by, nobody_waits
from runyard.dispatch.matching.values import (
    Budget,
    Candidate,
    Held,
    Hold,
    Kind,
    Matching,
    PoolView,
    Proposal,
    RepositoryQueue,
    Snapshot,
    TenantQueue,
    Vacancy,
    Waiting,
    fits,
)
from runyard.wire.names import runner_name


class _Line:
    """A repository while its tenant is being served."""

    def __init__(self, queue: RepositoryQueue, floor: float) -> None:
        self.queue = queue
        self.vtime = max(queue.vtime, floor)
        self.jobs = deque(queue.jobs)

    @property
    def place(self) -> tuple[int, float, str]:
        """The highest priority first, then who is furthest behind; among equals, by name."""
        return -self.jobs[0].priority, self.vtime, self.queue.repository


class _Turn:
    """A tenant while it is being served."""

    def __init__(self, queue: TenantQueue, floor: float) -> None:
        self.queue = queue
        self.vtime = max(queue.vtime, floor)
        self.budgets = {each.platform: each for each in queue.budgets}
        self._lines = [_Line(each, queue.floor) for each in queue.repositories if each.jobs]
        self._heap = [(line.place, at) for at, line in enumerate(self._lines)]
        heapify(self._heap)

    @property
    def waits(self) -> bool:
        """Has it a job that was not looked at yet?"""
        return bool(self._heap)

    def next(self) -> tuple[_Line, Candidate]:
        """Take its next job."""
        _, at = heappop(self._heap)
        line = self._lines[at]
        return line, line.jobs.popleft()

    def back(self, line: _Line) -> None:
        """The repository gets in line again, if it has more."""
        if line.jobs:
            heappush(self._heap, (line.place, self._lines.index(line)))

    def affords(self, pool: PoolView) -> bool:
        """Has the tenant room for a runner of this pool?"""
        budget = self.budgets.get(pool.platform)
        return budget is not None and budget.room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb)

    def spend(self, pool: PoolView, line: _Line) -> None:
        """One runner of this pool, for this repository."""
        held = self.budgets[pool.platform]
        left = Room(
            vcpus=held.room.vcpus - pool.vcpus, memory_gb=held.room.memory_gb - pool.memory_gb
        )
        self.budgets[pool.platform] = Budget(platform=pool.platform, room=left, limit=held.limit)
        self.vtime += pool.vcpus / self.queue.weight
        line.vtime += pool.vcpus / line.queue.weight


class _Supply:
    """Who waits, by pool, and which pools a set of labels fits; so that a job looks at pools, not at Pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = {pool.name: pool for pool in snapshot.pools}
        self._waiting: dict[str, deque[tuple[int, Waiting]]] = {}
        self._vacant: dict[tuple[str, str, str], deque[Vacancy]] = {}
        self._fitting: dict[tuple[str, ...], tuple[PoolView, ...]] = {}
        self.left = 0
        for place, slot in enumerate(snapshot.waiting):
            if slot.pool in self.pools:
                self._waiting.setdefault(slot.pool, deque()).append((place, slot))
                self.left += 1
        for vacancy in snapshot.vacancies:
            if vacancy.pool in self.pools:
                key = (vacancy.pool, vacancy.tenant, vacancy.scope)
                self._vacant.setdefault(key, deque()).append(vacancy)
                self.left += 1

    def fitting(self, labels: tuple[str, ...]) -> tuple[PoolView, ...]:
        """The pools that may serve these labels."""
        found = self._fitting.get(labels)
        if found is None:
            found = tuple(pool for pool in self.pools.values() if fits(pool, labels))
            self._fitting[labels] = found
        return found

    def take_vacancy(self, pool: PoolView, tenant: str, scope: str) -> Vacancy | None:
        """An armed runner of that tenant that lost its job."""
        vacant = self._vacant.get((pool.name, tenant, scope))
        if not vacant:
            return None
        self.left -= 1
        return vacant.popleft()

    def take_waiting(self, pools: Iterable[PoolView]) -> Waiting | None:
        """The Pod of these pools that is known longest."""
        queues = [queue for pool in pools if (queue := self._waiting.get(pool.name))]
        if not queues:
            return None
        self.left -= 1
        return min(queues, key=lambda queue: queue[0][0]).popleft()[1]


def match(snapshot: Snapshot, *, thorough: bool = False, guards: Guards = SHIPPED) -> Matching:
    """Propose who gets what, fairest first, and say what holds the rest.

    Once nobody waits any more the rest is not looked at, unless somebody wants to know of everything (`thorough`).
    """
    supply = _Supply(snapshot)
    turns = [_Turn(queue, snapshot.floor) for queue in snapshot.tenants]
    heap = [(_place(turn, guards), at) for at, turn in enumerate(turns) if turn.waits]
    heapify(heap)
    proposals: list[Proposal] = []
    held: dict[Kind, Held] = {}
    tried: dict[str, None] = {}
    while heap and (supply.left or thorough):
        _, at = heappop(heap)
        turn = turns[at]
        line, job = turn.next()
        kind = Kind(tenant=turn.queue.tenant, repository=line.queue.repository, labels=job.labels)
        trial = line.queue.trial
        if trial in tried:
            held.setdefault(kind, held_by(kind, Hold.EXCLUDED, "another job tries first"))
        elif kind not in held:
            proposal = _adopt(turn, line, job, supply) or _offer(turn, line, job, supply)
            if proposal is not None:
                proposals.append(proposal)
                if trial:
                    tried[trial] = None
            else:
                held[kind] = _why_not(turn, kind, supply)
        if kind in held and not guards.step_aside:
            continue
        turn.back(line)
        if turn.waits:
            heappush(heap, (_place(turn, guards), at))
    return Matching(proposals=tuple(proposals), held=tuple(held.values()))


def _place(turn: _Turn, guards: Guards) -> tuple[float, str]:
    """Who is furthest behind; among equals, by name."""
    return turn.vtime if guards.fair_turns else 0.0, turn.queue.tenant


def scope_of(queue: TenantQueue, repository: str) -> str:
    """Where a runner for this job is registered: at the organisation, or at the repository."""
    return f"orgs/{queue.tenant}" if queue.at_org else f"repos/{repository}"


def _adopt(turn: _Turn, line: _Line, job: Candidate, supply: _Supply) -> Proposal | None:
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


def _offer(turn: _Turn, line: _Line, job: Candidate, supply: _Supply) -> Proposal | None:
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
        floor=turn.queue.floor,
        trial=line.queue.trial,
    )


def _why_not(turn: _Turn, kind: Kind, supply: _Supply) -> Held:
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
