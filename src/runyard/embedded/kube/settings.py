"""The numbers of the embedded Kubernetes API that a test, the simulator or an operator may turn.

The defaults are those of a stock cluster wherever a stock cluster has one. Two are deliberate:
`pod_gc_after` is off, because a node that nobody can reach may still be running its VMs, and
`gone_in_stream` is on, because that is how a stock server tells a watcher that it is too late.
"""

import msgspec

from runyard.wire import names


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything tunable, in seconds or counts."""

    tick: float = 5.0  # how often the controllers look at clocks
    node_grace: float = 40.0  # silence of a node before it is Unknown
    node_startup: float = 60.0  # the same for a node that has never said how it is
    pod_eviction: float = 300.0  # lost for so long: Pods that say nothing else are asked to go
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
