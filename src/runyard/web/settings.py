"""How the dashboard is set up. Times are in seconds."""

import msgspec

from runyard.wire.names import RUNNERS_NAMESPACE


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the dashboard may be told.

    `listen` is the address that the server was told to listen on: it alone decides who may look without a
    token. `names` are further host names under which the dashboard may be asked for on loopback.
    """

    listen: str = "127.0.0.1"
    token: str = ""  # needed as soon as `listen` is not loopback
    names: tuple[str, ...] = ()
    secure: bool = False  # reached over TLS: the cookie is never sent without it
    session: float = 7 * 86400.0
    namespace: str = RUNNERS_NAMESPACE

    every: float = 1.0  # for all viewers together
    patience: float = 1.5  # how long a request waits for a fresh reading
    rows_within: float = 3.0
    cluster_every: float = 2.0
    cluster_within: float = 5.0
    heartbeat_late: float = 40.0  # as Kubernetes: four missed beats of a lease
    sweep_late: float = 60.0
    silent_after: float = 90.0  # a waiting runner that has not asked for so long
    match_within: float = 15.0  # a job beside a fitting idle runner is matched long before

    jobs_shown: int = 50
    runners_shown: int = 100
    hosts_shown: int = 100
    healed_shown: int = 25
    log_window: int = 5000  # so many of the log's last entries are looked through
    slots_read: int = 10000
