"""Dependencies of the operator: clients, time, randomness, telemetry and settings."""

import random
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.pools.settings import Settings
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of one operator; built once and passed on."""

    kube: Kube
    server: Transport | None = None
    """The server that stopped runners are reported to; None: they are not reported."""
    token: Callable[[], str] = lambda: ""
    """The operator's credential at the server."""
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    health: Health
    """The operator's health conditions, its own and those of its dependencies."""
    freshness: Freshness
    """Records when each loop last succeeded."""
