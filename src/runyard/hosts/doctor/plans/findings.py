"""The values of a check: what a probe returned, what is known of the machine, and what was found.

A probe returns an `Output`, whatever happened to it. A judge turns the outputs of one check into findings:

    ok        as a host of runners needs it
    warning   works now, and will fail one day: after a restart, at night, under load
    problem   jobs cannot run here, or end badly
    unknown   it could not be checked; the reason says why

Invariants:
- A finding has a reason code with its numbers and names; sentences are rendered from them.
- What is not ok has a fix: the judge's, or the check's own (`otherwise.py`). A fix is a command, or a sentence where
  no command does it.
- Nothing of an output gets into a finding but the numbers, versions and names that a judge has parsed.
"""

from enum import StrEnum

import msgspec

from runyard.hosts.doctor.plans.hosting import Agent
from runyard.hosts.doctor.plans.reasons import Found
from runyard.wire.reasons import Reason

GB = 1_000_000_000


class Verdict(StrEnum):
    """How good it is."""

    PROBLEM = "problem"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about it."""

    do: str
    command: bool = True  # else a sentence
    root: bool = False
    reboot: bool = False  # has its effect after the next restart


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    verdict: Verdict
    reason: Reason
    fixes: tuple[Fix, ...] = ()


Findings = tuple[Finding, ...]


class Ended(StrEnum):
    """How a probe ended."""

    DONE = "done"  # the program exited, the file was read
    MISSING = "missing"  # there is no such program or file
    REFUSED = "refused"  # it may not be started or read
    HUNG = "hung"  # it did not end within its deadline


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe returned."""

    source: str  # the program, the file, or the name of the inspection
    ended: Ended = Ended.DONE
    code: int = 0
    out: str = ""
    err: str = ""
    value: object = None  # of an inspection
    seconds: float = 0.0  # the deadline


class TartHome(msgspec.Struct, frozen=True, kw_only=True):
    """The VMs and images of tart, read from its directory."""

    running: tuple[str, ...] = ()
    images: tuple[tuple[str, int], ...] = ()  # names and bytes on disk


class OwnVms(msgspec.Struct, frozen=True, kw_only=True):
    """The VMs that this machine has records of: of `runyard up`, and of the agent."""

    names: tuple[str, ...] = ()


class Kvm(msgspec.Struct, frozen=True, kw_only=True):
    """/dev/kvm."""

    usable: bool
    group: str = ""  # whose members may use it; empty if no group may


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A directory, or the nearest one above it that exists."""

    exists: bool
    path: str  # resolved: links are followed
    owner: int = -1
    mode: int = 0
    writable: bool = False
    used: bool = False  # it holds files


class LoginPassword(msgspec.Struct, frozen=True, kw_only=True):
    """The stored password of automatic login; never the password itself."""

    exists: bool
    sealed: bool | None = None  # macOS has rejected it; None: only root may read it


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a running machine."""

    name: str
    alive: bool


class Failing(msgspec.Struct, frozen=True, kw_only=True):
    """One health condition that fails."""

    code: str
    title: str
    fix: str
    error: bool


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of `runyard up` in the data directory."""

    running: bool = False
    damaged: str = ""  # why its directory cannot be read
    components: tuple[Component, ...] = ()
    conditions: tuple[Failing, ...] | None = None  # None: the server gave none
    real_github: bool = False
    taken: tuple[tuple[str, int], ...] = ()  # its ports that another program uses, by component
    ports: int = 0


class GithubLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `runyard github check`."""

    verdict: Verdict
    what: str
    found: str
    fix: str = ""


class Github(msgspec.Struct, frozen=True, kw_only=True):
    """What GitHub responded."""

    configured: bool
    unusable: str = ""  # why the configuration cannot be used
    lines: tuple[GithubLine, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of this machine without a probe."""

    platform: str  # darwin or linux
    python: tuple[int, ...]
    arch: str
    uid: int  # of the user who runs the fleet, also under sudo
    user: str
    root: bool
    home: str
    data: str
    tart_home: str
    now: float
    agent_data: str = ""  # of the agent on this machine
    data_option: str = ""  # ` --data DIR`, if it was given: other commands need it too
    agent_option: str = ""  # ` --agent-data DIR`, likewise
    agents: tuple[str, ...] = ()  # the directories of all agents that are known here
    data_disk: str = (
        "/"  # where the data directory is or will be: the nearest directory that exists
    )
    tart_disk: str = "/"
    open_files: tuple[int, int] = (0, 0)  # soft and hard limit; -1: none
    extras: tuple[str, ...] = ()  # modules of `runyard[up]` that are not installed
    machine: Machine | None = None  # None: not asked
    github: Github | None = None
    agent: Agent | None = None

    @property
    def names(self) -> dict[str, str]:
        """What the placeholders in probes mean."""
        return {
            "uid": str(self.uid),
            "data_disk": self.data_disk,
            "tart_disk": self.tart_disk,
        }


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge decides by."""

    facts: Facts
    outputs: tuple[Output, ...] = ()


def command(do: str, *, reboot: bool = False) -> Fix:
    """A command; `sudo` says that it needs root."""
    return Fix(do=do, root=do.startswith("sudo "), reboot=reboot)


def advice(do: str, *, reboot: bool = False) -> Fix:
    """A sentence, where no command does it."""
    return Fix(do=do, command=False, reboot=reboot)


def ok(reason: Reason) -> Findings:
    """As it should be."""
    return (Finding(verdict=Verdict.OK, reason=reason),)


def warning(reason: Reason, *fixes: Fix) -> Findings:
    """It will fail one day."""
    return (Finding(verdict=Verdict.WARNING, reason=reason, fixes=fixes),)


def problem(reason: Reason, *fixes: Fix) -> Findings:
    """Jobs cannot run, or end badly."""
    return (Finding(verdict=Verdict.PROBLEM, reason=reason, fixes=fixes),)


def unknown(reason: Reason, *fixes: Fix) -> Findings:
    """It could not be checked."""
    return (Finding(verdict=Verdict.UNKNOWN, reason=reason, fixes=fixes),)


def not_done(output: Output) -> Reason | None:
    """Why a probe gave nothing; None if it ended by itself, with whatever code."""
    source = output.source
    match output.ended:
        case Ended.MISSING:
            return Found.PROBE_MISSING.because(source=source)
        case Ended.REFUSED:
            return Found.PROBE_REFUSED.because(source=source)
        case Ended.HUNG:
            return Found.PROBE_HUNG.because(source=source, seconds=output.seconds)
        case Ended.DONE:
            return None


def failed(output: Output) -> Reason | None:
    """Why a probe gave nothing, also if its program reported a failure."""
    if output.ended is Ended.DONE and output.code != 0:
        return Found.PROBE_FAILED.because(source=output.source, code=output.code)
    return not_done(output)


def not_understood(output: Output) -> Findings:
    """The program's answer has another form than the judge knows."""
    return unknown(Found.PROBE_NOT_UNDERSTOOD.because(source=output.source))
