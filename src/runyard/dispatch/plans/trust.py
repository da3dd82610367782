"""Decides whether the code of a job is trusted: only then may it see what the account's earlier jobs left in a cache.

A `workflow_job` event names neither the event that started the run nor the repository that its code is from; GitHub's
workflow run does. What is missing, unreadable or new is never a reason to trust.
"""

import msgspec

from runyard.wire.reasons_dispatch import Trust

# Started by somebody who may push to the repository, by its settings, or by GitHub itself. Every other event can be
# caused by any account (a comment, a star, a fork), or hands on what a run of a fork made (`workflow_run`).
_BY_WRITERS = frozenset(
    (
        "branch_protection_rule",
        "create",
        "delete",
        "deployment",
        "deployment_status",
        "merge_group",
        "page_build",
        "pull_request",  # of a branch of the repository itself, see below
        "push",
        "release",
        "repository_dispatch",
        "schedule",
        "workflow_dispatch",
    )
)
_MEMBERS = frozenset(("OWNER", "MEMBER", "COLLABORATOR"))
_LIKE_FORKS = frozenset(("dependabot[bot]",))  # GitHub gives its runs the rights of a fork


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What GitHub says about the run of a job; an empty field is not known."""

    event: str = ""
    head_repository: str = ""  # owner/name of the repository that the code is from, by the run
    pull_repository: str = ""  # the same, by the pull request
    association: str = ""  # of the pull request's author with the repository
    actor: str = ""


def decide(facts: RunFacts, *, repository: str) -> Trust:
    """Decide whether the code of a run in `repository` (owner/name) is trusted."""
    if facts.event == "pull_request_target":
        return Trust.PULL_REQUEST_TARGET
    heads = [each.lower() for each in (facts.head_repository, facts.pull_repository) if each]
    if any(each != repository.lower() for each in heads):
        return Trust.FORK
    if facts.actor in _LIKE_FORKS or (facts.association and facts.association not in _MEMBERS):
        return Trust.OUTSIDE_ACTOR
    if not facts.event or not heads:
        return Trust.UNKNOWN
    return Trust.SAME_REPOSITORY if facts.event in _BY_WRITERS else Trust.OPEN_EVENT


def trust_of(stored: str) -> Trust:
    """Read a stored code; one of another release is not trusted."""
    return next((each for each in Trust if each.value == stored), Trust.UNKNOWN)


def is_trusted(trust: Trust) -> bool:
    """Whether the job may use its account's cache."""
    return trust is Trust.SAME_REPOSITORY
