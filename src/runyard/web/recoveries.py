"""Renders automatic recoveries: those of the transition log, and restarts of components.

Of an entry of the log it renders the fault, the repair, and the job's state afterwards. Each sentence is chosen by the
entry's reason code and by the state that the runner or the job was recovered from. The duration is the time that it had
been in that state; of a component, the time that it was away.
"""

from collections.abc import Iterable

import msgspec

from runyard.web.values import Recovery
from runyard.wire.reasons_dispatch import FENCED, TRANSITIONS, Why
from runyard.wire.restarts import RESTARTS, Restart

RETIRED = {
    Why.NOT_POLLING: "A runner that did not poll for work was retired and replaced",
    Why.STAMPED_WITHOUT_CLAIM: "A Pod with an owner label and no claim was retired",
    Why.OWNER_UNKNOWN: "A Pod with the label of an unknown owner was retired: it has no runner at GitHub",
}
# Parameters of `recoveries.sql`: the reason codes to search for.
CODES: dict[str, list[str]] = {
    "fenced": [code.value for code in (*FENCED, Why.FENCE_BUSY)],
    "retired": [code.value for code in RETIRED],
    "ordinary": [code.value for code in (*FENCED, Why.RUNNER_GOT_ANOTHER)],
    "refused": [code.value for code in (Why.MINT_REFUSED, Why.STAMP_INVALID)],
}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log, with the state of the job that it concerned."""

    id: int
    at: float
    subject: str
    source: str
    target: str
    reason: str  # a slug
    detail: dict[str, str | int | float] = {}
    job_id: int | None = None
    before: float | None = None
    pod_name: str = ""
    job_state: str = ""
    conclusion: str = ""
    last_hour: bool = False

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        return TRANSITIONS.text(self.reason, self.detail)


_FENCED = {
    "offered": "The registration of a runner got no clear answer. GitHub deleted the runner",
    "armed": "A runner was registered and never started its job. GitHub deleted it",
    "executing": "A runner counted as busy and was idle. GitHub deleted it",
    "closed": "A runner whose Pod had vanished was deleted at GitHub",
}
_VANISHED = {
    "offered": "The Pod vanished while its runner was being registered",
    "armed": "The Pod vanished before its runner took the job",
    "executing": "The Pod ended before GitHub reported the end of its job",
}
_NOW = {
    "queued": "is queued again",
    "bound": "is assigned to another runner",
    "running": "runs",
}


def render_recoveries(entries: Iterable[Entry]) -> tuple[Recovery, ...]:
    """Render log entries for the dashboard, in their order."""
    return tuple(
        Recovery(
            id=entry.id,
            at=entry.at,
            reason=entry.reason,
            detail=entry.detail,
            what=describe(entry),
            then=describe_job(entry),
            took=None if entry.before is None else max(0.0, entry.at - entry.before),
            runner=entry.pod_name,
            job_id=entry.job_id,
        )
        for entry in entries
    )


def render_restarts(restarts: Iterable[Restart]) -> tuple[Recovery, ...]:
    """Render restarts of components for the dashboard, newest first."""
    return tuple(
        Recovery(
            id=restart.id,
            at=restart.ready_at,
            reason=restart.reason,
            detail=restart.detail,
            what=f"The component {restart.component} {_end(restart)}. It was restarted",
            then=f"It took {restart.starts} starts" if restart.starts > 1 else "",
            took=max(0.0, round(restart.ready_at - restart.ended_at, 3)),
            component=restart.component,
        )
        for restart in sorted(restarts, key=lambda each: each.id, reverse=True)
    )


def _end(restart: Restart) -> str:
    return RESTARTS.text(restart.reason, restart.detail)


def describe(entry: Entry) -> str:
    """Describe the fault and the repair."""
    if entry.subject == "job":
        if entry.reason == Why.RUNNER_BUSY_ELSEWHERE:
            return "GitHub gave a runner another job and the event was lost. The job was requeued"
        return f"A runner could not be registered ({entry.text}). The job was requeued"
    if entry.reason == Why.FENCE_BUSY:
        return "The event of a job's start was lost. The runner is busy"
    if entry.reason in FENCED:
        return _FENCED.get(entry.source, "GitHub deleted a runner")
    for code, text in RETIRED.items():
        if entry.reason == code:
            return text
    return _VANISHED.get(entry.source, f"A runner was closed: {entry.text}")


def describe_job(entry: Entry) -> str:
    """Describe the job's current state; empty if there is no job."""
    if entry.job_id is None or not entry.job_state:
        return ""
    if entry.job_state == "done":
        return f"Job {entry.job_id} ended: {entry.conclusion or 'unknown'}"
    return f"Job {entry.job_id} {_NOW.get(entry.job_state, entry.job_state)}"
