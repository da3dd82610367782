"""Incidents about messages: late, repeated, or lost."""

from functools import partial

import msgspec

from runyard.embedded.github.deliveries import Delivery
from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import at_rest, expect, fault, over, queue, until, warm
from runyard.sim.scenarios.claims import one_host, three_hosts
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.violations import Violated

MINUTE = 60.0
AT_ONCE = 1.0


async def webhooks_while_all_else_is_slow(fleet: Fleet) -> None:
    """Kubernetes takes twenty seconds to respond and GitHub does not respond, while twenty jobs are queued.

    A server that sends other requests before it answers a webhook loses deliveries, because GitHub waits ten seconds.
    """
    await warm(fleet)
    kube = [
        link
        for link in fleet.links
        if link.name.startswith("server") and link.name.endswith(">kube")
    ]
    known = len(fleet.github.attempts())
    with fault(fleet, "slow-backends"):
        layer = fleet.fault_layers.begin(kube, {"latency": (10.0, 10.0)})
        fleet.github.faults.outage = True
        jobs = []
        for _ in range(20):
            jobs += queue(fleet, 1, duration=30.0)
            await fleet.clock.sleep(AT_ONCE)
        await fleet.clock.sleep(15.0)
        fresh = fleet.github.attempts()[known:]
        late = [each for each in fresh if each.status_code != 200 or each.duration > AT_ONCE]
        expect(Expectation.DELIVERIES_ANSWERED_AT_ONCE, fresh and not late, found=len(late))
        fleet.fault_layers.end(layer)
        fleet.github.faults.outage = False
    await until(fleet, Expectation.THEY_RUN, lambda: over(fleet, jobs), within=15 * MINUTE)
    await at_rest(fleet)


async def stop_reports_lost(fleet: Fleet) -> None:
    """The operator's reports of ended Pods are acknowledged and lost.

    In the incident their slots were not closed, and each counted as an occupied VM slot for six hours.
    """
    await warm(fleet)
    fleet.ignore_stop_reports = True
    for duration in (30.0, 37.0, 44.0):  # an end may come just before the sweep that finds it
        jobs = queue(fleet, 2, duration=duration)
        ended = partial(over, fleet, jobs)
        await until(fleet, Expectation.THEY_RUN, ended, within=2 * MINUTE)
        took = await until(
            fleet, Expectation.EVERY_CLAIM_IS_GIVEN_BACK, lambda: not _claims(fleet), within=150.0
        )
        fleet.report(f"given back {took:.0f} s after the last end")
    fleet.ignore_stop_reports = False
    await at_rest(fleet)


async def old_event_about_a_finished_job(fleet: Fleet) -> None:
    """Hours after a job its start is delivered once more, as new.

    In the incident an old row was copied as a new one; 1,249 finished jobs stayed open and alerted for their age.
    """
    await warm(fleet)
    jobs = queue(fleet, 2, duration=30.0)
    await until(fleet, Expectation.THEY_RUN, lambda: over(fleet, jobs), within=2 * MINUTE)
    await at_rest(fleet)
    for number, attempt in enumerate(fleet.github.attempts()):
        if attempt.delivery.action != "completed":
            status = await fleet.deliver(_as_news(attempt.delivery, number))
            expect(Expectation.IT_IS_ACCEPTED, status == 200, found=status)
    await fleet.clock.sleep(2 * MINUTE)
    states = [fleet.ledger.jobs()[job]["state"] for job in jobs]
    expect(Expectation.WHAT_IS_OVER_STAYS_OVER, states == ["done"] * len(jobs), found=states)
    await at_rest(fleet)


def _claims(fleet: Fleet) -> list[str]:
    return [slot.pod_name for slot in fleet.ledger.slots.values() if slot.claims]


def _as_news(delivery: Delivery, number: int) -> Delivery:
    guid = f"00000000-0000-4000-8000-{number:012d}"
    headers = tuple(
        (name, guid if name == "x-github-delivery" else value) for name, value in delivery.headers
    )
    return msgspec.structs.replace(delivery, guid=guid, headers=headers)


SCENARIOS = (
    Scenario(
        name="webhooks-while-all-else-is-slow",
        summary="jobs are queued while Kubernetes is slow and GitHub's API is unavailable",
        shapes=three_hosts,
        play=webhooks_while_all_else_is_slow,
        without=(
            Without(guard="webhooks_answered_first", fails=Expectation.DELIVERIES_ANSWERED_AT_ONCE),
        ),
    ),
    Scenario(
        name="stop-reports-lost",
        summary="every stop report of the operator is ignored",
        shapes=one_host,
        play=stop_reports_lost,
        without=(Without(guard="pods_against_slots", fails=Expectation.EVERY_CLAIM_IS_GIVEN_BACK),),
    ),
    Scenario(
        name="old-event-about-a-finished-job",
        summary="in_progress events of finished jobs are delivered again, as new deliveries",
        shapes=one_host,
        play=old_event_about_a_finished_job,
        without=(
            Without(
                guard="done_stays_done",
                fails=Violated.ILLEGAL_TRANSITION,
                detail=(("source", "done"), ("target", "running")),
            ),
        ),
    ),
)
