"""What is known of the fleet at one moment: two readings, either of which may be missing or old, and our own health."""

import msgspec

from runyard.web.cluster import Cluster
from runyard.web.records import Records
from runyard.web.values import Alarm, Source


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment. A reading of None has never succeeded."""

    at: float
    postgres: Source
    kubernetes: Source
    records: Records | None = None
    cluster: Cluster | None = None
    alarms: tuple[Alarm, ...] = ()
