"""The log of transitions, retold: what went wrong, and how it was put right without anybody's help.

The log speaks the slot machine's language; an operator does not have to. Each sentence says only what the
entry proves. How long it took is the time that the runner (or the job) had been in the state that it was
rescued from.
"""

from collections.abc import Iterable

import msgspec

from runyard.web.values import Healed


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log, with what became of the job that it concerned."""

    id: int
    at: float
    subject: str
    source: str
    target: str
    why: str
    job_id: int | None = None
    before: float | None = None
    pod_name: str = ""
    job_state: str = ""
    conclusion: str = ""
    last_hour: bool = False


_FENCED = {
    "offered": "The registration of a runner got no clear answer. GitHub was made to forget the runner",
    "armed": "A runner got a job and never came up. GitHub was made to forget it",
    "executing": "A runner that seemed at work was not. GitHub was made to forget it",
    "closed": "A runner whose Pod had vanished was taken off GitHub's list",
}
_VANISHED = {
    "offered": "The Pod vanished while its runner was being registered",
    "armed": "The Pod vanished before its runner took the job",
    "executing": "The Pod ended before GitHub had said that its job was over",
}
_RETIRED = {
    "does not ask for work": "A runner that did not ask for work was retired and replaced",
    "stamped without a claim": "A runner that nobody spoke for any more was found and retired",
}
_NOW = {
    "queued": "is queued again",
    "bound": "is about to start on another runner",
    "running": "runs",
}


def retell(entries: Iterable[Entry]) -> tuple[Healed, ...]:
    """The entries as an operator would tell them, in the order given."""
    return tuple(
        Healed(
            id=entry.id,
            at=entry.at,
            what=what(entry),
            then=then(entry),
            took=None if entry.before is None else max(0.0, entry.at - entry.before),
            runner=entry.pod_name,
            job_id=entry.job_id,
        )
        for entry in entries
    )


def what(entry: Entry) -> str:
    """What was wrong and what was done."""
    if entry.subject == "job":
        if entry.why == "its runner executes another job":
            return "GitHub gave a runner another job and its word was lost. The job was given back"
        return f"A runner could not be registered ({entry.why}). The job was given back"
    if entry.why == "fence: busy":
        return "A start that GitHub's word was lost of: the runner is at work"
    if entry.why.startswith("fence: "):
        return _FENCED.get(entry.source, "GitHub was made to forget a runner")
    if entry.target == "draining":
        return _RETIRED.get(entry.why, f"A runner was retired: {entry.why}")
    return _VANISHED.get(entry.source, f"A runner was closed: {entry.why}")


def then(entry: Entry) -> str:
    """What became of the job, as far as it is known now."""
    if entry.job_id is None or not entry.job_state:
        return ""
    if entry.job_state == "done":
        return f"Job {entry.job_id} ended: {entry.conclusion or 'unknown'}"
    return f"Job {entry.job_id} {_NOW.get(entry.job_state, entry.job_state)}"
