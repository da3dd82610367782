"""Incidents of guests: they die too early, end too late, hang, or are to leave."""

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
    """Machines die with their JITs in hand: each job runs elsewhere, soon, and no age has to be waited for."""
    await warm(fleet)
    for _ in range(
        3
    ):  # some time apart: no loop that comes by now and then makes up for it each time
        fleet.break_next("die-with-jit")
        jobs = queue(fleet, 1, duration=10.0)
        started = partial(_started, fleet, jobs)
        took = await until(fleet, "it runs elsewhere", started, within=15.0, step=0.5)
        fleet.tell(f"runs elsewhere {took:.0f} s after it was queued")
        await until(fleet, "it ends well", partial(over, fleet, jobs), within=MINUTE)
        await fleet.clock.sleep(20.0)
    await at_rest(fleet)


async def watchdog_and_job_at_once(fleet: Fleet) -> None:
    """A runner that waited in vain is about to end itself, and then GitHub has a job for it.

    The look and the kill were two steps, and runners were killed just after GitHub had given them a job.
    """
    await warm(fleet)
    cancelled = queue(fleet, 1)
    fleet.lose_webhook = lambda delivery: delivery.action == "completed"
    await until(fleet, "offered", lambda: _offered(fleet), within=MINUTE, step=0.01)
    fleet.github.cancel_job(cancelled[0])
    await until(fleet, "it waits in vain", lambda: bool(_waiting(fleet)), within=MINUTE, step=0.05)
    (since,) = _waiting(fleet)
    fleet.lose_webhook = None
    await fleet.clock.sleep(since + IDLE_TIMEOUT + 0.5 - fleet.clock.monotonic())
    jobs = queue(fleet, 1, duration=30.0)
    await until(fleet, "the job ends well", lambda: over(fleet, jobs), within=5 * MINUTE)
    await at_rest(fleet)


async def poll_loop_dies(fleet: Fleet) -> None:
    """A guest's poll loop is dead and its Pod runs: warm for everybody who looks, and of no use."""
    await warm(fleet)
    fleet.break_next("hang-before-jit")
    await until(fleet, "one hangs", lambda: bool(_hung(fleet)), within=MINUTE)
    (pod,) = _hung(fleet)
    bound = BEAT + GRACE + 2 * MINUTE + TEARDOWN
    took = await until(fleet, "it is replaced", lambda: not _exists(fleet, pod), within=bound)
    fleet.tell(f"gone {took:.0f} s later")
    await at_rest(fleet)


async def machine_that_never_ends(fleet: Fleet) -> None:
    """The job is over, its runner is dead, and the machine under it never ends: nine seats were held so."""
    await warm(fleet)
    for _ in range(2):
        fleet.break_next("hang-after-job")
    jobs = queue(fleet, 2, duration=30.0)
    await until(fleet, "both hang", lambda: len(_hung(fleet)) == 2, within=2 * MINUTE)
    over(fleet, jobs)
    pods = _hung(fleet)
    bound = DRAINING + MINUTE + TEARDOWN
    took = await until(
        fleet,
        "they are replaced",
        lambda: not any(_exists(fleet, pod) for pod in pods),
        within=bound,
    )
    fleet.tell(f"gone {took:.0f} s after their jobs")
    await at_rest(fleet)


async def drain_waits_for_the_job(fleet: Fleet) -> None:
    """Somebody wants a host empty: its idle runners leave, and get no job on the way; the busy one is waited for."""
    await warm(fleet)
    long = queue(fleet, 1, duration=4 * MINUTE)
    await until(fleet, "it runs", lambda: len(running(fleet)) == 1, within=MINUTE)
    (busy,) = running(fleet)
    leaving = [guest.pod for guest in fleet.guests.values() if guest.host == busy.host]
    fleet.tell(f"{leaving} are to leave")
    drain = {"metadata": {"labels": {names.OPERATOR_DRAIN: "true"}}}
    for pod in leaving:
        await fleet.admin.patch(PODS, pod, drain, namespace=SPACE)
    idle = [pod for pod in leaving if pod != busy.pod]
    expect("one of them is idle", idle)
    await until(
        fleet,
        "the idle ones leave",
        lambda: not any(_exists(fleet, pod) for pod in idle),
        within=90.0,
    )
    expect("the busy one stays", _exists(fleet, busy.pod))
    await until(fleet, "the job ends well", lambda: over(fleet, long), within=20 * MINUTE)
    await until(fleet, "it leaves", lambda: not _exists(fleet, busy.pod), within=2 * MINUTE)
    await at_rest(fleet)


async def hosts_that_start_nothing(fleet: Fleet) -> None:
    """Every host is Ready and no machine starts on it; jobs wait, and the queue's age must tell of it.

    Nobody noticed for five hours that 111 jobs waited, because everything that was looked at was well.
    """
    await warm(fleet)
    for host in fleet.hosts.values():
        host.driver.hang("start", times=1000)
    fleet.tell("no machine starts any more")
    jobs = queue(fleet, 4, duration=30.0)
    await fleet.clock.sleep(10 * MINUTE)
    expect("some of them wait", statuses(fleet, jobs, "queued") >= 2)
    age = max((meter.get(QUEUE_AGE, fleet=POOL.name) or 0.0) for meter in fleet.meters["server"])
    expect(f"the age of the oldest one is told: {age:.0f} s", age > 9 * MINUTE)
    for host in fleet.hosts.values():
        host.driver.heal()
    fleet.tell("machines start again; what hangs goes on hanging")
    took = await until(fleet, "they all run", lambda: over(fleet, jobs), within=60 * MINUTE)
    fleet.tell(f"all run {took:.0f} s later")
    await at_rest(fleet)


def _started(fleet: Fleet, jobs: list[int]) -> bool:
    return statuses(fleet, jobs, "queued") == 0


def _offered(fleet: Fleet) -> bool:
    return any(slot.state == "offered" for slot in fleet.books.slots.values())


def _waiting(fleet: Fleet) -> list[float]:
    """Since when each runner waits for GitHub to give it something."""
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
        tells="a machine dies with its JIT in hand",
        shapes=three_hosts,
        play=runner_dies_before_it_registers,
        without=(
            Without(guard="stop_reports_are_heard", fails="it runs elsewhere: not within"),
            Without(guard="deadline_closed", fails="it runs elsewhere: not within"),
        ),
    ),
    Scenario(
        name="watchdog-and-job-at-once",
        tells="a runner that gives up is given a job in the same moment",
        shapes=impatient,
        play=watchdog_and_job_at_once,
        without=(Without(guard="watchdog_yields", fails="the job ends well: not within"),),
    ),
    Scenario(
        name="poll-loop-dies",
        tells="a guest's poll loop is dead and its Pod runs on",
        shapes=one_host,
        play=poll_loop_dies,
        without=(Without(guard="pods_against_slots", fails="it is replaced: not within"),),
    ),
    Scenario(
        name="machine-that-never-ends",
        tells="jobs are over, and the machines under them never end",
        shapes=one_host,
        play=machine_that_never_ends,
        without=(Without(guard="deadline_draining", fails="they are replaced: not within"),),
    ),
    Scenario(
        name="drain-waits-for-the-job",
        tells="the runners of a host are to leave, and one of them works",
        shapes=two_tenants,
        play=drain_waits_for_the_job,
        without=(Without(guard="drain_first", fails="the idle ones leave: not within"),),
    ),
    Scenario(
        name="hosts-that-start-nothing",
        tells="every host is Ready, and no machine starts on it",
        shapes=one_host,
        play=hosts_that_start_nothing,
        without=(Without(guard="loop_gauges", fails="the age of the oldest one is told"),),
    ),
)
