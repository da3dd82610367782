"""Reads from GitHub's objects where the code of a job is from; `plans.trust` decides what that means."""

from runyard.dispatch.plans.trust import RunFacts
from runyard.github.views import PullRequestView, RunView


def read_facts(run: RunView | None, pull: PullRequestView | None = None) -> RunFacts:
    """What a run and its pull request, as far as they are known, say about the origin of the code.

    A pull request without a run is taken for the event `pull_request`: GitHub has none that is trusted more.
    """
    head = None if pull is None else pull.head.repo
    if run is not None and run.head_repository is not None and head is None:
        head = run.head_repository
    event = "" if pull is None else "pull_request"
    return RunFacts(
        event=run.event if run is not None else event,
        head_repository="" if head is None else head.full_name,
        association="" if pull is None else pull.author_association,
        actor="" if run is None or run.actor is None else run.actor.login,
    )
