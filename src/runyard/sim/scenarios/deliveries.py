"""Incidents in which GitHub's deliveries do not arrive: by webhook, and where webhooks cannot arrive at all."""

from functools import partial

import msgspec

from runyard.sim.fleet import Fleet
from runyard.sim.network import Link
from runyard.sim.scenarios.acts import at_rest, counted, expect, over, queue, until, warm
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.outages import HOUR, MINUTE, shapes
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.shape import Shape
from runyard.sim.violations import Violated
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

PULLED_WITHIN = 15.0  # a pull, a match, a mint, a start
SOON = 5 * MINUTE


def pulling(seed: int) -> tuple[Shape, ...]:
    """The same fleet, which polls GitHub's log of deliveries."""
    return tuple(msgspec.structs.replace(shape, intake="pull") for shape in shapes(seed))


async def webhooks_down_for_an_hour(fleet: Fleet) -> None:
    """Webhooks are dropped, doubled and overtaken, then refused for an hour, then as before: every job runs, once."""
    await warm(fleet)
    jobs: list[int] = []
    _unreliable(fleet.webhook_links)
    await _push(fleet, jobs, lasting=10 * MINUTE)
    fleet.report("the endpoint is down")
    for link in fleet.webhook_links:
        link.down = True
    await _push(fleet, jobs, lasting=HOUR)
    for link in fleet.webhook_links:
        link.down = False
    await _push(fleet, jobs, lasting=10 * MINUTE)
    await at_rest(fleet)
    made_up = counted(fleet, TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
    expect(Expectation.LOST_DELIVERIES_MADE_UP, made_up >= 12, found=made_up)
    _each_once(fleet, jobs)


async def no_address_for_webhooks(fleet: Fleet) -> None:
    """No webhook ever arrives: GitHub's log is polled every few seconds, also while replicas die and take over."""
    for link in fleet.webhook_links:
        link.down = True
    await warm(fleet)
    jobs: list[int] = []
    for _ in range(6):
        await fleet.clock.sleep(
            7.0
        )  # at many moments between two audits, which would find them too, but later
        pushed = queue(fleet, 2)
        jobs += pushed
        began = partial(_begun, fleet, pushed)
        await until(fleet, Expectation.THEY_ARE_PULLED, began, within=PULLED_WITHIN)
        await until(fleet, Expectation.THEY_RUN, partial(over, fleet, pushed), within=SOON)
    fleet.report("the replica that polls is killed")
    for replica in fleet.replicas:
        replica.process.crash()
    pushed = queue(fleet, 2)
    jobs += pushed
    await until(fleet, Expectation.THEY_RUN, partial(over, fleet, pushed), within=SOON)
    await at_rest(fleet)
    _each_once(fleet, jobs)


async def _push(fleet: Fleet, jobs: list[int], *, lasting: float) -> None:
    """Queues two jobs every five minutes; all of them run."""
    for _ in range(int(lasting / SOON)):
        pushed = queue(fleet, 2)
        jobs += pushed
        took = await until(fleet, Expectation.THEY_RUN, partial(over, fleet, pushed), within=400.0)
        await fleet.clock.sleep(max(0.0, SOON - took))


def _unreliable(links: list[Link]) -> None:
    for link in links:
        link.faults = msgspec.structs.replace(
            link.faults,
            drop_request=0.3,
            drop_response=0.1,
            duplicate=0.2,
            delay=0.3,
            delay_up_to=60.0,
        )


def _begun(fleet: Fleet, jobs: list[int]) -> bool:
    return all(fleet.github.jobs()[job].status != "queued" for job in jobs)


def _each_once(fleet: Fleet, jobs: list[int]) -> None:
    often = [fleet.github.jobs()[job].executions for job in jobs]
    expect(Expectation.EACH_JOB_RAN_ONCE, set(often) == {1}, found=often)


SCENARIOS = (
    Scenario(
        name="webhooks-down-for-an-hour",
        summary="webhooks are dropped, duplicated and reordered, and refused for an hour",
        shapes=shapes,
        play=webhooks_down_for_an_hour,
        without=(Without(guard="loop_delivery_audit", fails=Violated.JOB_WAITS_UNEXCUSED),),
        long=True,
    ),
    Scenario(
        name="no-address-for-webhooks",
        summary="no webhook can ever arrive",
        shapes=pulling,
        play=no_address_for_webhooks,
        without=(Without(guard="loop_delivery_pull", fails=Expectation.THEY_ARE_PULLED),),
    ),
)
