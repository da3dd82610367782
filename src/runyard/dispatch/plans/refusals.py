"""Decides what is excluded, and for how long, when GitHub mints no runner: a repository, an account, or every tenant.

    cause                                   outcome             excluded                        until the next try
    our own budget is used up               retry               the account of that budget      until the refill
    the App's own budget is used up         retry               every tenant                    until the refill
    a rate limit of this installation       retry               the account                     GitHub's retry-after
    nothing was sent;
    our own budget is not available         retry               every tenant                    5 s, doubling to 1 min
    no answer, 5xx, an unreadable answer;
    a runner of that name; no token now     retry               the account                     5 s, doubling to 1 min
    no such endpoint at the organisation    back-to-idle        none: at the repository next    at once
    the repository is not found, or denied  exclude-repository  the repository                  1 min, doubling to 1 h
    the account is denied or not installed  exclude-account     the account                     1 min, doubling to 1 h
    its name is no valid label value        exclude-account     the account                     1 min, doubling to 1 h
    the account's token is not accepted     page                the account                     30 s, doubling to 5 min
    the App's key is not accepted           page                every tenant                    30 s, doubling to 5 min
    this request will never succeed         back-to-idle        none: the job waits             1 min

After that time one job is tried. If its mint succeeds, the exclusion ends; if it fails, the time doubles. So a
repository that can never be served occupies one runner for a moment now and then, and does not delay other tenants.
When a try succeeds, the other accounts that GitHub failed to answer are tried soon, too: an outage may be over for all.
"""

import msgspec


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed mint. `kind` is the name of the error class."""

    kind: str
    scope: str = "none"  # what caused it: none, job, repository, account
    retry_after: float | None = None
    at_org: bool = False
    definite: bool = True


class ExclusionPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """What to exclude, for how long at first, and for how long at most when it fails repeatedly."""

    kind: str  # repository, account, github
    first: float
    longest: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a failed mint. `hold_job`: seconds until the job itself is read again."""

    outcome: str
    hold_job: float
    exclusion: ExclusionPeriod | None = None
    to_repositories: bool = False


_LIMITED = 60.0  # if GitHub sends no `retry-after`
_SOON = ExclusionPeriod(kind="github", first=5.0, longest=60.0)
_UNANSWERED = ExclusionPeriod(kind="account", first=5.0, longest=60.0)
_REFUSED = {
    "repository": ExclusionPeriod(kind="repository", first=60.0, longest=3600.0),
    "account": ExclusionPeriod(kind="account", first=60.0, longest=3600.0),
}
_KEY = ExclusionPeriod(kind="github", first=30.0, longest=300.0)
_TOKEN = ExclusionPeriod(kind="account", first=30.0, longest=300.0)


def judge(failure: Failure) -> Verdict:
    """Apply the table above."""
    kind = failure.kind
    if kind in {"BudgetExhausted", "RateLimited"}:
        wait = max(1.0, _LIMITED if failure.retry_after is None else failure.retry_after)
        all_tenants = kind == "BudgetExhausted" and failure.scope == "none"
        excluded = "github" if all_tenants else "account"
        fixed = ExclusionPeriod(kind=excluded, first=wait, longest=wait)
        return Verdict(outcome="retry", hold_job=wait, exclusion=fixed)
    if kind == "Unauthorized":
        refused = _TOKEN if failure.scope == "account" else _KEY
        return Verdict(outcome="page", hold_job=refused.first, exclusion=refused)
    if kind == "NotFound" and failure.at_org:
        return Verdict(outcome="back-to-idle", hold_job=0.0, to_repositories=True)
    if kind in {"NotFound", "NotAllowed", "NoToken", "StampInvalid"} and failure.scope in _REFUSED:
        refused = _REFUSED[failure.scope]
        return Verdict(
            outcome=f"exclude-{failure.scope}", hold_job=refused.first, exclusion=refused
        )
    if kind == "NoToken":
        return Verdict(outcome="retry", hold_job=_UNANSWERED.first, exclusion=_UNANSWERED)
    if kind in {"Unreachable", "BudgetUnknown"}:
        return Verdict(outcome="retry", hold_job=_SOON.first, exclusion=_SOON)
    if not failure.definite:
        return Verdict(outcome="retry", hold_job=_UNANSWERED.first, exclusion=_UNANSWERED)
    return Verdict(outcome="back-to-idle", hold_job=60.0)
