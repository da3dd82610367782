"""The records of the practice GitHub: installations, repositories, runners, jobs, runs.

Records are mutable and changed only by `state`; all other modules read them. They are passed without copying,
because invariants are checked after every step of a simulation.
"""

import asyncio
from typing import Literal

import msgspec

AccountKind = Literal["Organization", "User"]
JobStatus = Literal["queued", "waiting", "in_progress", "completed"]
CONCLUSIONS = ("success", "failure", "cancelled", "skipped", "neutral", "timed_out")


class PracticeError(Exception):
    """A request that GitHub would refuse, too."""


class Repo(msgspec.Struct, kw_only=True, eq=False):
    """A repository that the App may access."""

    id: int
    owner: str
    name: str
    runners_allowed: bool = True

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"


class Installation(msgspec.Struct, kw_only=True, eq=False):
    """The App at one account."""

    id: int
    account: str
    account_id: int
    kind: AccountKind
    created_at: float
    suspended_at: float | None = None
    repos: dict[str, Repo] = msgspec.field(default_factory=dict)


class Runner(msgspec.Struct, kw_only=True, eq=False):
    """One ephemeral registration, from its mint to its removal."""

    id: int
    name: str
    scope: str  # `orgs/acme` or `repos/acme/app`, lower case
    account: str  # lower case
    labels: tuple[str, ...]
    wanted: frozenset[str]  # the labels in lower case, for the subset test only
    group_id: int
    work_folder: str
    created_at: float
    offline_since: float | None  # monotonic; None while connected
    instance: str = (
        ""  # the start of the runner program that connected; empty for one in this process
    )
    left: str = ""  # the start that has signed off: its later requests are ignored
    jit: str = ""
    jit_used: bool = False
    online: bool = False
    job_id: int | None = None

    @property
    def busy(self) -> bool:
        """Whether it has a job that has not ended."""
        return self.job_id is not None

    def __repr__(self) -> str:
        state = "busy" if self.busy else "idle"
        return f"Runner(id={self.id}, name={self.name!r}, online={self.online}, {state})"


class HistoryEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a job."""

    time: float
    what: str
    runner: str | None = None


class Job(msgspec.Struct, kw_only=True, eq=False):
    """One workflow job. `executions` counts how often it was assigned to a runner: never more than once."""

    id: int
    run_id: int
    repo: Repo
    installation_id: int
    name: str
    labels: tuple[str, ...]
    wanted: frozenset[str]
    created_at: float
    attempt: int = 1  # of its run
    duration: float | None = None
    script: str = ""
    env: tuple[tuple[str, str], ...] = ()
    status: JobStatus = "queued"
    conclusion: str | None = None
    runner_id: int | None = None
    runner_name: str | None = None
    runner_group_id: int | None = None
    started_at: float | None = None
    completed_at: float | None = None
    cancel_requested: bool = False
    executions: int = 0
    reported_by: str = ""  # the key of the session that reported its end over HTTP
    history: list[HistoryEntry] = msgspec.field(default_factory=list)


class Run(msgspec.Struct, kw_only=True, eq=False):
    """A workflow run: some jobs of one repository."""

    id: int
    repo: Repo
    created_at: float
    jobs: dict[int, Job] = msgspec.field(default_factory=dict)

    @property
    def status(self) -> str:
        """Derived from the jobs."""
        states = [job.status for job in self.jobs.values()]
        if all(state == "completed" for state in states):
            return "completed"
        if all(state in ("queued", "waiting") for state in states):
            return "queued"
        return "in_progress"


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The job that a connected runner has to run."""

    job_id: int
    repo: str
    duration: float | None
    cancelled: asyncio.Event
    run_id: int = 0
    name: str = ""
    script: str = ""
    env: tuple[tuple[str, str], ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A runner could not connect.

    `unknown`: no registration has this JIT configuration. `conflict`: another start of the runner program is
    connected with it. `used`: it was used and cannot be used again.
    """

    reason: Literal["unknown", "used", "conflict"]
