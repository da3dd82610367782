"""Incidents in which the outcome of a mint is unknown: GitHub answers 5xx, and may have registered a runner."""

from functools import partial

from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    fault,
    over,
    polling,
    queue,
    running,
    statuses,
    until,
    warm,
)
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import Shape, TenantShape
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.names import Component

MINUTE = 60.0
MINTS = "/actions/runners/generate-jitconfig"
UNKNOWN_MINT = "abandon"  # the outcome of a mint whose result is unknown
BIRCH = TenantShape(name="birch", repositories=("shop",), vcpus=12, memory_gb=28, share=1.0)
CEDAR = TenantShape(name="cedar", repositories=("site",), vcpus=400, memory_gb=800, share=1.0)
SOON = 2.0  # how long a job of another account may wait for a warm runner
MEAN = 0.5  # and how long on average
FAILURES_A_POD = 4  # at most one Pod may be lost for so many failed mints


def twelve_seats(seed: int) -> tuple[Shape, ...]:
    """Six hosts, twelve runners, three tenants; birch may have three runners at a time."""
    tenants = (RICH, BIRCH, CEDAR)
    return (Shape(seed=seed, hosts=6, pools=(POOL,), tenants=tenants, machine=QUICK),)


async def mints_of_one_account_fail(fleet: Fleet) -> None:
    """GitHub answers 500 to every mint of one account with twenty queued jobs; others queue one job after the other.

    In the incident each failed mint cost a warm Pod, 41 in two minutes, and every account waited for the next try.
    """
    await warm(fleet)
    before = sorted(polling(fleet))
    with fault(fleet, "mints-of-birch-fail"):
        for where in ("/orgs/birch", "/repos/birch/shop"):
            fleet.github.faults.fail_next(f"{where}{MINTS}", 500, 100_000, method="POST")
        failing = queue(fleet, 20, tenant="birch", duration=30.0)
        waits: list[float] = []
        for number in range(24):
            jobs = queue(fleet, 1, duration=2.0, tenant=("acme", "cedar")[number % 2])
            started = partial(_started, fleet, jobs)
            took = await until(
                fleet, Expectation.ANOTHERS_JOB_STARTS_SOON, started, within=MINUTE, step=0.05
            )
            waits.append(took)
            await fleet.clock.sleep(max(0.0, 5.0 - took))
        mean = sum(waits) / len(waits)
        fleet.report(f"others waited {mean:.2f} s on average, {max(waits):.2f} s at most")
        # The failed mints first: they are why others wait.
        _few_lost(fleet, before, used=len(waits))
        expect(Expectation.ANOTHERS_JOB_STARTS_SOON, max(waits) <= SOON, found=max(waits))
        expect(Expectation.ANOTHERS_JOB_STARTS_SOON, mean <= MEAN, found=mean)
        fleet.github.faults.repair()
        tried = partial(_fewer_queued, fleet, failing)
        await until(fleet, Expectation.BIRCH_IS_TRIED_AGAIN, tried, within=2 * MINUTE)
    await until(
        fleet, Expectation.BIRCHS_JOBS_RUN, lambda: over(fleet, failing), within=30 * MINUTE
    )
    await at_rest(fleet)


async def storm_of_unknown_mints(fleet: Fleet) -> None:
    """GitHub answers 502 to every mint for a minute, to all accounts, while more jobs wait than there are runners."""
    await warm(fleet)
    before = sorted(polling(fleet))
    with fault(fleet, "storm-of-502"):
        for where in ("/orgs", "/repos"):
            fleet.github.faults.fail_next(where, 502, 100_000, method="POST")
        jobs = [
            job
            for tenant in ("acme", "birch", "cedar")
            for job in queue(fleet, 8, tenant=tenant, duration=30.0)
        ]
        await fleet.clock.sleep(MINUTE)
        _few_lost(fleet, before, used=0)
        fleet.github.faults.repair()
        several = partial(_several_run, fleet)
        took = await until(fleet, Expectation.RUNNERS_ARE_USED_AGAIN, several, within=MINUTE)
        fleet.report(f"ten runners had a job {took:.0f} s after the storm")
    await until(fleet, Expectation.THEY_RUN, lambda: over(fleet, jobs), within=15 * MINUTE)
    await at_rest(fleet)


def _few_lost(fleet: Fleet, before: list[str], *, used: int) -> None:
    """Expects few lost Pods: gone, and not because they ran a job."""
    failures = counted(
        fleet,
        RUNYARD_ACTIONS_TOTAL,
        component=Component.SERVER,
        action="mint",
        outcome=UNKNOWN_MINT,
    )
    here = {pod["metadata"]["name"] for pod in fleet.kube.objects("pods")}
    lost = max(0, sum(pod not in here for pod in before) - used)
    fleet.report(f"{failures:.0f} mints without a known outcome, {lost} Pods lost")
    # None at all would mean that the counter was read by a wrong name: the first mints always fail.
    expect(Expectation.FEW_FAILED_MINTS, 1 <= failures <= 40, found=failures)
    expect(Expectation.FEW_PODS_LOST, lost <= failures / FAILURES_A_POD, found=(lost, failures))


def _several_run(fleet: Fleet) -> bool:
    return len(running(fleet)) >= 10


def _started(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") == 0


def _fewer_queued(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") < len(jobs)


SCENARIOS = (
    Scenario(
        name="mints-of-one-account-fail",
        summary="GitHub answers 500 to every runner registration of one account with twenty queued jobs",
        shapes=twelve_seats,
        play=mints_of_one_account_fail,
        without=(Without(guard="exclude_failing", fails=Expectation.FEW_FAILED_MINTS),),
    ),
    Scenario(
        name="storm-of-unknown-mints",
        summary="GitHub answers 502 to every runner registration for a minute",
        shapes=twelve_seats,
        play=storm_of_unknown_mints,
        without=(Without(guard="exclude_failing", fails=Expectation.FEW_FAILED_MINTS),),
    ),
)
