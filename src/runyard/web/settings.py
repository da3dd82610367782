"""Settings of the dashboard. Times are in seconds."""

import msgspec

from runyard.wire.names import RUNNERS_NAMESPACE


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the dashboard, its REST routes and `explain`.

    `listen` is the server's listening address: on loopback the Host header is checked, and the metrics are open.
    `names` are further values of the Host header that are accepted there.
    """

    listen: str = "127.0.0.1"
    token: str = ""  # required; the default is refused
    metrics_token: str = ""  # reads the metrics and nothing else; empty: there is none
    names: tuple[str, ...] = ()
    secure: bool = False  # served over TLS: sets the cookie's Secure flag
    session: float = 7 * 86400.0
    namespace: str = RUNNERS_NAMESPACE
    github: str = ""  # address of GitHub's pages, for links to runs; empty: no links

    every: float = 1.0  # shortest time between two updates, for all viewers together
    patience: float = 1.5  # longest wait of a request for a fresh snapshot
    rows_within: float = 3.0
    cluster_every: float = 2.0
    cluster_within: float = 5.0
    heartbeat_late: float = 40.0  # as in Kubernetes: four missed renewals of a lease
    sweep_late: float = 60.0
    match_within: float = 15.0  # a job that waits longer beside a fitting idle runner is reported

    jobs_shown: int = 50
    holds_counted: int = 10000  # waiting jobs whose reasons are counted for the summary
    runners_shown: int = 100
    hosts_shown: int = 100
    recoveries_shown: int = 25
    log_window: int = 5000  # number of the log's last entries that are searched for recoveries
    slots_read: int = 10000
