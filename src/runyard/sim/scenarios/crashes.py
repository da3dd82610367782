"""Kills a component at every effect of one life: no crash point may be safe only by luck.

A run with a crash at one number is one fleet; the scenario is as many fleets as there are numbers. The number
counts from the start of the life in question, so it means the same in each of them.
"""

import msgspec

from runyard.sim.fleet import Fleet
from runyard.sim.process import Process
from runyard.sim.scenarios.acts import at_rest, over, queue, until, warm
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.pods import POOL, QUICK, RICH
from runyard.sim.shape import Shape

BASE = Shape(hosts=1, pools=(POOL,), tenants=(RICH,), machine=QUICK, replicas=2)
AGENT_EFFECTS = 45  # of one Pod's life, from its creation to its end, with the heartbeats between
SERVER_EFFECTS = 40  # of one dispatch, from the webhook to the job's end
BOUND = 900.0


def agent_shapes(seed: int) -> tuple[Shape, ...]:
    """One fleet for each effect, before and after."""
    return _numbered(seed, AGENT_EFFECTS)


def server_shapes(seed: int) -> tuple[Shape, ...]:
    """The same for the server."""
    return _numbered(seed, SERVER_EFFECTS)


async def agent_crash_at_every_effect(fleet: Fleet) -> None:
    """One job ends one Pod's life and starts another's; the agent dies somewhere in between."""
    await warm(fleet)
    jobs = queue(fleet, 1, duration=30.0)
    _arm(fleet, next(iter(fleet.hosts.values())).process)
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=BOUND)
    await at_rest(fleet, within=1800.0)


async def server_crash_at_every_effect(fleet: Fleet) -> None:
    """A job is queued, and the server that is to dispatch it dies at some point of the dispatch."""
    await warm(fleet)
    for replica in fleet.replicas[1:]:
        replica.process.crash()  # one replica does it all, while the other restarts
    await fleet.clock.sleep(4.0)  # by then no balancer sends anything to the dead one
    _arm(fleet, fleet.replicas[0].process)
    jobs = queue(fleet, 1, duration=30.0)
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=BOUND)
    await at_rest(fleet, within=2400.0)


def _numbered(seed: int, effects: int) -> tuple[Shape, ...]:
    # The number of the crash is part of the run's description, through the seed: even ones are "before".
    return tuple(
        msgspec.structs.replace(BASE, seed=seed * 10_000 + number)
        for number in range(2, 2 * effects + 2)
    )


def _arm(fleet: Fleet, process: Process) -> None:
    number, after = divmod(fleet.shape.seed % 10_000, 2)
    when = "after" if after else "before"
    fleet.report(f"{process.name} dies {when} effect {number}")
    process.crash_at(process.effects + number, when="after" if after else "before")
