"""Defines the settings of the dispatch server; the defaults are for production."""

from typing import Literal

import msgspec

from runyard.dispatch.machine.table import ASKING_WITHIN, Deadlines
from runyard.dispatch.modes import Modes
from runyard.wire.names import CONTROLLER_ACCOUNT, CONTROLLER_NAMESPACE, RUNNERS_NAMESPACE


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's budget on one platform."""

    platform: str
    vcpus: int
    memory_gb: int


DEFAULT_LIMITS = (
    Limit(platform="linux", vcpus=32, memory_gb=64),
    Limit(platform="macos", vcpus=12, memory_gb=28),
)


_DAY = 86400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished rows are kept, in seconds, and how they are pruned."""

    jobs: float = 30 * _DAY
    slots: float = 30 * _DAY
    transitions: float = 30 * _DAY
    deliveries: float = 7 * _DAY
    samples: float = 90 * _DAY
    sightings: float = 30 * _DAY
    changes: float = 365 * _DAY  # the audit trail of tenants and jobs
    every: float = 600.0
    batch: int = 1000  # rows in one transaction
    within: float = 240.0  # of one step; what is left waits for the next

    def __post_init__(self) -> None:
        """Reject a retention of jobs that is shorter than that of their deliveries."""
        if self.jobs < self.deliveries:
            raise ValueError("jobs must be kept at least as long as deliveries")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a replica. Times are in seconds."""

    webhook_secrets: tuple[str, ...]  # several, for rotation
    seal_key: bytes  # 32 bytes; JITs at rest are sealed with it
    namespace: str = RUNNERS_NAMESPACE
    controller: tuple[str, str] = (CONTROLLER_NAMESPACE, CONTROLLER_ACCOUNT)
    deadlines: Deadlines = Deadlines()
    modes: Modes = Modes()  # of the reconcilers, by name
    retention: Retention = Retention()
    default_limits: tuple[Limit, ...] = DEFAULT_LIMITS

    poll_wait_default: float = 5.0  # a poller that sends no `Prefer: wait` gives up after 10 s
    poll_wait_max: float = 25.0
    asking_within: float = ASKING_WITHIN  # longer than `poll_wait_max`
    dropped_every: float = (
        5.0  # at once if a connection was cut; soon again if it could not be recorded
    )
    poll_parallel: int = 4  # polls that use the database at once; the others wait
    token_cache: float = 60.0
    mint_within: float = 6.0  # mint and stamp together; under the offered deadline
    clear_within: float = (
        1.5  # clearing a stamp after a failed mint; together still under the offered deadline
    )
    runner_group: int = 1  # of organisations' runners; a repository has one group only

    github_points: float = (
        900.0  # a minute, for each installation: GitHub's own; a read costs 1, a write 5
    )

    match_every: float = 0.1
    match_waiting: int = 100  # runners of a pool in one snapshot
    match_batch: int = 50  # claims in one transaction
    match_per_kind: int = 20  # oldest jobs of a tenant with the same labels
    match_kinds: int = 200  # of a tenant that are read at once: repositories and sets of labels
    pools_every: float = 30.0
    tick_every: float = 5.0
    sweep_every: float = 5.0
    sweep_limit: int = 50
    sweep_parallel: int = 8
    outage_after: float = 30.0  # without a tick for so long, the service counts as having been down
    read_every: float = 5.0
    read_limit: int = 50
    recover_every: float = 60.0
    pods_every: float = 20.0  # also how long a claim is held if the end of its Pod was not reported
    marks_every: float = 20.0  # labels of Pods that were not written, or are about another job
    marks_grace: float = 30.0  # since the claim; before, the replica that armed the Pod labels it
    recover_limit: int = 50  # findings of one tick
    delete_most: int = 120  # Pods that one replica deletes in any minute, for whatever reason
    stale_queued_every: float = 30.0
    stale_queued_limit: int = 200
    stale_queued_after: float = 86400.0  # GitHub keeps no job in its queue for longer
    stamped_grace: float = 300.0
    # The runner of a Pod whose owner is unknown is looked up in every scope: so many of them in one tick, for so long,
    # and again so long after a lookup that proved nothing.
    lookup_limit: int = 30
    lookup_within: float = 30.0
    lookup_again: float = 300.0
    silent_grace: float = 300.0  # a runner that does not poll, in addition to the idle deadline
    silent_limit: int = 5
    ghosts_every: float = 120.0
    ghost_age: float = 120.0
    gauges_every: float = 30.0
    fence_patience: float = 600.0  # a fence that is not answered for so long is a health condition
    starve_after: float = 60.0  # a job that could run, while a runner that fits is idle
    # A webhook that was lost in a crash waits for this. A step costs one call per 100 deliveries of the last 80 s.
    audit_every: float = 20.0
    audit_settle: float = 30.0  # younger deliveries may still be in flight
    audit_pages: int = (
        150  # of 100 deliveries, in one step: 50 jobs a second, with three events each, need 120
    )
    audit_repositories: int = 1  # repositories whose queued jobs are listed in one step
    intake: Literal["webhook", "pull"] = "webhook"
    pull_every: float = 3.0
    pull_pages: int = 10

    body_limit: int = 1 << 20
