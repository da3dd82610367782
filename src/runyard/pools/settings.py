"""The settings of the pool operator. Settings of one pool are in its spec."""

import msgspec

from runyard.wire import names


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the pool operator; durations are seconds."""

    namespace: str = names.RUNNERS_NAMESPACE
    dispatch_url: str = ""
    dispatch_internal_url: str = ""
    """For Linux Pods, which can reach the server inside of the cluster; empty means the same URL."""
    cluster_dns_ip: str = ""
    cluster_domain: str = "cluster.local"

    darwin_start_seconds: float = 1800.0
    """A macOS start may pull tens of gigabytes: its deadline is never shorter than this."""
    drain_seconds: float = 300.0
    """A marked idle runner that has not left by then does not poll any more; it is reaped."""
    orphan_grace_seconds: float = 120.0
    """How old a ServiceAccount without a Pod must be before it counts as left behind."""
    stuck_seconds: float = 300.0
    """Beyond the grace period: a deletion that lasts longer is stuck."""
    expectation_seconds: float = 30.0
    """After this long a creation that the watch does not show is read from the API."""

    early_seconds: float = 60.0
    """A runner that fails sooner than this, without a job, did not fail because of a job."""
    backoff_seconds: tuple[float, float] = (5.0, 300.0)
    """How long creations pause after a failure: at first, and at most after many in a row."""

    action_seconds: float = 30.0
    report_seconds: float = 5.0
    reconcile_seconds: float = 300.0
    actions_per_reconcile: int = 200
    event_seconds: float = 10.0
    """An event of a pool that repeats is written at most this often, with the number of repetitions."""
    steady_seconds: float = 60.0
    gap_seconds: float = 5.0
    error_seconds: float = 30.0
