"""What an explanation may look at: the fleet as the dashboard reads it, and a few rows about the one thing asked for.

Values only; `reading.py` fills them.
"""

from typing import Protocol

import msgspec

from runyard.dispatch.machine.table import Deadlines
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.matching.values import Matching
from runyard.kube.objects import Pod, RunnerPool
from runyard.web import fleet
from runyard.web.cluster import Cluster
from runyard.web.picture import Picture
from runyard.web.settings import Settings as Looking
from runyard.web.values import Alarm, Host, Runner, Source


class Purse(Protocol):
    """What one installation may still ask of GitHub, as the shared budget says of itself."""

    @property
    def key(self) -> str:
        """The installation."""
        ...

    @property
    def points(self) -> float:
        """Points of the minute."""
        ...

    @property
    def capacity(self) -> float:
        """Points that a whole minute brings."""
        ...

    @property
    def closed(self) -> float:
        """For so many more seconds GitHub wants to hear nothing."""
        ...

    @property
    def hour_limit(self) -> int | None:
        """Requests in an hour, if GitHub has said so."""
        ...

    @property
    def hour_left(self) -> int | None:
        """Those that are left."""
        ...

    @property
    def hour_ends_in(self) -> float:
        """Seconds until the hour begins anew."""
        ...


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How long the dispatch server lets things be: of its settings, what explanations need."""

    deadlines: Deadlines = Deadlines()
    outage_after: float = 30.0
    stamped_grace: float = 300.0
    mint_points: float = 5.0  # what a registration costs of the minute
    shared_purse: str = (
        "app"  # what everybody's requests are paid from, beside the installation's own
    )
    resting: tuple[tuple[str, str], ...] = ()  # reconcilers that do not heal, and their mode


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """The last entry of the log of transitions about something."""

    at: float
    source: str
    target: str
    why: str
    actor: str


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job's row. `look_at` is when GitHub is asked about it again."""

    job_id: int
    tenant: str
    repository: str
    labels: tuple[str, ...]
    state: str
    verified: bool
    runner_name: str
    conclusion: str
    installation_id: int
    enqueued_at: float
    look_at: float
    started_at: float | None = None
    completed_at: float | None = None
    last: Logged | None = None


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's row, and how the sweeper would judge it now."""

    slot: Slot
    opened_at: float
    last_beat: float
    deadline: float
    overdue: bool
    settled: bool  # long enough since the service was last away
    settles_at: float
    last: Logged | None = None


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one moment. None is a source that has not answered."""

    at: float
    kubernetes: Source = Source(name="Kubernetes", state="ok")
    cluster: Cluster | None = None
    matching: Matching | None = None  # what the matcher would do now, and what holds the rest
    runners: tuple[Runner, ...] = ()
    hosts: tuple[Host, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    purses: tuple[Purse, ...] = ()
    silent_after: float = 90.0
    match_within: float = 15.0
    terms: Terms = Terms()

    def pod(self, name: str) -> Pod | None:
        """A Pod by its name or its uid."""
        pods = () if self.cluster is None else self.cluster.pods
        return next((p for p in pods if name in (p.metadata.name, p.metadata.uid)), None)

    def pool(self, name: str) -> RunnerPool | None:
        """A pool by its name."""
        pools = () if self.cluster is None else self.cluster.pools
        return next((pool for pool in pools if pool.metadata.name == name), None)

    def host(self, name: str) -> Host | None:
        """A host by its name."""
        return next((host for host in self.hosts if host.name == name), None)

    def alarm(self, code: str) -> Alarm | None:
        """What this process says of itself under that code."""
        return next((alarm for alarm in self.alarms if alarm.code == code), None)


def scene_of(
    picture: Picture,
    looking: Looking,
    terms: Terms,
    *,
    purses: tuple[Purse, ...] = (),
) -> Scene:
    """The fleet as an explanation sees it."""
    records, cluster = picture.records, picture.cluster
    slots = () if records is None else records.slots
    return Scene(
        at=picture.at,
        kubernetes=picture.kubernetes,
        cluster=cluster,
        matching=None if records is None else records.matching,
        runners=fleet.runners(cluster, slots, cluster_at=picture.kubernetes.as_of),
        hosts=fleet.hosts(cluster, now=picture.at, settings=looking),
        alarms=picture.alarms,
        purses=purses,
        silent_after=looking.silent_after,
        match_within=looking.match_within,
        terms=terms,
    )
