"""The pool operator as a part: everything that it is given, and how that becomes a running operator."""

import random
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.pools.operator import Operator
from runyard.pools.settings import Settings
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire import names


class OperatorDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator needs of the world; without a `server` it reports stops to nobody."""

    clock: Clock
    rng: random.Random
    kube: Transport
    server: Transport | None
    meter: Meter
    log: Logger
    settings: Settings
    token: Callable[[], str] = lambda: ""
    freshness: Freshness | None = None  # told when each loop last succeeded


async def run(deps: OperatorDeps) -> None:
    """Keep every pool as it asks to be, until cancelled."""
    operator = Operator(
        kube=Kube(deps.kube, agent=names.CONTROLLER_ACCOUNT, token=deps.token),
        server=deps.server,
        clock=deps.clock,
        rng=deps.rng,
        meter=deps.meter,
        log=deps.log,
        settings=deps.settings,
        token=deps.token,
        freshness=deps.freshness,
    )
    await operator.run()
