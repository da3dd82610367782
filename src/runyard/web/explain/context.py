"""Input of an explanation: the dashboard's snapshot, and the rows of the job or slot in question.

Types only; `queries.py` reads the rows.
"""

from typing import Protocol

import msgspec

from runyard.dispatch.machine.table import ASKING_WITHIN, Deadlines
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.matching.values import Matching
from runyard.kube.objects import Pod, RunnerPool
from runyard.web import fleet
from runyard.web.cluster import Cluster
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import Alarm, Host, Runner, Source
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import TRANSITIONS


class RateBudget(Protocol):
    """What is left of one installation's rate limit at GitHub."""

    @property
    def key(self) -> str:
        """The installation's id, or the key of the shared budget."""
        ...

    @property
    def points(self) -> float:
        """Points that are left in this minute."""
        ...

    @property
    def capacity(self) -> float:
        """Points per minute."""
        ...

    @property
    def closed(self) -> float:
        """Seconds until requests with this key are allowed again."""
        ...

    @property
    def hour_limit(self) -> int | None:
        """Requests per hour; None if GitHub has not reported it."""
        ...

    @property
    def hour_left(self) -> int | None:
        """Requests that are left in this hour; None if GitHub has not reported it."""
        ...

    @property
    def hour_ends_in(self) -> float:
        """Seconds until GitHub resets the hourly limit."""
        ...


class DispatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines and limits of the dispatch server that explanations refer to."""

    deadlines: Deadlines = Deadlines()
    asking_within: float = ASKING_WITHIN
    outage_after: float = 30.0
    stamped_grace: float = 300.0
    mint_points: float = 5.0  # cost of a registration, in points
    shared_budget_key: str = "app"  # key of the budget that all installations share
    inactive_reconcilers: tuple[
        tuple[str, str], ...
    ] = ()  # reconcilers that are off or in a dry run, with their mode


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The last transition of a job or a slot."""

    at: float
    source: str
    target: str
    reason: str  # a slug
    detail: dict[str, str | int | float] = {}
    actor: str

    @property
    def why(self) -> Reason:
        """The reason as a value."""
        return TRANSITIONS.read(self.reason, self.detail)


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job's row. `look_at` is the time of its next check at GitHub."""

    job_id: int
    tenant: str
    repository: str
    labels: tuple[str, ...]
    state: str
    verified: bool
    runner_name: str
    conclusion: str
    trust: str = ""
    installation_id: int
    enqueued_at: float
    look_at: float
    started_at: float | None = None
    completed_at: float | None = None
    last: LogEntry | None = None


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's row, with the conditions that the sweeper checks."""

    slot: Slot
    opened_at: float
    last_beat: float
    poll_dropped: bool = False  # the connection of its last poll was cut before the answer
    deadline: float
    overdue: bool
    settled: bool  # the grace period after the last outage is over
    settles_at: float
    last: LogEntry | None = None
    job_trust: str = ""  # of the job that it runs or waits for; empty: not decided
    marked_job: int | None = None  # the job that the labels of its Pod are about
    marked_untrusted: bool = False


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one moment. A source that has not answered is None."""

    at: float
    kubernetes: Source = Source(name="Kubernetes", state="ok")
    cluster: Cluster | None = None
    matching: Matching | None = None  # what the matcher would do now, and what holds the other jobs
    runners: tuple[Runner, ...] = ()
    hosts: tuple[Host, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    rate_budgets: tuple[RateBudget, ...] = ()
    match_within: float = 15.0
    limits: DispatchLimits = DispatchLimits()

    def pod(self, name: str) -> Pod | None:
        """Find a Pod by its name or uid."""
        pods = () if self.cluster is None else self.cluster.pods
        return next((p for p in pods if name in (p.metadata.name, p.metadata.uid)), None)

    def pool(self, name: str) -> RunnerPool | None:
        """Find a pool by its name."""
        pools = () if self.cluster is None else self.cluster.pools
        return next((pool for pool in pools if pool.metadata.name == name), None)

    def host(self, name: str) -> Host | None:
        """Find a host by its name."""
        return next((host for host in self.hosts if host.name == name), None)

    def alarm(self, code: str) -> Alarm | None:
        """Find an alarm of this process by its code."""
        return next((alarm for alarm in self.alarms if alarm.code == code), None)


def build_context(
    snapshot: Snapshot,
    settings: Settings,
    limits: DispatchLimits,
    *,
    rate_budgets: tuple[RateBudget, ...] = (),
) -> Context:
    """Build the context of explanations from a snapshot."""
    records, cluster = snapshot.records, snapshot.cluster
    slots = () if records is None else records.slots
    return Context(
        at=snapshot.at,
        kubernetes=snapshot.kubernetes,
        cluster=cluster,
        matching=None if records is None else records.matching,
        runners=fleet.runners(
            cluster, slots, cluster_at=snapshot.kubernetes.as_of, github=settings.github
        ),
        hosts=fleet.hosts(cluster, now=snapshot.at, settings=settings),
        alarms=snapshot.alarms,
        rate_budgets=rate_budgets,
        match_within=settings.match_within,
        limits=limits,
    )
