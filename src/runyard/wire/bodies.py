"""Bodies of the dispatch server's API. Refusals look as everywhere: `http.problems`."""

import msgspec


class Dispatched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """200 to a poll: run this."""

    encoded_jit_config: str
    owner: str
    workflow_job_id: int
    cache_endpoint_url: str = ""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """410 to a poll: exit and be replaced."""

    error: str = "drain"
    reason: str


class PodStopped(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool operator reports before it deletes a Pod."""

    pod_name: str
    ended_at: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """200 to a webhook: what came of it."""

    outcome: str


class ScalingSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What the autoscaler asks about one pool."""

    fleet: str
    claimed: int
    occupied: int
    queued: int
    withheld: int
    p95_concurrent_last_hour: int = 0
