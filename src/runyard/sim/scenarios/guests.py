"""Incidents of guests: they die too early, end too late, hang, or are to be drained."""

from functools import partial

import msgspec

from runyard.kube.kinds import PODS
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    expect,
    over,
    queue,
    running,
    statuses,
    until,
    warm,
)
from runyard.sim.scenarios.claims import one_host, three_hosts, two_tenants
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import GRACE, POOL, QUICK, RICH, TEARDOWN
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import Shape
from runyard.telemetry.catalogue import TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS as QUEUE_AGE
from runyard.wire import names

MINUTE = 60.0
BEAT = 90.0
DRAINING = 900.0
IDLE_TIMEOUT = 60


def impatient(seed: int) -> tuple[Shape, ...]:
    """A pool whose runners give up when no job has come for a minute."""
    pool = msgspec.structs.replace(POOL, idle_timeout=IDLE_TIMEOUT)
    return (Shape(seed=seed, hosts=2, pools=(pool,), tenants=(RICH,), machine=QUICK),)


async def runner_dies_before_it_registers(fleet: Fleet) -> None:
    """Machines die after they received their JITs: each job runs elsewhere soon, without waiting for an age limit."""
    await warm(fleet)
    # Each at another time of the loops that run now and then: none of them makes up for it every time.
    for _ in range(6):
        fleet.break_next("die-with-jit")
        jobs = queue(fleet, 1, duration=10.0)
        started = partial(_started, fleet, jobs)
        took = await until(fleet, Expectation.IT_RUNS_ELSEWHERE, started, within=12.0, step=0.5)
        fleet.report(f"runs elsewhere {took:.0f} s after it was queued")
        await until(fleet, Expectation.IT_ENDS_WELL, partial(over, fleet, jobs), within=MINUTE)
        await fleet.clock.sleep(23.0)
    await at_rest(fleet)


async def watchdog_and_job_at_once(fleet: Fleet) -> None:
    """A runner that got no job is about to end itself, and then GitHub has a job for it.

    In the incident check and kill were two steps, and runners were killed just after GitHub had assigned them a job.
    """
    await warm(fleet)
    cancelled = queue(fleet, 1)
    fleet.lose_webhook = lambda delivery: delivery.action == "completed"
    await until(fleet, Expectation.OFFERED, lambda: _offered(fleet), within=MINUTE, step=0.01)
    fleet.github.cancel_job(cancelled[0])
    await until(
        fleet, Expectation.IT_HAS_NO_JOB, lambda: bool(_waiting(fleet)), within=MINUTE, step=0.05
    )
    (since,) = _waiting(fleet)
    fleet.lose_webhook = None
    await fleet.clock.sleep(since + IDLE_TIMEOUT + 0.5 - fleet.clock.monotonic())
    jobs = queue(fleet, 1, duration=30.0)
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=5 * MINUTE)
    await at_rest(fleet)


async def poll_loop_dies(fleet: Fleet) -> None:
    """A guest's poll loop is dead while its Pod runs: it counts as warm, but never gets a job."""
    await warm(fleet)
    fleet.break_next("hang-before-jit")
    await until(fleet, Expectation.ONE_HANGS, lambda: bool(_hung(fleet)), within=MINUTE)
    (pod,) = _hung(fleet)
    bound = BEAT + GRACE + 2 * MINUTE + TEARDOWN
    took = await until(
        fleet, Expectation.IT_IS_REPLACED, lambda: not _exists(fleet, pod), within=bound
    )
    fleet.report(f"gone {took:.0f} s later")
    await at_rest(fleet)


async def machine_that_never_ends(fleet: Fleet) -> None:
    """The job is completed, its runner is dead, and its VM never stops: this once held nine VM slots."""
    await warm(fleet)
    for _ in range(2):
        fleet.break_next("hang-after-job")
    jobs = queue(fleet, 2, duration=30.0)
    await until(fleet, Expectation.BOTH_HANG, lambda: len(_hung(fleet)) == 2, within=2 * MINUTE)
    over(fleet, jobs)
    pods = _hung(fleet)
    bound = DRAINING + MINUTE + TEARDOWN
    took = await until(
        fleet,
        Expectation.THEY_ARE_REPLACED,
        lambda: not any(_exists(fleet, pod) for pod in pods),
        within=bound,
    )
    fleet.report(f"gone {took:.0f} s after their jobs")
    await at_rest(fleet)


async def drain_waits_for_the_job(fleet: Fleet) -> None:
    """A host is drained: its idle runners exit without a job; the busy one finishes its job first."""
    await warm(fleet)
    long = queue(fleet, 1, duration=4 * MINUTE)
    await until(fleet, Expectation.IT_RUNS, lambda: len(running(fleet)) == 1, within=MINUTE)
    (busy,) = running(fleet)
    leaving = [guest.pod for guest in fleet.guests.values() if guest.host == busy.host]
    fleet.report(f"{leaving} are to leave")
    drain = {"metadata": {"labels": {names.OPERATOR_DRAIN: "true"}}}
    for pod in leaving:
        await fleet.admin.patch(PODS, pod, drain, namespace=SPACE)
    idle = [pod for pod in leaving if pod != busy.pod]
    expect(Expectation.ONE_OF_THEM_IS_IDLE, idle)
    await until(
        fleet,
        Expectation.THE_IDLE_ONES_LEAVE,
        lambda: not any(_exists(fleet, pod) for pod in idle),
        within=90.0,
    )
    expect(Expectation.THE_BUSY_ONE_STAYS, _exists(fleet, busy.pod))
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, long), within=20 * MINUTE)
    await until(
        fleet, Expectation.IT_LEAVES, lambda: not _exists(fleet, busy.pod), within=2 * MINUTE
    )
    await at_rest(fleet)


async def hosts_that_start_nothing(fleet: Fleet) -> None:
    """Every host is Ready and no machine starts on it; jobs wait, and the queue's age must show it.

    In the incident 111 jobs waited for five hours unnoticed, because everything that was monitored was healthy.
    """
    await warm(fleet)
    for host in fleet.hosts.values():
        host.driver.hang("start", times=1000)
    fleet.report("no machine starts any more")
    jobs = queue(fleet, 4, duration=30.0)
    await fleet.clock.sleep(10 * MINUTE)
    expect(Expectation.SOME_OF_THEM_WAIT, statuses(fleet, jobs, "queued") >= 2)
    age = max((meter.get(QUEUE_AGE, fleet=POOL.name) or 0.0) for meter in fleet.meters["server"])
    expect(Expectation.OLDEST_AGE_EXPORTED, age > 9 * MINUTE, found=age)
    for host in fleet.hosts.values():
        host.driver.heal()
    fleet.report("machines start again; those that hang stay so")
    took = await until(
        fleet, Expectation.THEY_ALL_RUN, lambda: over(fleet, jobs), within=60 * MINUTE
    )
    fleet.report(f"all run {took:.0f} s later")
    await at_rest(fleet)


def _started(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") == 0


def _offered(fleet: Fleet) -> bool:
    return any(slot.state == "offered" for slot in fleet.ledger.slots.values())


def _waiting(fleet: Fleet) -> list[float]:
    """Since when each runner waits for a job from GitHub."""
    return [
        guest.jit_at
        for guest in fleet.guests.values()
        if guest.state == "armed" and guest.session is not None and guest.jit_at is not None
    ]


def _hung(fleet: Fleet) -> list[str]:
    return [guest.pod for guest in fleet.guests.values() if guest.state == "hung"]


def _exists(fleet: Fleet, pod: str) -> bool:
    return fleet.kube.find("pods", SPACE, pod) is not None


SCENARIOS = (
    Scenario(
        name="runner-dies-before-it-registers",
        summary="a VM dies after it received its JIT configuration, before its runner registers",
        shapes=three_hosts,
        play=runner_dies_before_it_registers,
        without=(
            Without(guard="stop_reports_count", fails=Expectation.IT_RUNS_ELSEWHERE),
            Without(guard="deadline_closed", fails=Expectation.IT_RUNS_ELSEWHERE),
        ),
    ),
    Scenario(
        name="watchdog-and-job-at-once",
        summary="an idle runner gives up at the moment when GitHub assigns it a job",
        shapes=impatient,
        play=watchdog_and_job_at_once,
        without=(Without(guard="watchdog_yields", fails=Expectation.THE_JOB_ENDS_WELL),),
    ),
    Scenario(
        name="poll-loop-dies",
        summary="a guest's poll loop dies while its Pod keeps running",
        shapes=one_host,
        play=poll_loop_dies,
        without=(Without(guard="pods_against_slots", fails=Expectation.IT_IS_REPLACED),),
    ),
    Scenario(
        name="machine-that-never-ends",
        summary="jobs are completed, but their VMs never stop",
        shapes=one_host,
        play=machine_that_never_ends,
        without=(Without(guard="deadline_draining", fails=Expectation.THEY_ARE_REPLACED),),
    ),
    Scenario(
        name="drain-waits-for-the-job",
        summary="a host is drained while one of its runners executes a job",
        shapes=two_tenants,
        play=drain_waits_for_the_job,
        without=(Without(guard="drain_first", fails=Expectation.THE_IDLE_ONES_LEAVE),),
    ),
    Scenario(
        name="hosts-that-start-nothing",
        summary="every host is Ready, but no VM starts",
        shapes=one_host,
        play=hosts_that_start_nothing,
        without=(Without(guard="loop_queue_gauges", fails=Expectation.OLDEST_AGE_EXPORTED),),
    ),
)
