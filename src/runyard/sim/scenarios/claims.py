"""Incidents about who holds what: a claim and the runner that it speaks for disagreed."""

import msgspec

from runyard.http.errors import TransportError
from runyard.http.messages import Request
from runyard.kube.kinds import PODS
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.guest import GuestView
from runyard.sim.scenarios.acts import (
    at_rest,
    expect,
    over,
    queue,
    running,
    until,
    warm,
)
from runyard.sim.scenarios.pods import GRACE, POOL, QUICK, RICH
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import Shape, TenantShape
from runyard.wire.paths import DISPATCH

BIRCH = TenantShape(name="birch", repositories=("shop",), vcpus=400, memory_gb=800, share=1.0)
ONE = TenantShape(name="acme", repositories=("app",), vcpus=4, memory_gb=7, share=1.0)
MINUTE = 60.0
LONG = 17 * MINUTE  # longer than a slot may be draining


def two_tenants(seed: int) -> tuple[Shape, ...]:
    """Two hosts, four runners, two tenants."""
    return (Shape(seed=seed, hosts=2, pools=(POOL,), tenants=(RICH, BIRCH), machine=QUICK),)


def unaudited(seed: int) -> tuple[Shape, ...]:
    """The same without the audit, which makes up for lost starts before a mistake does harm."""
    (shape,) = two_tenants(seed)
    return (msgspec.structs.replace(shape, off=("loop_audit",)),)


def three_hosts(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners."""
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


def one_host(seed: int) -> tuple[Shape, ...]:
    """One host, two runners."""
    return (Shape(seed=seed, hosts=1, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


def room_for_one(seed: int) -> tuple[Shape, ...]:
    """Four runners, and a tenant that may have one at a time."""
    return (Shape(seed=seed, hosts=2, pools=(POOL,), tenants=(ONE,), machine=QUICK),)


async def job_code_asks_for_more(fleet: Fleet) -> None:
    """A job finds its machine's token and polls with it, while another tenant's jobs wait for a runner."""
    await warm(fleet)
    jobs = queue(fleet, 1, duration=90.0)
    await until(fleet, "it runs", lambda: len(running(fleet)) == 1, within=MINUTE)
    (guest,) = running(fleet)
    token = next(token for token, each in fleet.pollers.items() if each is guest)
    others = queue(fleet, 8, tenant="birch")
    answers: list[int] = []
    while not over(fleet, jobs) or len(answers) < 12:
        answers.append(await _ask(fleet, guest.host, token))
        await fleet.clock.sleep(5.0)
    told = sorted(dict.fromkeys(answers))
    expect(f"whoever was given a runner gets no other: {told}", not {200, 204} & {*told})
    expect(f"it is told to leave: {told}", 410 in told)
    await until(fleet, "the others run", lambda: over(fleet, others), within=10 * MINUTE)
    await at_rest(fleet)


async def reaper_meets_a_working_runner(fleet: Fleet) -> None:
    """The row of a runner that works is lost, so its Pod is stamped and no claim speaks for it.

    A reaper that trusted the missing row deleted such Pods in the middle of their jobs. GitHub is asked first.
    """
    await warm(fleet)
    await fleet.clock.sleep(GRACE)  # older than any grace for young ones
    jobs = queue(fleet, 1, duration=4 * MINUTE)
    await until(fleet, "it runs", lambda: len(running(fleet)) == 1, within=MINUTE)
    (guest,) = running(fleet)
    fleet.tell(f"the row of {guest.pod} is lost")
    fleet.books.lose(guest.uid)
    await until(fleet, "the job ends well", lambda: over(fleet, jobs), within=5 * MINUTE)
    await at_rest(fleet)
    expect("executed once", fleet.github.jobs()[jobs[0]].executions == 1)


async def runner_takes_another_job(fleet: Fleet) -> None:
    """GitHub gives a runner any job with its labels: the one that it was minted for goes back to the queue.

    A job that was displaced so never left the state "bound" once, and nobody made a runner for it again.
    """
    await warm(fleet)
    jobs = queue(fleet, 9, duration=30.0)
    await until(fleet, "all run", lambda: over(fleet, jobs), within=20 * MINUTE)
    displaced = fleet.books.counts.get("bound→queued", 0)
    expect("some were displaced", displaced > 0)
    fleet.tell(f"{displaced} jobs were displaced")
    await at_rest(fleet)
    executions = [fleet.github.jobs()[job].executions for job in jobs]
    expect(f"each was executed once: {executions}", executions == [1] * len(jobs))


async def another_jobs_end_frees_nobody(fleet: Fleet) -> None:
    """Runners have swapped their jobs, and the starts were not heard of when the first ends are.

    A release by the job's number freed the runner that the job was meant for, and that one was at work.
    """
    await warm(fleet)
    fleet.tell("no start is heard of")
    fleet.lose_webhook = lambda delivery: delivery.action == "in_progress"
    jobs = [queue(fleet, 1, duration=30.0 if at % 2 else LONG)[0] for at in range(4)]
    short, long = jobs[1::2], jobs[0::2]
    await until(fleet, "all run", lambda: len(running(fleet)) == 4, within=MINUTE)
    expect("a long one runs where a short one was meant to", _swapped(fleet, long))
    await until(fleet, "the short ones end", lambda: over(fleet, short), within=MINUTE)
    await fleet.clock.sleep(30.0)
    fleet.lose_webhook = None
    await until(fleet, "the long ones end well", lambda: over(fleet, long), within=LONG)
    await at_rest(fleet)


async def claim_of_a_pod_that_vanished(fleet: Fleet) -> None:
    """A Pod is removed by force while its runner is about to register, and nobody says that it stopped.

    Two sweeps once looked for such claims by different keys, and each left them to the other, for ten days.
    """
    await warm(fleet)
    fleet.deaf_to_stops = True
    fleet.break_next("hang-with-jit")
    jobs = queue(fleet, 1, duration=30.0)
    await until(fleet, "it hangs", lambda: bool(_hung(fleet)), within=MINUTE)
    (guest,) = _hung(fleet)
    await _remove_by_force(fleet, guest)
    took = await until(fleet, "the job runs elsewhere", lambda: over(fleet, jobs), within=150.0)
    fleet.tell(f"its job was over {took:.0f} s later")
    fleet.deaf_to_stops = False
    await at_rest(fleet)


async def _ask(fleet: Fleet, host: str, token: str) -> int:
    headers = (("authorization", f"Bearer {token}"), ("prefer", "wait=2"))
    request = Request(method="POST", path=DISPATCH, headers=headers, body=b"{}")
    try:
        answer = await fleet.hosts[host].lines[0].send(request, timeout=30.0)
    except TransportError:
        return 0
    return answer.status


def _swapped(fleet: Fleet, long: list[int]) -> bool:
    return any(
        guest.job_id in long and fleet.books.slots[guest.uid].intended_job not in (None, *long)
        for guest in running(fleet)
    )


def _hung(fleet: Fleet) -> list[GuestView]:
    return [guest for guest in fleet.guests.values() if guest.state == "hung"]


async def _remove_by_force(fleet: Fleet, guest: GuestView) -> None:
    fleet.tell(f"{guest.pod} is removed by force")
    fleet.hosts[guest.host].process.crash()
    await fleet.admin.delete(PODS, guest.pod, namespace=SPACE, grace=0)
    body: dict[str, object] = {"metadata": {"finalizers": []}}
    await fleet.admin.patch(PODS, guest.pod, body, namespace=SPACE)


SCENARIOS = (
    Scenario(
        name="job-code-asks-for-more",
        tells="a job polls with its machine's token while another tenant's jobs wait",
        shapes=two_tenants,
        play=job_code_asks_for_more,
        without=(Without(guard="one_job_a_pod", fails="from 'executing' to 'idle'"),),
    ),
    Scenario(
        name="reaper-meets-a-working-runner",
        tells="the row of a runner that works is lost, and its Pod looks leaked",
        shapes=one_host,
        play=reaper_meets_a_working_runner,
        without=(Without(guard="busy_is_heard", fails="while it was working"),),
    ),
    Scenario(
        name="runner-takes-another-job",
        tells="GitHub gives runners other jobs than those that they were minted for",
        shapes=room_for_one,
        play=runner_takes_another_job,
        without=(Without(guard="requeue_displaced", fails="without excuse while"),),
    ),
    Scenario(
        name="another-jobs-end-frees-nobody",
        tells="runners have swapped their jobs, and an end is heard of before the starts",
        shapes=unaudited,
        play=another_jobs_end_frees_nobody,
        without=(Without(guard="end_by_runner", fails="while it was working"),),
    ),
    Scenario(
        name="claim-of-a-pod-that-vanished",
        tells="a Pod is removed by force before its runner registered, and nobody reports it",
        shapes=two_tenants,
        play=claim_of_a_pod_that_vanished,
        without=(Without(guard="deadline_closed", fails="the job runs elsewhere: not within"),),
    ),
)
