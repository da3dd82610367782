"""Types of the dashboard's content.

One `Overview` is the whole page at one moment; the page, the JSON response and the event stream are all rendered from
it.

Invariants:
- Times are seconds since the epoch, never ages: an overview that has not changed compares equal.
- Texts are complete: the renderer decides nothing.
- Text of users (repositories, labels, names of Pods) is stored unchanged and escaped when it is rendered.
"""

from typing import Literal

import msgspec

Tone = Literal["good", "work", "wait", "warn", "bad", "off"]
RunnerState = Literal[
    "idle", "silent", "taking", "busy", "starting", "stopping", "failed", "unseen"
]
JobState = Literal["waiting", "taking", "running", "done"]


class _Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all types here; they hold no reference cycles, so they need no garbage collection."""


class Source(_Value, frozen=True):
    """State of a data source. `as_of` is the time of its last successful read."""

    name: str
    state: Literal["ok", "down", "off"]
    since: float | None = None
    message: str = ""
    as_of: float | None = None


class Verdict(_Value, frozen=True):
    """The summary at the top of the page. `reason` is its code; `jobs` is how many jobs it holds."""

    tone: Tone
    title: str
    text: str = ""
    reason: str = ""
    jobs: int = 0


class Totals(_Value, frozen=True):
    """The totals. `waiting` and `running` count all jobs, including those that are not shown."""

    waiting: int = 0
    running: int = 0
    attention: int = 0
    idle: int = 0
    busy: int = 0
    starting: int = 0
    runners: int = 0
    hosts: int = 0
    hosts_ready: int = 0
    healed_hour: int = 0


class PoolState(_Value, frozen=True):
    """One condition that the operator published about a pool: `reason` is its code, `text` the sentence."""

    type: str
    holds: bool
    reason: str = ""
    text: str = ""
    since: float | None = None


class Pool(_Value, frozen=True):
    """One pool of runners."""

    name: str
    known: bool = True  # False: its runners exist, the RunnerPool does not
    platform: str = ""
    image: str = ""
    labels: tuple[str, ...] = ()
    desired: int = 0
    idle: int = 0
    busy: int = 0
    starting: int = 0
    other: int = 0  # stopping, failed, silent
    stale: int = 0
    waiting: int = 0  # number of shown jobs that fit this pool
    rolled_at: float | None = None
    leaving: bool = False
    conditions: tuple[PoolState, ...] = ()


class Host(_Value, frozen=True):
    """One host."""

    name: str
    tone: Tone
    state: str
    reason: str = ""
    platform: str = ""
    used: int = 0  # Pods that hold a slot
    running: int = 0  # those of them that run
    capacity: int = 0
    cordoned: bool = False
    pressure: tuple[str, ...] = ()  # conditions such as DiskPressure that are true
    isolation: str = ""
    heartbeat_at: float | None = None


class Runner(_Value, frozen=True):
    """One Pod, or a slot whose Pod is not in Kubernetes."""

    uid: str
    name: str
    pool: str
    state: RunnerState
    tone: Tone
    words: str
    since: float | None = None
    host: str = ""
    job_id: int | None = None
    job_name: str = ""
    job_workflow: str = ""
    job_url: str = ""
    repository: str = ""
    stale: bool = False
    blocked: str = (
        ""  # why it cannot start, as Kubernetes objects carry it; empty if it can, or has
    )


class Job(_Value, frozen=True):
    """One workflow job."""

    job_id: int
    repository: str
    state: JobState
    name: str = ""
    workflow: str = ""
    url: str = ""  # of its run at GitHub; empty if there is no page for it
    labels: tuple[str, ...] = ()
    since: float | None = None  # when the current state began
    waited: float | None = None  # seconds until it started
    ran: float | None = None  # seconds that it ran
    runner: str = ""
    conclusion: str = ""
    reason: str = ""  # why it waits, as a slug
    text: str = ""  # the reason as a sentence
    attention: bool = False


class Recovery(_Value, frozen=True):
    """A fault that was recovered automatically: of a runner or a job, or of a component that was restarted."""

    id: int  # unique with `component`
    at: float
    reason: str  # a slug
    what: str
    detail: dict[str, str | int | float] = {}
    then: str = ""
    took: float | None = None
    runner: str = ""
    job_id: int | None = None
    component: str = ""  # the one that was restarted


class Alarm(_Value, frozen=True):
    """A current problem, with its fix."""

    code: str
    severity: Literal["warning", "error"]
    title: str
    text: str
    message: str = ""
    since: float | None = None


class Overview(_Value, frozen=True):
    """The whole dashboard at one moment. `hidden_…` count the rows that were left out."""

    at: float
    verdict: Verdict
    sources: tuple[Source, ...] = ()
    totals: Totals = Totals()
    alarms: tuple[Alarm, ...] = ()
    pools: tuple[Pool, ...] = ()
    hosts: tuple[Host, ...] = ()
    hidden_hosts: int = 0
    runners: tuple[Runner, ...] = ()
    hidden_runners: int = 0
    waiting: tuple[Job, ...] = ()
    running: tuple[Job, ...] = ()
    finished: tuple[Job, ...] = ()
    healed: tuple[Recovery, ...] = ()


def same(one: Overview, other: Overview) -> bool:
    """Return whether two overviews are equal apart from their times of reading."""
    return _without_times(one) == _without_times(other)


def _without_times(view: Overview) -> Overview:
    sources = tuple(
        source if source.state != "ok" else msgspec.structs.replace(source, as_of=None)
        for source in view.sources
    )
    return msgspec.structs.replace(view, at=0.0, sources=sources)
