"""Bodies of the dispatch server's API. Refusals have the body of `http.problems`."""

from enum import StrEnum

import msgspec


class Dispatched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """200 to a poll: run this."""

    encoded_jit_config: str
    owner: str
    workflow_job_id: int
    cache_endpoint_url: str = ""


class DrainReason(StrEnum):
    """Why a poll is answered with 410; existing pollers compare these texts."""

    OPERATOR = "operator drain"
    IMAGE_STALE = "image stale"
    COMMITTED = "pod already committed"


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """410 to a poll: exit and be replaced."""

    error: str = "drain"
    reason: DrainReason


class PodStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The pool operator's report before it deletes a Pod."""

    pod_name: str
    ended_at: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """200 to a webhook: its outcome."""

    outcome: str


class ScalingSignals(msgspec.Struct, frozen=True, kw_only=True):
    """200 to the autoscaler: the load of one pool."""

    fleet: str
    claimed: int
    occupied: int
    queued: int
    withheld: int
    p95_concurrent_last_hour: int = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of a guest's machine at one moment. macOS does not report I/O wait."""

    timestamp: str | int | float  # RFC 3339, or seconds since the epoch
    cpu_usage_percent: float
    memory_used_bytes: float
    memory_total_bytes: float
    network_bytes_in: float
    network_bytes_out: float
    disk_used_bytes: float
    disk_total_bytes: float
    cpu_iowait_percent: float = 0.0


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The periodic report of a guest that executes a job."""

    samples: tuple[Sample, ...]
