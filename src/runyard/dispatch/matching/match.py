"""Which waiting runner gets which job: one number per tenant.

Each tenant has a virtual time that grows by cost/weight with every runner it is given; the tenant
that is furthest behind is served first. A tenant that comes back from idleness, or is new, starts
where the last one that was served began: it neither starves nor gets a credit for having slept.
Within a tenant the oldest job goes first; a job that fits nowhere steps aside for the next one, so
nothing at the head of a queue can block it.

Runners that are armed and lost their job are supply first: GitHub will give them any job with their
labels anyway.

Pure: a snapshot in, proposals out. Each proposal carries the generation of the slot that it was
made for; the store checks budget and rows again under their locks.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec

from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.machine.values import Room
from runyard.wire.names import runner_name


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's runners offer."""

    name: str
    platform: str
    labels: tuple[str, ...]  # lower case: the runner's labels and the dispatch label
    dispatch_label: str  # lower case
    mint_labels: tuple[str, ...]  # as GitHub is told them
    vcpus: int
    memory_gb: int
    image: str = ""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An idle slot whose Pod waits for an answer."""

    pod_uid: str
    pod_name: str
    pool: str
    generation: int


class Vacancy(msgspec.Struct, frozen=True, kw_only=True):
    """An armed runner whose job is gone."""

    pod_uid: str
    pool: str
    generation: int
    tenant: str
    scope: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A job that may be offered."""

    job_id: int
    repository: str
    labels: tuple[str, ...]


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant and its oldest offerable jobs."""

    tenant: str
    installation_id: int
    kind: str
    weight: float
    vtime: float
    jobs: tuple[Candidate, ...]
    rooms: tuple[tuple[str, Room], ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the matcher looks at."""

    pools: tuple[PoolView, ...]
    waiting: tuple[Waiting, ...]
    vacancies: tuple[Vacancy, ...]
    tenants: tuple[TenantQueue, ...]
    floor: float = 0.0  # where in virtual time the last served tenant began


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Do this, because of that. `cost` is what the tenant's virtual time is charged, before its weight."""

    pod_uid: str
    event: Offer | Adopt
    tenant: str
    cost: float
    reason: str


class _Turn:
    """A tenant while it is being served."""

    def __init__(self, queue: TenantQueue, floor: float) -> None:
        self.queue = queue
        self.vtime = max(queue.vtime, floor)
        self.jobs = deque(queue.jobs)
        self.rooms = dict(queue.rooms)

    @property
    def place(self) -> tuple[float, str]:
        """Who is furthest behind; among equals, by name."""
        return self.vtime, self.queue.tenant

    def spend(self, pool: PoolView) -> None:
        left = self.rooms[pool.platform]
        self.rooms[pool.platform] = Room(
            vcpus=left.vcpus - pool.vcpus, memory_gb=left.memory_gb - pool.memory_gb
        )
        self.vtime += pool.vcpus / self.queue.weight


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


def match(snapshot: Snapshot) -> tuple[Proposal, ...]:
    """Propose who gets what, fairest first."""
    supply = _Supply(snapshot)
    turns = [_Turn(queue, snapshot.floor) for queue in snapshot.tenants if queue.jobs]
    heap = [(turn.place, at) for at, turn in enumerate(turns)]
    heapify(heap)
    proposals: list[Proposal] = []
    while heap and supply.left:
        _, at = heappop(heap)
        turn = turns[at]
        job = turn.jobs.popleft()
        proposal = _adopt(turn, job, supply) or _offer(turn, job, supply)
        if proposal is not None:
            proposals.append(proposal)
        if turn.jobs:
            heappush(heap, (turn.place, at))
    return tuple(proposals)


def scope_of(queue: TenantQueue, repository: str) -> str:
    """Where a runner for this job is registered: at the organisation, or at a person's repository."""
    return f"orgs/{queue.tenant}" if queue.kind == "Organization" else f"repos/{repository}"


def fits(pool: PoolView, labels: tuple[str, ...]) -> bool:
    """Would GitHub give a job with these labels to a runner of this pool, and is it meant to?"""
    wanted = tuple(label.lower() for label in labels)
    return pool.dispatch_label in wanted and all(label in pool.labels for label in wanted)


def _adopt(turn: _Turn, job: Candidate, supply: _Supply) -> Proposal | None:
    scope = scope_of(turn.queue, job.repository)
    for pool in supply.fitting(job.labels):
        vacancy = supply.take_vacancy(pool, turn.queue.tenant, scope)
        if vacancy is not None:
            return Proposal(
                pod_uid=vacancy.pod_uid,
                event=Adopt(generation=vacancy.generation, job_id=job.job_id),
                tenant=turn.queue.tenant,
                cost=0.0,
                reason="a runner that lost its job is supply first",
            )
    return None


def _offer(turn: _Turn, job: Candidate, supply: _Supply) -> Proposal | None:
    affordable = [pool for pool in supply.fitting(job.labels) if _affords(turn, pool)]
    slot = supply.take_waiting(affordable)
    if slot is None:
        return None
    pool, began = supply.pools[slot.pool], turn.vtime
    turn.spend(pool)
    event = Offer(
        generation=slot.generation,
        job_id=job.job_id,
        tenant=turn.queue.tenant,
        scope=scope_of(turn.queue, job.repository),
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
        cost=float(pool.vcpus),
        reason=f"{turn.queue.tenant} is next at virtual time {began:g}",
    )


def _affords(turn: _Turn, pool: PoolView) -> bool:
    room = turn.rooms.get(pool.platform)
    return room is not None and room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb)
