"""What is excluded when GitHub refuses a runner: no more than the cause, and not for ever."""

import pytest

from runyard.dispatch.plans.refusals import Failure, judge
from runyard.github import errors


@pytest.mark.parametrize(
    ("failure", "outcome", "whom", "hold"),
    [
        (Failure(kind="BudgetExhausted", retry_after=7.0), "retry", ("github", 7.0, 7.0), 7.0),
        (
            Failure(kind="BudgetExhausted", scope="account", retry_after=7.0),
            "retry",
            ("account", 7.0, 7.0),
            7.0,
        ),
        (Failure(kind="BudgetUnknown"), "retry", ("github", 5.0, 60.0), 5.0),
        (Failure(kind="RateLimited", retry_after=90.0), "retry", ("account", 90.0, 90.0), 90.0),
        (Failure(kind="RateLimited"), "retry", ("account", 60.0, 60.0), 60.0),
        (Failure(kind="Unreachable"), "retry", ("github", 5.0, 60.0), 5.0),
        (Failure(kind="ServerFailed", definite=False), "retry", ("account", 5.0, 60.0), 5.0),
        (Failure(kind="NoAnswer", definite=False), "retry", ("account", 5.0, 60.0), 5.0),
        # A GitHub that answers so to every mint of an account must not get one after the other.
        (Failure(kind="NameTaken", definite=False, scope="job"), "retry",
         ("account", 5.0, 60.0), 5.0),
        (Failure(kind="NoToken"), "retry", ("account", 5.0, 60.0), 5.0),
        (Failure(kind="NoToken", scope="account"), "exclude-account", ("account", 60.0, 3600.0), 60.0),
        (Failure(kind="NotAllowed", scope="account", at_org=True), "exclude-account",
         ("account", 60.0, 3600.0), 60.0),
        (Failure(kind="NotAllowed", scope="repository"), "exclude-repository",
         ("repository", 60.0, 3600.0), 60.0),
        (Failure(kind="NotFound", scope="repository"), "exclude-repository",
         ("repository", 60.0, 3600.0), 60.0),
        (Failure(kind="StampInvalid", scope="account"), "exclude-account",
         ("account", 60.0, 3600.0), 60.0),
        (Failure(kind="NotFound", scope="account", at_org=True), "back-to-idle", None, 0.0),
        (Failure(kind="Unauthorized"), "page", ("github", 30.0, 300.0), 30.0),
        # The token of one installation: others must not wait for it.
        (Failure(kind="Unauthorized", scope="account"), "page", ("account", 30.0, 300.0), 30.0),
        (Failure(kind="Rejected", scope="job"), "back-to-idle", None, 60.0),
    ],
    ids=lambda value: f"{value.kind} {value.scope}" if isinstance(value, Failure) else "",
)  # fmt: skip
def test_the_table(
    failure: Failure, outcome: str, whom: tuple[str, float, float] | None, hold: float
) -> None:
    verdict = judge(failure)
    passing = verdict.exclusion
    found = None if passing is None else (passing.kind, passing.first, passing.longest)
    assert (verdict.outcome, found, verdict.hold_job) == (outcome, whom, hold)
    assert verdict.to_repositories == (failure.at_org and failure.kind == "NotFound")


def test_every_github_error_has_a_verdict() -> None:
    kinds = [
        value.__name__
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.GitHubError)
    ]
    assert len(kinds) >= 14
    for name in kinds:
        assert judge(Failure(kind=name)).outcome in {"retry", "back-to-idle", "page"}
