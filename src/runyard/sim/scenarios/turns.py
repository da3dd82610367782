"""Incidents about who is next: a head that blocks its queue, an account that captures the fleet, a flood."""

from collections import Counter
from functools import partial

import msgspec

from runyard.http.messages import Request, Response
from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    over,
    queue,
    statuses,
    trouble,
    until,
    warm,
)
from runyard.sim.scenarios.claims import room_for_one, two_tenants
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import PoolShape, Shape, TenantShape
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.wire.bodies import ScalingSignals
from runyard.wire.paths import DESIRED_REPLICAS

MINUTE = 60.0
SMALL = PoolShape(name="small", label="fleet-small", share=0.66, cpu_milli=2000, memory_mb=3584)
LARGE = PoolShape(name="large", label="fleet-large", share=0.34)
TIGHT = TenantShape(name="acme", repositories=("app",), vcpus=6, memory_gb=100, share=1.0)
BIRCH = TenantShape(name="birch", repositories=("shop",), vcpus=400, memory_gb=800, share=1.0)
CEDAR = TenantShape(name="cedar", repositories=("site",), vcpus=400, memory_gb=800, share=1.0)
JOB = 60.0
FAIR = 0.95
VAIN = "clear the stamp, then fail"
MINTS = "/actions/runners/generate-jitconfig"


def two_sizes(seed: int) -> tuple[Shape, ...]:
    """Three hosts, two sizes of runners, a tenant with room for three small ones; one server sees them all."""
    pools = (SMALL, LARGE)
    return (Shape(seed=seed, hosts=3, pools=pools, tenants=(TIGHT,), machine=QUICK, replicas=1),)


def three_tenants(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners, three tenants that may each have all of them."""
    tenants = (RICH, BIRCH, CEDAR)
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=tenants, machine=QUICK),)


async def head_of_the_queue_blocks_nobody(fleet: Fleet) -> None:
    """The oldest job wants more than its tenant has left; those behind it do not.

    Every poll once chose the oldest job, could not serve it, and said that there was no work.
    """
    await warm(fleet)
    long = queue(fleet, 2, duration=10 * MINUTE)
    await until(fleet, "two run", lambda: statuses(fleet, long, "in_progress") == 2, within=MINUTE)
    head = queue(fleet, 1, duration=30.0, pool=1)
    await fleet.clock.sleep(10.0)
    behind = queue(fleet, 1, duration=30.0)
    started = partial(_started, fleet, behind)
    await until(fleet, "the one behind starts", started, within=5.0, step=0.5)
    expect("the head still waits", statuses(fleet, head, "queued") == 1)
    await until(fleet, "the head runs", lambda: over(fleet, head), within=15 * MINUTE)
    await at_rest(fleet)


async def account_that_cannot_mint(fleet: Fleet) -> None:
    """GitHub refuses every runner for one account, which has twenty jobs queued; another goes on working.

    Each refused mint gave its runner back and took the next job of the same account: nobody else was served.
    """
    await warm(fleet)
    with trouble(fleet, "no-runners-for-birch"):
        for where in ("/orgs/birch", "/repos/birch/shop"):
            fleet.github.faults.fail_next(f"{where}{MINTS}", 403, 100_000, method="POST")
        refused = queue(fleet, 20, tenant="birch", duration=30.0)
        longest = 0.0
        for _ in range(3):
            jobs = queue(fleet, 1, duration=30.0)
            ended = partial(over, fleet, jobs)
            took = await until(fleet, "acme's job runs", ended, within=MINUTE)
            longest = max(longest, took)
            await fleet.clock.sleep(MINUTE - took)
        wasted = counted(fleet, RUNYARD_ACTIONS_TOTAL, room="dispatch", action="mint", outcome=VAIN)
        expect(f"runners are not asked for in vain again and again: {wasted:.0f}", wasted <= 10)
        fleet.tell(f"{wasted:.0f} mints in vain, acme waited {longest:.0f} s at most")
        fleet.github.faults.mend()
    with trouble(fleet, "birch-is-passed-over"):
        tried = partial(_fewer_queued, fleet, refused)
        took = await until(fleet, "birch is tried again", tried, within=10 * MINUTE)
        fleet.tell(f"birch was tried again {took:.0f} s after the repair")
    await until(fleet, "birch's jobs run", lambda: over(fleet, refused), within=30 * MINUTE)
    await at_rest(fleet)


async def capped_tenant_asks_for_no_hosts(fleet: Fleet) -> None:
    """A tenant with room for one runner queues thirty jobs: no pool may grow for what cannot run.

    A pool that was sized by the whole queue held hosts idle that others needed.
    """
    await warm(fleet)
    jobs = queue(fleet, 30)
    await until(fleet, "one runs", lambda: statuses(fleet, jobs, "queued") == 29, within=MINUTE)
    await fleet.clock.sleep(5.0)
    told = await _signals(fleet)
    expect(f"what cannot run is no demand: {told}", (told.queued, told.withheld) == (0, 29))
    expect(f"what runs is counted: {told}", told.claimed == told.occupied == 1)
    for job in jobs:
        if fleet.github.jobs()[job].status == "queued":
            fleet.github.cancel_job(job)
    await at_rest(fleet)


async def flood_of_one_tenant(fleet: Fleet, *, jobs: int) -> None:
    """One tenant queues more than the fleet can do in hours; others come later, and get their share at once."""
    await warm(fleet)
    chance = fleet.chance("lengths")
    for _ in range(jobs):
        queue(fleet, 1, duration=chance.uniform(0.5 * JOB, JOB))
    await fleet.clock.sleep(3 * MINUTE)
    first = queue(fleet, 1, tenant="birch", duration=JOB)
    took = await until(
        fleet,
        "birch's first job starts within one job's length",
        partial(_started, fleet, first),
        within=JOB,
        step=0.5,
    )
    fleet.tell(f"birch's first job started after {took:.1f} s")
    for _ in range(40):
        queue(fleet, 1, tenant="birch", duration=chance.uniform(0.5 * JOB, JOB))
        queue(fleet, 1, tenant="cedar", duration=chance.uniform(0.5 * JOB, JOB))
    await fleet.clock.sleep(2 * MINUTE)
    before = _served(fleet)
    await fleet.clock.sleep(6 * MINUTE)
    served = [_served(fleet)[name] - before[name] for name in ("acme", "birch", "cedar")]
    index = jain(served)
    fleet.tell(f"served {served}, Jain index {index:.3f}")
    expect(f"everybody gets a fair share: {served}, Jain index {index:.3f}", index >= FAIR)
    left = [statuses(fleet, _jobs_of(fleet, name), "queued") for name in ("acme", "birch", "cedar")]
    expect(f"everybody still had jobs to do: {left}", all(left))
    for job in list(fleet.github.jobs()):
        fleet.github.cancel_job(job)
    await at_rest(fleet)


async def _signals(fleet: Fleet) -> ScalingSignals:
    """What an autoscaler hears of the first pool."""
    asked = (("fleet", fleet.shape.pools[0].name),)
    request = Request(method="GET", path=DESIRED_REPLICAS, query=asked)
    answer = await fleet.ask_as_operator(request)
    expect(f"it is answered: {answer.status}", answer.status == 200)
    assert isinstance(answer, Response)
    return msgspec.json.decode(answer.body, type=ScalingSignals)


def _fewer_queued(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") < len(jobs)


def _started(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") == 0


def jain(shares: list[int]) -> float:
    """1 if all shares are equal, 1/n if one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def _served(fleet: Fleet) -> Counter[str]:
    """The virtual processors of all runners that a tenant has been given so far."""
    size = fleet.shape.pools[0].cpu_milli // 1000
    served: Counter[str] = Counter()
    for job in fleet.github.jobs().values():
        served[job.repo.owner] += size * job.executions
    return served


def _jobs_of(fleet: Fleet, tenant: str) -> list[int]:
    return [job.id for job in fleet.github.jobs().values() if job.repo.owner == tenant]


SCENARIOS = (
    Scenario(
        name="head-of-the-queue-blocks-nobody",
        tells="the oldest job wants more than its tenant has left, those behind it do not",
        shapes=two_sizes,
        play=head_of_the_queue_blocks_nobody,
        without=(Without(guard="step_aside", fails="the one behind starts: not within"),),
    ),
    Scenario(
        name="account-that-cannot-mint",
        tells="GitHub refuses every runner for one account that has twenty jobs queued",
        shapes=two_tenants,
        play=account_that_cannot_mint,
        without=(
            Without(
                guard="exclude_failing", fails="runners are not asked for in vain again and again"
            ),
        ),
    ),
    Scenario(
        name="capped-tenant-asks-for-no-hosts",
        tells="a tenant with room for one runner queues thirty jobs",
        shapes=room_for_one,
        play=capped_tenant_asks_for_no_hosts,
        without=(Without(guard="dispatchable_only", fails="what cannot run is no demand"),),
    ),
    Scenario(
        name="flood-of-one-tenant",
        tells="one tenant queues two hundred jobs, and others come later",
        shapes=three_tenants,
        play=partial(flood_of_one_tenant, jobs=200),
        without=(Without(guard="fair_turns", fails="birch's first job starts within"),),
    ),
    Scenario(
        name="flood-of-ten-thousand-jobs",
        tells="one tenant queues ten thousand jobs, and others come later",
        shapes=three_tenants,
        play=partial(flood_of_one_tenant, jobs=10_000),
        unguarded="the smaller flood is played without its guard",
        long=True,
    ),
)
