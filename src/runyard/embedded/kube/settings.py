"""The settings of the embedded Kubernetes API, for tests, the simulator and operators.

The defaults are those of a stock cluster wherever a stock cluster has one. Two are explained here:
`pod_gc_after` is off, because an unreachable node may still be running its VMs, and
`gone_in_stream` is on, as in a stock server.
"""

import msgspec

from runyard.wire import names


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything tunable, in seconds or counts."""

    tick: float = 5.0  # how often the controllers check the time
    node_grace: float = 40.0  # after this time without a heartbeat a node is Unknown
    node_startup: float = 60.0  # the same for a node that has never posted its status
    pod_eviction: float = 300.0  # the default toleration of Pods for a lost node
    pod_gc_after: float | None = None  # not ready for so long: its Pods are removed by force
    orphan_quarantine: float = 40.0  # a Pod's Node is deleted for so long: the Pod is removed
    event_ttl: float = 3600.0  # how long an Event object lives
    history: int = 5000  # writes per kind that a watch may resume from
    watch_buffer: int = 1000  # undelivered events before a slow watcher is cut
    watch_seconds: tuple[float, float] = (1800.0, 3600.0)  # lifetime of a watch that names none
    bookmark_every: float = 60.0
    gone_in_stream: bool = True  # too old: an ERROR event in a 200 stream, else HTTP 410
    schedule: bool = True  # whether the scheduler binds Pods
    body_limit: int = 3 * 1024 * 1024
    namespaces: tuple[str, ...] = (
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        names.CONTROLLER_NAMESPACE,
        names.RUNNERS_NAMESPACE,
    )
