"""What the dashboard shows, as values.

One `Overview` is the whole page at one moment; the page, the JSON answer and the stream of events are
three ways to write it down, so they cannot tell different stories.

Invariants:
- Instants are seconds since the epoch, never ages: a value that has not changed compares equal.
- Words are finished here: whoever renders an overview decides nothing.
- Text that people outside chose (repositories, labels, names of Pods) is carried as it is and escaped where
  it is rendered.
"""

from typing import Literal

import msgspec

Tone = Literal["good", "work", "wait", "warn", "bad", "off"]
RunnerState = Literal[
    "idle", "silent", "taking", "busy", "starting", "stopping", "failed", "unseen"
]
JobState = Literal["waiting", "taking", "running", "done"]


class _Shown(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Values that hold no cycles."""


class Source(_Shown, frozen=True):
    """Where the facts come from, and whether it answers. `as_of` is its last good answer."""

    name: str
    state: Literal["ok", "down", "off"]
    since: float | None = None
    message: str = ""
    as_of: float | None = None


class Verdict(_Shown, frozen=True):
    """The one sentence at the top."""

    tone: Tone
    title: str
    text: str = ""


class Totals(_Shown, frozen=True):
    """The numbers at a glance. `waiting` and `running` count all jobs, not only those shown."""

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


class Pool(_Shown, frozen=True):
    """One pool of runners."""

    name: str
    known: bool = True  # False: only its runners are known, not the pool itself
    platform: str = ""
    image: str = ""
    labels: tuple[str, ...] = ()
    desired: int = 0
    idle: int = 0
    busy: int = 0
    starting: int = 0
    other: int = 0  # stopping, failed, silent
    stale: int = 0
    waiting: int = 0  # of the jobs shown, those that would fit here
    rolled_at: float | None = None
    leaving: bool = False


class Host(_Shown, frozen=True):
    """One machine."""

    name: str
    tone: Tone
    state: str
    reason: str = ""
    platform: str = ""
    used: int = 0
    capacity: int = 0
    isolation: str = ""
    heartbeat_at: float | None = None


class Runner(_Shown, frozen=True):
    """One Pod, or a slot whose Pod is not seen."""

    uid: str
    name: str
    pool: str
    state: RunnerState
    tone: Tone
    words: str
    since: float | None = None
    host: str = ""
    job_id: int | None = None
    repository: str = ""
    stale: bool = False


class Job(_Shown, frozen=True):
    """One workflow job."""

    job_id: int
    repository: str
    state: JobState
    labels: tuple[str, ...] = ()
    since: float | None = None  # waiting since, runs since, over since
    waited: float | None = None  # seconds until it started
    ran: float | None = None  # seconds that it ran
    runner: str = ""
    conclusion: str = ""
    why: str = ""
    attention: bool = False


class Healed(_Shown, frozen=True):
    """Something that went wrong and was put right by nobody."""

    id: int
    at: float
    what: str
    then: str = ""
    took: float | None = None
    runner: str = ""
    job_id: int | None = None


class Alarm(_Shown, frozen=True):
    """Something that is wrong now, with what to do about it."""

    code: str
    severity: Literal["warning", "error"]
    title: str
    text: str
    message: str = ""
    since: float | None = None


class Overview(_Shown, frozen=True):
    """Everything, at one moment. `hidden_…` say how many rows the limits left out."""

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
    healed: tuple[Healed, ...] = ()


def same(one: Overview, other: Overview) -> bool:
    """Is this the same picture? The moment of looking and the last good answers do not count."""
    return _still(one) == _still(other)


def _still(view: Overview) -> Overview:
    sources = tuple(
        source if source.state != "ok" else msgspec.structs.replace(source, as_of=None)
        for source in view.sources
    )
    return msgspec.structs.replace(view, at=0.0, sources=sources)
