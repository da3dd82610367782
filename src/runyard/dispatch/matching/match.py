"""Which waiting runner gets which job: one number per tenant.

Each tenant has a virtual time that grows by cost/weight with every runner it is given; the tenant
that is furthest behind is served first. A tenant that comes back from idleness starts where the
busy ones are: it neither starves nor gets a credit for having slept. Within a tenant the oldest job
goes first; a job that fits nowhere steps aside for the next one, so nothing at the head of a queue
can block it.

Runners that are armed and lost their job are supply first: GitHub will give them any job with their
labels anyway.

Pure: a snapshot in, proposals out. Each proposal carries the generation of the slot that it was
made for; the store checks budget and rows again under their locks.
"""

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
    floor: float = 0.0  # where the busy tenants are in virtual time


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Do this, because of that. `vtime` is the tenant's virtual time afterwards."""

    pod_uid: str
    event: Offer | Adopt
    tenant: str
    vtime: float
    reason: str


class _Turn:
    """A tenant while it is being served."""

    def __init__(self, queue: TenantQueue, floor: float) -> None:
        self.queue = queue
        self.vtime = max(queue.vtime, floor)
        self.jobs = list(queue.jobs)
        self.rooms = dict(queue.rooms)

    def spend(self, pool: PoolView) -> None:
        left = self.rooms[pool.platform]
        self.rooms[pool.platform] = Room(
            vcpus=left.vcpus - pool.vcpus, memory_gb=left.memory_gb - pool.memory_gb
        )
        self.vtime += pool.vcpus / self.queue.weight


def match(snapshot: Snapshot) -> tuple[Proposal, ...]:
    """Propose who gets what, fairest first."""
    pools = {pool.name: pool for pool in snapshot.pools}
    waiting = [slot for slot in snapshot.waiting if slot.pool in pools]
    vacancies = [vacancy for vacancy in snapshot.vacancies if vacancy.pool in pools]
    turns = [_Turn(queue, snapshot.floor) for queue in snapshot.tenants if queue.jobs]
    proposals: list[Proposal] = []
    while turns and (waiting or vacancies):
        turn = min(turns, key=lambda each: (each.vtime, each.queue.tenant))
        job = turn.jobs.pop(0)
        if not turn.jobs:
            turns.remove(turn)
        proposal = _adopt(turn, job, vacancies, pools) or _offer(turn, job, waiting, pools)
        if proposal is not None:
            proposals.append(proposal)
    return tuple(proposals)


def scope_of(queue: TenantQueue, repository: str) -> str:
    """Where a runner for this job is registered: at the organisation, or at a person's repository."""
    return f"orgs/{queue.tenant}" if queue.kind == "Organization" else f"repos/{repository}"


def fits(pool: PoolView, labels: tuple[str, ...]) -> bool:
    """Would GitHub give a job with these labels to a runner of this pool, and is it meant to?"""
    wanted = tuple(label.lower() for label in labels)
    return pool.dispatch_label in wanted and all(label in pool.labels for label in wanted)


def _adopt(
    turn: _Turn, job: Candidate, vacancies: list[Vacancy], pools: dict[str, PoolView]
) -> Proposal | None:
    scope = scope_of(turn.queue, job.repository)
    for at, vacancy in enumerate(vacancies):
        if (
            vacancy.tenant == turn.queue.tenant
            and vacancy.scope == scope
            and fits(pools[vacancy.pool], job.labels)
        ):
            del vacancies[at]
            return Proposal(
                pod_uid=vacancy.pod_uid,
                event=Adopt(generation=vacancy.generation, job_id=job.job_id),
                tenant=turn.queue.tenant,
                vtime=turn.vtime,
                reason="a runner that lost its job is supply first",
            )
    return None


def _offer(
    turn: _Turn, job: Candidate, waiting: list[Waiting], pools: dict[str, PoolView]
) -> Proposal | None:
    for at, slot in enumerate(waiting):
        pool = pools[slot.pool]
        room = turn.rooms.get(pool.platform)
        if not fits(pool, job.labels) or room is None:
            continue
        if not room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb):
            continue
        del waiting[at]
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
            vtime=turn.vtime,
            reason=f"{turn.queue.tenant} is next at virtual time {turn.vtime:g}",
        )
    return None
