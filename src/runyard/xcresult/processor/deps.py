"""The dependencies of a processor of test results."""

import random

import msgspec

from runyard.blobs.contract import Blobs
from runyard.clock import Clock
from runyard.db.contract import Database
from runyard.db.pooled import PooledDatabase
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.settings import Settings


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of one processor; built once and passed on."""

    name: str
    database: Database
    results: Database
    """Writes results: a pool with a longer deadline, and separate, so that heartbeats never wait behind results."""
    pools: tuple[PooledDatabase, ...] = ()
    """The pools whose connections are counted."""
    blobs: Blobs
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    health: Health
    """The conditions that the processor finds wrong, in itself and in what it calls."""
    freshness: Freshness
    """Records when each loop last succeeded."""
    finish_within: float = 25.0
    """Seconds that runs in progress get on shutdown; the others are given back."""
    trace: str = ""
