"""Defines what the dispatch server depends on: clients, database, time, randomness, telemetry, settings, guards."""

import random

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database
from runyard.db.notices import Notices
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.settings import Settings
from runyard.github.app import Auth
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of one replica; built once and passed on."""

    name: str
    kube: Kube
    github: Transport
    auth: Auth
    """The credentials at GitHub."""
    database: Database
    clock: Clock
    rng: random.Random
    meter: Meter
    log: Logger
    settings: Settings
    health: Health
    """The conditions that the server finds wrong, in itself and in what it calls."""
    freshness: Freshness
    """Records when each loop last succeeded."""
    notices: Notices | None = None
    """Notifications between replicas; without them each replica polls the queue ten times a second."""
    guards: Guards = SHIPPED
    """Only the proof and its tests switch a guard off."""
