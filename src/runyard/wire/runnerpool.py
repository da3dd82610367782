"""The RunnerPool custom resource, for reading.

For writing, a component sends patches of the fields it owns and nothing else: a struct with defaults would write
back fields that a chart owns, or drop an explicit zero. A test compares these structs, the patches and the definition
in `deploy/crds`, field by field.
"""

from typing import Literal

import msgspec

from runyard.wire import names


class Autoscaling(msgspec.Struct, frozen=True, rename="camel"):
    """When and how far the autoscaler may change `replicas`."""

    enabled: bool = False
    min_warm_pool_floor: int = 1
    max_replicas: int = 0
    scale_down_cooldown_seconds: int = 300


class Provisioning(msgspec.Struct, frozen=True, rename="camel"):
    """How many Pods may start at once, and how long a start may take."""

    max_concurrent_per_fleet_selector: int = 4
    start_timeout_seconds: int = 300


class Rollout(msgspec.Struct, frozen=True, rename="camel"):
    """How much of a pool an image roll may make unavailable at a time."""

    max_concurrent_percent: int = 5


class PoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The desired state of a pool."""

    image: str
    fleet_selector: str
    dispatch_label: str
    runner_labels: tuple[str, ...]
    labels: tuple[str, ...] = ()
    replicas: int = 0
    os: Literal["darwin", "linux"] = "darwin"
    pod_cpu_milli: int = msgspec.field(default=8000, name="podCPUMilli")
    pod_memory_mb: int = msgspec.field(default=14336, name="podMemoryMB")
    runtime_class: str = ""
    idle_timeout_seconds: int = 0
    provisioning: Provisioning = Provisioning()
    autoscaling: Autoscaling = Autoscaling()
    rollout: Rollout = Rollout()

    @property
    def agent_runtime(self) -> str:
        """The runtime of the hosts whose agent runs these Pods as VMs; empty: a stock kubelet runs them."""
        if self.runtime_class.startswith(names.RUNTIME_CLASS_PREFIX):
            return self.runtime_class.removeprefix(names.RUNTIME_CLASS_PREFIX)
        return names.NODE_RUNTIME_TART if self.os == "darwin" else ""


class PoolCondition(msgspec.Struct, frozen=True, rename="camel"):
    """One condition of a pool, with the operator's reason and its numbers."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    numbers: dict[str, float] = {}


class PoolStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the operator last observed."""

    observed_replicas: int = 0
    last_reconcile: str = ""
    last_scale_down_at: str | None = None
    observed_image: str = ""
    image_rolled_at: str = ""
    conditions: tuple[PoolCondition, ...] = ()
