"""Incidents about claims: a claim and its runner disagreed."""

from functools import partial

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
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import GRACE, POOL, QUICK, RECOVER_EVERY, RICH, TEARDOWN
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import Shape, TenantShape
from runyard.sim.violations import Violated
from runyard.wire import names
from runyard.wire.paths import DISPATCH

BIRCH = TenantShape(name="birch", repositories=("shop",), vcpus=400, memory_gb=800, share=1.0)
ONE = TenantShape(name="acme", repositories=("app",), vcpus=4, memory_gb=7, share=1.0)
MINUTE = 60.0
LONG = 17 * MINUTE  # longer than a slot may be draining
_ROUNDS = 6  # until runners have swapped their jobs, which is chance


def two_tenants(seed: int) -> tuple[Shape, ...]:
    """Two hosts, four runners, two tenants."""
    return (Shape(seed=seed, hosts=2, pools=(POOL,), tenants=(RICH, BIRCH), machine=QUICK),)


def unaudited(seed: int) -> tuple[Shape, ...]:
    """The same without the audit, which would repair lost in_progress events before they do damage."""
    (shape,) = two_tenants(seed)
    return (msgspec.structs.replace(shape, off=("loop_delivery_audit",)),)


def three_hosts(seed: int) -> tuple[Shape, ...]:
    """Three hosts, six runners."""
    return (Shape(seed=seed, hosts=3, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


def one_host(seed: int) -> tuple[Shape, ...]:
    """One host, two runners."""
    return (Shape(seed=seed, hosts=1, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


def budget_for_one(seed: int) -> tuple[Shape, ...]:
    """Four runners, and a tenant that may have one at a time."""
    return (Shape(seed=seed, hosts=2, pools=(POOL,), tenants=(ONE,), machine=QUICK),)


async def job_code_asks_for_more(fleet: Fleet) -> None:
    """A job polls with its Pod's token, while another tenant's jobs wait for a runner."""
    await warm(fleet)
    jobs = queue(fleet, 1, duration=90.0)
    await until(fleet, Expectation.IT_RUNS, lambda: len(running(fleet)) == 1, within=MINUTE)
    (guest,) = running(fleet)
    token = next(token for token, each in fleet.pollers.items() if each is guest)
    others = queue(fleet, 8, tenant="birch")
    answers: list[int] = []
    while not over(fleet, jobs) or len(answers) < 12:
        answers.append(await _ask(fleet, guest.host, token))
        await fleet.clock.sleep(5.0)
    answered = sorted(dict.fromkeys(answers))
    expect(Expectation.NO_SECOND_RUNNER, not {200, 204} & {*answered}, found=answered)
    expect(Expectation.ANSWERED_GONE, 410 in answered, found=answered)
    await until(fleet, Expectation.THE_OTHERS_RUN, lambda: over(fleet, others), within=10 * MINUTE)
    await at_rest(fleet)


async def reaper_meets_a_working_runner(fleet: Fleet) -> None:
    """The row of a working runner is lost, so its Pod is stamped and has no claim.

    A reaper that trusted the missing row deleted such Pods in the middle of their jobs. GitHub is asked first.
    """
    await warm(fleet)
    await fleet.clock.sleep(GRACE)  # older than any grace for young ones
    jobs = queue(fleet, 1, duration=4 * MINUTE)
    await until(fleet, Expectation.IT_RUNS, lambda: len(running(fleet)) == 1, within=MINUTE)
    (guest,) = running(fleet)
    fleet.report(f"the row of {guest.pod} is lost")
    fleet.ledger.lose(guest.uid)
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=5 * MINUTE)
    await at_rest(fleet)
    expect(Expectation.EXECUTED_ONCE, fleet.github.jobs()[jobs[0]].executions == 1)


async def stamp_of_an_unknown_owner(fleet: Fleet) -> None:
    """Two Pods carry the stamp of an owner that no tenant matches: one hangs, the other one executes a job.

    Nobody could say where to look for their runners, so such Pods stayed for ever. Now every scope is searched.
    """
    await warm(fleet)
    await fleet.clock.sleep(GRACE)  # older than any grace for young ones
    jobs = queue(fleet, 1, duration=12 * MINUTE)
    await until(fleet, Expectation.IT_RUNS, lambda: len(running(fleet)) == 1, within=MINUTE)
    (busy,) = running(fleet)
    fleet.break_next("hang-before-jit")
    await until(fleet, Expectation.ONE_HANGS, lambda: bool(_hung(fleet)), within=MINUTE)
    (hung,) = _hung(fleet)
    for guest in (busy, hung):
        body = {"metadata": {"labels": {names.POOL_OWNER: "nobody-we-know"}}}
        await fleet.admin.patch(PODS, guest.pod, body, namespace=SPACE)
        fleet.ledger.lose(guest.uid)
    fleet.report(f"nobody knows the owner of {busy.pod} and {hung.pod}")
    took = await until(
        fleet,
        Expectation.THE_LEAK_IS_GONE,
        lambda: fleet.kube.find("pods", SPACE, hung.pod) is None,
        within=2 * RECOVER_EVERY + TEARDOWN,
    )
    fleet.report(f"reaped within {took:.0f} s")
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=13 * MINUTE)
    expect(Expectation.EXECUTED_ONCE, fleet.github.jobs()[jobs[0]].executions == 1)
    await at_rest(fleet)


async def runner_takes_another_job(fleet: Fleet) -> None:
    """GitHub gives a runner any job with its labels: the one that it was minted for is requeued.

    In the incident a displaced job stayed in the state "bound", and was never offered again.
    """
    await warm(fleet)
    jobs = queue(fleet, 9, duration=30.0)
    await until(fleet, Expectation.ALL_RUN, lambda: over(fleet, jobs), within=20 * MINUTE)
    displaced = fleet.ledger.counts.get("bound→queued", 0)
    expect(Expectation.SOME_WERE_DISPLACED, displaced > 0)
    fleet.report(f"{displaced} jobs were displaced")
    await at_rest(fleet)
    executions = [fleet.github.jobs()[job].executions for job in jobs]
    expect(Expectation.EACH_WAS_EXECUTED_ONCE, executions == [1] * len(jobs), found=executions)


async def another_jobs_end_frees_no_runner(fleet: Fleet) -> None:
    """Runners have swapped their jobs, and their starts are unknown when the first ends arrive.

    In the incident the completed event freed the runner that the job was intended for, which was busy.
    """
    await warm(fleet)
    fleet.report("starts are lost")
    fleet.lose_webhook = lambda delivery: delivery.action == "in_progress"
    short: list[int] = []
    long: list[int] = []
    for _ in range(_ROUNDS):
        jobs = [queue(fleet, 1, duration=30.0 if at % 2 else LONG)[0] for at in range(4)]
        short, long = jobs[1::2], jobs[0::2]
        await until(fleet, Expectation.ALL_RUN, lambda: len(running(fleet)) == 4, within=MINUTE)
        if _swapped(fleet, long):
            break
        ended = partial(over, fleet, jobs)
        await until(fleet, Expectation.THE_LONG_ONES_END_WELL, ended, within=LONG + MINUTE)
        await warm(fleet)
    expect(Expectation.LONG_ONE_SWAPPED, _swapped(fleet, long))
    await until(fleet, Expectation.THE_SHORT_ONES_END, lambda: over(fleet, short), within=MINUTE)
    await fleet.clock.sleep(30.0)
    fleet.lose_webhook = None
    await until(fleet, Expectation.THE_LONG_ONES_END_WELL, lambda: over(fleet, long), within=LONG)
    await at_rest(fleet)


async def claim_of_a_pod_that_vanished(fleet: Fleet) -> None:
    """A Pod is removed by force while its runner is about to register, and its stop is not reported.

    In the incident two sweeps searched for such claims by different keys, and each missed the other's for ten days.
    """
    await warm(fleet)
    fleet.ignore_stop_reports = True
    fleet.break_next("hang-with-jit")
    jobs = queue(fleet, 1, duration=30.0)
    await until(fleet, Expectation.IT_HANGS, lambda: bool(_hung(fleet)), within=MINUTE)
    (guest,) = _hung(fleet)
    await _remove_by_force(fleet, guest)
    took = await until(
        fleet, Expectation.THE_JOB_RUNS_ELSEWHERE, lambda: over(fleet, jobs), within=150.0
    )
    fleet.report(f"its job was over {took:.0f} s later")
    fleet.ignore_stop_reports = False
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
        guest.job_id in long and fleet.ledger.slots[guest.uid].intended_job not in (None, *long)
        for guest in running(fleet)
    )


def _hung(fleet: Fleet) -> list[GuestView]:
    return [guest for guest in fleet.guests.values() if guest.state == "hung"]


async def _remove_by_force(fleet: Fleet, guest: GuestView) -> None:
    fleet.report(f"{guest.pod} is removed by force")
    fleet.hosts[guest.host].process.crash()
    await fleet.admin.delete(PODS, guest.pod, namespace=SPACE, grace=0)
    body: dict[str, object] = {"metadata": {"finalizers": []}}
    await fleet.admin.patch(PODS, guest.pod, body, namespace=SPACE)


SCENARIOS = (
    Scenario(
        name="job-code-asks-for-more",
        summary="a job uses its Pod's token to poll for another job, while another tenant's jobs wait",
        shapes=two_tenants,
        play=job_code_asks_for_more,
        without=(
            Without(
                guard="one_job_a_pod",
                fails=Violated.ILLEGAL_TRANSITION,
                detail=(("source", "executing"), ("target", "idle")),
            ),
        ),
    ),
    Scenario(
        name="reaper-meets-a-working-runner",
        summary="the slot of a busy runner is lost, so that its Pod looks leaked",
        shapes=one_host,
        play=reaper_meets_a_working_runner,
        without=(Without(guard="busy_answer_counts", fails=Violated.BUSY_POD_DELETED),),
    ),
    Scenario(
        name="stamp-of-an-unknown-owner",
        summary="two Pods carry the stamp of an owner that no tenant matches; one of them executes a job",
        shapes=one_host,
        play=stamp_of_an_unknown_owner,
        without=(
            Without(guard="orphaned_stamped_pods", fails=Expectation.THE_LEAK_IS_GONE),
            Without(guard="busy_answer_counts", fails=Violated.BUSY_POD_DELETED),
        ),
    ),
    Scenario(
        name="runner-takes-another-job",
        summary="GitHub assigns runners other jobs than the intended ones",
        shapes=budget_for_one,
        play=runner_takes_another_job,
        without=(Without(guard="requeue_displaced", fails=Violated.JOB_WAITS_UNEXCUSED),),
    ),
    Scenario(
        name="another-jobs-end-frees-no-runner",
        summary="two runners execute each other's job, and a completed event arrives before both in_progress events",
        shapes=unaudited,
        play=another_jobs_end_frees_no_runner,
        without=(Without(guard="end_by_runner", fails=Violated.BUSY_POD_DELETED),),
    ),
    Scenario(
        name="claim-of-a-pod-that-vanished",
        summary="a Pod is force-deleted before its runner registers, and its stop is not reported",
        shapes=two_tenants,
        play=claim_of_a_pod_that_vanished,
        without=(Without(guard="deadline_closed", fails=Expectation.THE_JOB_RUNS_ELSEWHERE),),
    ),
)
