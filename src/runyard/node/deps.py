"""The dependencies of the agent's loops."""

import random

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmDriver, VmError

# Dependency errors, which a loop counts and survives. `OSError` includes TimeoutError.
DEPENDENCY_ERRORS: tuple[type[Exception], ...] = (VmError, KubeError, TransportError, OSError)


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of one agent; built once and passed on."""

    kube: Kube
    driver: VmDriver
    records: Records
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    health: Health
    """The agent's health conditions, its own and those of its dependencies."""
    freshness: Freshness
    """Records when each loop last succeeded."""
