"""The codes of a failed run: which invariant did not hold.

A run's outcome has the slug and the detail; tests and scenarios compare those. The scenarios' own expectations are
codes too (`scenarios/expectations.py`).
"""

from runyard.sim.loop import SimulationError
from runyard.wire.reasons import Code, Reason, render


class Violated(Code):
    """An invariant that did not hold."""

    ILLEGAL_TRANSITION = (
        "illegal-transition",
        "{subject} {key} went from {source!r} to {target!r} ({reason}, {actor})",
    )
    OFFERED_UNREAD = (
        "offered-before-read",
        "job {job} was offered again before GitHub was asked about it",
    )
    CLOSED_WITH_POD = (
        "closed-with-pod",
        "the slot of {pod} was closed, and its Pod is there ({reason})",
    )
    FENCED_RUNNER_KNOWN = (
        "fenced-runner-known",
        "the runner {runner} counts as fenced, and GitHub knows it",
    )
    JOB_OF_TWO_SLOTS = "job-of-two-slots", "job {job:d} is meant for {pod} and {others}"
    OVER_BUDGET = "over-budget", "{tenant} holds {used} of {limit} on {platform}"
    RUNNER_WITHOUT_CLAIM = (
        "runner-without-claim",
        "the runner {runner} is connected and has no claim: {slot}",
    )
    BUSY_POD_DELETED = (
        "busy-pod-deleted",
        "{client} deleted the Pod of {runner} while it was working",
    )
    ROLL_OVER_CAP = "roll-over-cap", "the roll of {pool} is at {pods}, cap {cap:d}"
    JIT_OF_ANOTHER_POD = "jit-of-another-pod", "{pod} got the JIT of another Pod, {other}"
    SECOND_JIT = "second-jit", "{pod} got a second JIT"
    JIT_WITHOUT_STAMP = "jit-without-stamp", "{pod} is given a JIT and carries no stamp"
    VM_WITHOUT_RECORD = "vm-without-record", "{host} makes {vm} and has no record of it"
    VM_STARTED_AGAIN = "vm-started-again", "{host} started {vm} {times:d} times"
    JOB_EXECUTED_AGAIN = "job-executed-again", "job {job:d} was executed {times:d} times"
    CHANGE_NOT_LOGGED = "change-not-logged", "a change was not logged: {difference}"
    CORE_FAILED = "core-failed", "a core failed: {failures}"
    JOB_WAITS_UNEXCUSED = (
        "job-waits-without-excuse",
        "job {job:d} waits since {waited:.0f} s without excuse while {runner} idles",
    )
    JOB_FAILED_UNHIT = (
        "job-failed-without-fault",
        "job {job:d} failed on {runner}, which no fault had hit",
    )
    NOT_AT_REST = "not-at-rest", "not at rest {seconds:.0f} s later"


class Violation(SimulationError):
    """Something does not hold that must; `reason` says what, and `note` has what was seen then."""

    def __init__(self, reason: Reason, *, at: str = "", note: str = "") -> None:
        super().__init__(f"{at}{render(reason)}{note}")
        self.reason = reason
