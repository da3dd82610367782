"""What every loop of the agent is given."""

import random

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.node.settings import Settings
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmDriver, VmError

# The failures of the world outside, which a loop counts and survives. `OSError` includes TimeoutError.
OUTSIDE: tuple[type[Exception], ...] = (VmError, KubeError, TransportError, OSError)


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The hands and senses of one agent."""

    kube: Kube
    driver: VmDriver
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    freshness: Freshness | None = None  # told when each loop last succeeded
