"""What follows when GitHub does not make a runner: for the job, for its repository, its account, for everybody.

    what happened                           is called           passed over                     until the next try
    our own budget is used up               retry               the account whose budget it is  as the budget says
    the App's own budget is used up         retry               everybody                       as the budget says
    a rate limit of this installation       retry               the account                     as GitHub says
    nothing was sent, no answer, 5xx;
    our own budget could not be asked       retry               everybody                       5 s, doubling to 1 min
    no token could be had just now          retry               the account                     5 s, doubling to 1 min
    no such endpoint at the organisation    back_to_idle        nobody: at the repository next  at once
    the repository is not found, or denied  exclude_repository  the repository                  1 min, doubling to 1 h
    the account is denied or not installed  exclude_account     the account                     1 min, doubling to 1 h
    its name is no value of a label         exclude_account     the account                     1 min, doubling to 1 h
    our key is not accepted                 page                everybody                       30 s, doubling to 5 min
    this request will never succeed         back_to_idle        nobody: the job waits           1 min

After the time one try is made; only if it succeeds are the others let through, and only if it fails is the time
doubled. So a repository that can never be served costs one runner a moment now and then, and nobody else anything.
"""

import msgspec


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a failed mint. `kind` is the name of the error."""

    kind: str
    scope: str = "none"  # whose fault: none, job, repository, account
    retry_after: float | None = None
    at_org: bool = False
    definite: bool = True


class Passing(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to pass over, first for how long, and at most for how long when it fails again and again."""

    kind: str  # repository, account, github
    first: float
    longest: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What follows. `hold_job` is how long the job itself is not looked at again, in seconds."""

    outcome: str
    hold_job: float
    passing: Passing | None = None
    to_repositories: bool = False


_LIMITED = 60.0  # where nobody names a time
_SOON = Passing(kind="github", first=5.0, longest=60.0)
_TOKENLESS = Passing(kind="account", first=5.0, longest=60.0)
_REFUSED = {
    "repository": Passing(kind="repository", first=60.0, longest=3600.0),
    "account": Passing(kind="account", first=60.0, longest=3600.0),
}
_KEY = Passing(kind="github", first=30.0, longest=300.0)


def judge(failure: Failure) -> Verdict:
    """Read the table above."""
    kind = failure.kind
    if kind in {"BudgetExhausted", "RateLimited"}:
        wait = max(1.0, _LIMITED if failure.retry_after is None else failure.retry_after)
        everybody = kind == "BudgetExhausted" and failure.scope == "none"
        whom = "github" if everybody else "account"
        fixed = Passing(kind=whom, first=wait, longest=wait)
        return Verdict(outcome="retry", hold_job=wait, passing=fixed)
    if kind == "Unauthorized":
        return Verdict(outcome="page", hold_job=_KEY.first, passing=_KEY)
    if kind == "NotFound" and failure.at_org:
        return Verdict(outcome="back_to_idle", hold_job=0.0, to_repositories=True)
    if kind in {"NotFound", "NotAllowed", "NoToken", "StampInvalid"} and failure.scope in _REFUSED:
        refused = _REFUSED[failure.scope]
        return Verdict(outcome=f"exclude_{failure.scope}", hold_job=refused.first, passing=refused)
    if kind == "NoToken":
        return Verdict(outcome="retry", hold_job=_TOKENLESS.first, passing=_TOKENLESS)
    if kind == "NameTaken":
        return Verdict(outcome="retry", hold_job=0.0)  # its own earlier answer was lost: fenced
    if kind in {"Unreachable", "BudgetUnknown"} or not failure.definite:
        return Verdict(outcome="retry", hold_job=_SOON.first, passing=_SOON)
    return Verdict(outcome="back_to_idle", hold_job=60.0)
