"""Reads from GitHub's objects where the code of a job is from; `plans.trust` decides what that means."""

from runyard.dispatch.plans.trust import RunFacts
from runyard.github.views import PullRequestView, RepositoryView, RunView


def read_facts(run: RunView | None, pull: PullRequestView | None = None) -> RunFacts:
    """What a run and its pull request, as far as they are known, say about the origin of the code.

    A pull request without a run is taken for the event `pull_request`: GitHub has none that is trusted more.
    """
    event = "" if pull is None else "pull_request"
    return RunFacts(
        event=run.event if run is not None else event,
        head_repository=_name(None if run is None else run.head_repository),
        pull_repository=_name(None if pull is None else pull.head.repo),
        association="" if pull is None else pull.author_association,
        actor="" if run is None or run.actor is None else run.actor.login,
    )


def _name(found: RepositoryView | None) -> str:
    return "" if found is None else found.full_name
