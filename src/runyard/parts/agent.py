"""The node agent as a part: everything that it is given, and how that becomes a running agent."""

import random
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.node.agent import Agent
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmDriver
from runyard.wire import names


class AgentDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What one host's agent needs of the world."""

    clock: Clock
    rng: random.Random
    kube: Transport
    driver: VmDriver
    records: Records
    meter: Meter
    log: Logger
    settings: Settings
    token: Callable[[], str] = lambda: ""
    freshness: Freshness | None = None  # told when each loop last succeeded


async def run(deps: AgentDeps) -> None:
    """Serve one host until cancelled."""
    agent = Agent(
        kube=Kube(deps.kube, agent=names.NODE_AGENT, token=deps.token),
        driver=deps.driver,
        records=deps.records,
        clock=deps.clock,
        rng=deps.rng,
        meter=deps.meter,
        log=deps.log,
        settings=deps.settings,
        freshness=deps.freshness,
    )
    await agent.run()
