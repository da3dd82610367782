"""Short scenarios in which a job waits without a fault, one reason each.

They are no incidents: no guard answers them, and what must follow is only that the reason is named while it lasts and
that the job runs, or goes, when it is over.
"""

from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import at_rest, fault, over, queue, running, until, warm
from runyard.sim.scenarios.claims import one_host, two_tenants
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.scenario import Scenario
from runyard.web.explain.values import Constraint

LASTS = 45.0  # under a minute: GitHub's own wait, and a host's lease, outlast it
MINUTE = 60.0
NO_POINTS = 0


async def job_that_no_pool_serves(fleet: Fleet) -> None:
    """No pool serves its labels."""
    await warm(fleet)
    with fault(fleet, Constraint.NO_POOL):
        job = fleet.github.queue_job("acme/app", ("fleet-of-nobody",), duration=30.0)
        await fleet.clock.sleep(LASTS)
        fleet.github.cancel_job(job)
    await at_rest(fleet)


async def tenant_that_is_paused(fleet: Fleet) -> None:
    """The tenant is paused while runners are idle."""
    await warm(fleet)
    with fault(fleet, Constraint.PAUSED):
        fleet.ledger.pause("acme", paused=True)
        jobs = queue(fleet, 2, duration=30.0)
        await fleet.clock.sleep(LASTS)
        fleet.ledger.pause("acme", paused=False)
    await _run(fleet, jobs)


async def budget_that_is_used_up(fleet: Fleet) -> None:
    """GitHub rate limits this installation for a minute."""
    await warm(fleet)
    fleet.github.set_limits(points_per_minute=NO_POINTS)
    first = queue(fleet, 1, duration=30.0)
    await fleet.clock.sleep(5.0)  # by then one attempt has failed
    with fault(fleet, Constraint.GITHUB_BUDGET):
        later = queue(fleet, 2, duration=30.0)
        await fleet.clock.sleep(LASTS)
        fleet.github.set_limits()
    await _run(fleet, first + later)


async def fleet_without_hosts(fleet: Fleet) -> None:
    """The only host has not joined yet."""
    for host in fleet.hosts.values():
        host.cut_network()
    with fault(fleet, Constraint.NO_HOST):
        jobs = queue(fleet, 1, duration=30.0)
        await fleet.clock.sleep(LASTS)
        for host in fleet.hosts.values():
            host.restore_network()
    await _run(fleet, jobs)


async def kubernetes_is_away(fleet: Fleet) -> None:
    """Every runner is busy, and the state of the next one is unknown."""
    await warm(fleet)
    jobs = queue(fleet, 2, duration=3 * MINUTE)
    await until(fleet, Expectation.BOTH_RUN, lambda: len(running(fleet)) == 2, within=MINUTE)
    with fault(fleet, Constraint.KUBERNETES_AWAY):
        _cut(fleet, down=True)
        jobs += queue(fleet, 1, duration=30.0)
        await fleet.clock.sleep(LASTS)
        _cut(fleet, down=False)
    await _run(fleet, jobs)


async def _run(fleet: Fleet, jobs: list[int]) -> None:
    await until(fleet, Expectation.THEY_RUN, lambda: over(fleet, jobs), within=15 * MINUTE)
    await at_rest(fleet)


def _cut(fleet: Fleet, *, down: bool) -> None:
    for link in fleet.links:
        if link.name.endswith(">kube"):
            link.down = down


HOLDS = (
    Scenario(
        name="job-that-no-pool-serves",
        summary="a job asks for labels that no pool has",
        shapes=two_tenants,
        play=job_that_no_pool_serves,
    ),
    Scenario(
        name="tenant-that-is-paused",
        summary="somebody pauses a tenant",
        shapes=two_tenants,
        play=tenant_that_is_paused,
    ),
    Scenario(
        name="budget-that-is-used-up",
        summary="GitHub rate limits the installation for a minute",
        shapes=two_tenants,
        play=budget_that_is_used_up,
    ),
    Scenario(
        name="fleet-without-hosts",
        summary="no host has joined yet",
        shapes=one_host,
        play=fleet_without_hosts,
    ),
    Scenario(
        name="kubernetes-is-away",
        summary="the Kubernetes API is away while every runner works",
        shapes=one_host,
        play=kubernetes_is_away,
    ),
)
