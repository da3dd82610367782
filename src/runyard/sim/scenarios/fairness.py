"""Incidents about the order of jobs: a head that blocks its queue, an account that captures the fleet, a flood."""

from collections import Counter
from functools import partial

import msgspec

from runyard.http.messages import Request, Response
from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    fault,
    over,
    queue,
    statuses,
    until,
    warm,
)
from runyard.sim.scenarios.claims import budget_for_one, two_tenants
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import PoolShape, Shape, TenantShape
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.names import Component
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
REFUSED_MINT = "clear-stamp-and-fail"  # the outcome of a mint that GitHub refused
MINTS = "/actions/runners/generate-jitconfig"


def two_sizes(seed: int) -> tuple[Shape, ...]:
    """Three hosts, two sizes of runners, a tenant with headroom for three small ones; one server serves them all."""
    pools = (SMALL, LARGE)
    return (Shape(seed=seed, hosts=3, pools=pools, tenants=(TIGHT,), machine=QUICK, replicas=1),)


def three_tenants(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners, three tenants that may each have all of them."""
    tenants = (RICH, BIRCH, CEDAR)
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=tenants, machine=QUICK),)


async def head_of_the_queue_does_not_block(fleet: Fleet) -> None:
    """The oldest job needs more than its tenant has left; those behind it do not.

    In the incident every poll chose the oldest job, could not serve it, and was answered with "no job".
    """
    await warm(fleet)
    long = queue(fleet, 2, duration=10 * MINUTE)
    await until(
        fleet, Expectation.TWO_RUN, lambda: statuses(fleet, long, "in_progress") == 2, within=MINUTE
    )
    head = queue(fleet, 1, duration=30.0, pool=1)
    await fleet.clock.sleep(10.0)
    behind = queue(fleet, 1, duration=30.0)
    started = partial(_started, fleet, behind)
    await until(fleet, Expectation.THE_ONE_BEHIND_STARTS, started, within=5.0, step=0.5)
    expect(Expectation.THE_HEAD_STILL_WAITS, statuses(fleet, head, "queued") == 1)
    await until(fleet, Expectation.THE_HEAD_RUNS, lambda: over(fleet, head), within=15 * MINUTE)
    await at_rest(fleet)


async def account_that_cannot_mint(fleet: Fleet) -> None:
    """GitHub refuses every runner for one account, which has twenty jobs queued; another account keeps working.

    In the incident each refused registration took the next job of the same account, so no other account was served.
    """
    await warm(fleet)
    with fault(fleet, "no-runners-for-birch"):
        for where in ("/orgs/birch", "/repos/birch/shop"):
            fleet.github.faults.fail_next(f"{where}{MINTS}", 403, 100_000, method="POST")
        refused = queue(fleet, 20, tenant="birch", duration=30.0)
        longest = 0.0
        for _ in range(3):
            jobs = queue(fleet, 1, duration=30.0)
            ended = partial(over, fleet, jobs)
            took = await until(fleet, Expectation.ACMES_JOB_RUNS, ended, within=MINUTE)
            longest = max(longest, took)
            await fleet.clock.sleep(MINUTE - took)
        wasted = counted(
            fleet,
            RUNYARD_ACTIONS_TOTAL,
            component=Component.SERVER,
            action="mint",
            outcome=REFUSED_MINT,
        )
        # None at all would mean that the counter was read by a wrong name: the first mint is always refused.
        expect(Expectation.FEW_REFUSED_MINTS, 1 <= wasted <= 10, found=wasted)
        fleet.report(f"{wasted:.0f} refused mints, acme waited {longest:.0f} s at most")
        fleet.github.faults.repair()
    with fault(fleet, "birch-is-passed-over"):
        tried = partial(_fewer_queued, fleet, refused)
        took = await until(fleet, Expectation.BIRCH_IS_TRIED_AGAIN, tried, within=10 * MINUTE)
        fleet.report(f"birch was tried again {took:.0f} s after the repair")
    await until(
        fleet, Expectation.BIRCHS_JOBS_RUN, lambda: over(fleet, refused), within=30 * MINUTE
    )
    await at_rest(fleet)


async def capped_tenant_asks_for_no_hosts(fleet: Fleet) -> None:
    """A tenant with headroom for one runner queues thirty jobs: no pool may grow for what cannot run.

    In the incident a pool was sized by the whole queue and kept hosts idle that other tenants needed.
    """
    await warm(fleet)
    jobs = queue(fleet, 30)
    await until(
        fleet, Expectation.ONE_RUNS, lambda: statuses(fleet, jobs, "queued") == 29, within=MINUTE
    )
    await fleet.clock.sleep(5.0)
    signals = await _signals(fleet)
    expect(
        Expectation.WHAT_CANNOT_RUN_IS_NO_DEMAND,
        (signals.queued, signals.withheld) == (0, 29),
        found=signals,
    )
    expect(
        Expectation.WHAT_RUNS_IS_COUNTED, signals.claimed == signals.occupied == 1, found=signals
    )
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
        Expectation.FIRST_JOB_STARTS_SOON,
        partial(_started, fleet, first),
        within=JOB,
        step=0.5,
    )
    fleet.report(f"birch's first job started after {took:.1f} s")
    for _ in range(40):
        queue(fleet, 1, tenant="birch", duration=chance.uniform(0.5 * JOB, JOB))
        queue(fleet, 1, tenant="cedar", duration=chance.uniform(0.5 * JOB, JOB))
    await fleet.clock.sleep(2 * MINUTE)
    before = _served(fleet)
    await fleet.clock.sleep(6 * MINUTE)
    served = [_served(fleet)[name] - before[name] for name in ("acme", "birch", "cedar")]
    index = jain(served)
    fleet.report(f"served {served}, Jain index {index:.3f}")
    expect(Expectation.EVERY_TENANT_GETS_A_FAIR_SHARE, index >= FAIR, found=(served, index))
    left = [statuses(fleet, _jobs_of(fleet, name), "queued") for name in ("acme", "birch", "cedar")]
    expect(Expectation.EVERY_TENANT_STILL_HAD_JOBS, all(left), found=left)
    for job in list(fleet.github.jobs()):
        fleet.github.cancel_job(job)
    await at_rest(fleet)


async def _signals(fleet: Fleet) -> ScalingSignals:
    """The scaling signals of the first pool."""
    asked = (("fleet", fleet.shape.pools[0].name),)
    request = Request(method="GET", path=DESIRED_REPLICAS, query=asked)
    answer = await fleet.ask_as_operator(request)
    expect(Expectation.IT_IS_ANSWERED, answer.status == 200, found=answer.status)
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
    """The virtual processors of all runners that each tenant has got so far."""
    size = fleet.shape.pools[0].cpu_milli // 1000
    served: Counter[str] = Counter()
    for job in fleet.github.jobs().values():
        served[job.repo.owner] += size * job.executions
    return served


def _jobs_of(fleet: Fleet, tenant: str) -> list[int]:
    return [job.id for job in fleet.github.jobs().values() if job.repo.owner == tenant]


SCENARIOS = (
    Scenario(
        name="head-of-the-queue-does-not-block",
        summary="the oldest job needs more than its tenant's remaining budget; the jobs behind it do not",
        shapes=two_sizes,
        play=head_of_the_queue_does_not_block,
        without=(Without(guard="step_aside", fails=Expectation.THE_ONE_BEHIND_STARTS),),
    ),
    Scenario(
        name="account-that-cannot-mint",
        summary="GitHub refuses every runner registration for one account with twenty queued jobs",
        shapes=two_tenants,
        play=account_that_cannot_mint,
        without=(Without(guard="exclude_failing", fails=Expectation.FEW_REFUSED_MINTS),),
    ),
    Scenario(
        name="capped-tenant-asks-for-no-hosts",
        summary="a tenant with budget for one runner queues thirty jobs",
        shapes=budget_for_one,
        play=capped_tenant_asks_for_no_hosts,
        without=(
            Without(guard="dispatchable_only", fails=Expectation.WHAT_CANNOT_RUN_IS_NO_DEMAND),
        ),
    ),
    Scenario(
        name="flood-of-one-tenant",
        summary="one tenant queues two hundred jobs before the other tenants queue theirs",
        shapes=three_tenants,
        play=partial(flood_of_one_tenant, jobs=200),
        without=(Without(guard="fair_turns", fails=Expectation.FIRST_JOB_STARTS_SOON),),
    ),
    Scenario(
        name="flood-of-ten-thousand-jobs",
        summary="one tenant queues ten thousand jobs before the other tenants queue theirs",
        shapes=three_tenants,
        play=partial(flood_of_one_tenant, jobs=10_000),
        unguarded="the smaller flood is played without its guard",
        long=True,
    ),
)
