"""The fleet's state at one moment, as read from Postgres, Kubernetes and this process."""

import msgspec

from runyard.web.cluster import Cluster
from runyard.web.records import Records
from runyard.web.values import Alarm, Source
from runyard.wire.restarts import Restart


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The latest results of both sources, the alarms, and the restarts of components, oldest first.

    A result is None until its first read has succeeded.
    """

    at: float
    postgres: Source
    kubernetes: Source
    records: Records | None = None
    cluster: Cluster | None = None
    alarms: tuple[Alarm, ...] = ()
    restarts: tuple[Restart, ...] = ()
