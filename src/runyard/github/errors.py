"""Errors of a request to GitHub, by what the caller may do next.

    GitHubError
    ├── Definite             nothing was created or changed: take the reservation back
    │   ├── NotAllowed       403: not for this repository or account
    │   ├── NotFound         404: no such organisation, repository, runner, or not visible to us
    │   │   └── NoHook       the repository has no webhook with our address
    │   ├── Rejected         400, 422 and other 4xx: this request will never succeed as it is
    │   ├── Unauthorized     401: our key or token is not accepted
    │   ├── RateLimited      403 or 429 with rate-limit headers: wait `retry_after`
    │   ├── BudgetExhausted  our own budget is used up; nothing was sent
    │   ├── BudgetUnknown    our own budget could not be read; nothing was sent
    │   ├── NoToken          there was no installation token, so the call itself was never made
    │   └── Unreachable      the transport proved that nothing was sent
    └── Unknown              it may have been carried out: fence before anything is freed
        ├── NoAnswer         timeout, or a connection cut while waiting
        ├── ServerFailed     5xx: GitHub is known to create the runner and answer 503
        ├── NameTaken        409 to a mint: an earlier mint whose answer was lost has succeeded
        └── Unreadable       an answer that is not what GitHub's API promises

`scope` is what to exclude from the next choices: the `job`, its `repository`, the whole `account`, or `none`
when none of them caused the failure. `retry_after` is in seconds, if the response has one.

Invariant: no error holds a token, a JIT configuration, or a request's body or headers.
"""

from typing import Literal

Exclusion = Literal["none", "job", "repository", "account"]


class GitHubError(Exception):
    """A call to GitHub failed."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        scope: Exclusion = "none",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.scope: Exclusion = scope
        self.retry_after = retry_after


class Definite(GitHubError):
    """Nothing was created or changed at GitHub."""


class NotAllowed(Definite):
    """403 that is not a rate limit."""


class NotFound(Definite):
    """404: absent, or hidden from this installation."""


class NoHook(NotFound):
    """The repository has no webhook with the address of this server."""


class Rejected(Definite):
    """A 4xx that repeating will not change."""


class Unauthorized(Definite):
    """401, also with a fresh token."""


class RateLimited(Definite):
    """GitHub's primary or secondary limit."""


class BudgetExhausted(Definite):
    """Our own budget refuses to send; `retry_after` is always set, `scope` is the owner of the budget."""

    def __init__(self, purpose: str, *, retry_after: float, scope: Exclusion = "account") -> None:
        super().__init__(
            f"no GitHub rate budget left for {purpose!r}, retry in {retry_after:.1f} s",
            scope=scope,
            retry_after=retry_after,
        )


class BudgetUnknown(Definite):
    """Our own budget could not be read, so nothing was sent; `retry_after` is always set."""

    def __init__(self, purpose: str, *, cause: str) -> None:
        super().__init__(
            f"the GitHub rate budget for {purpose!r} cannot be read: {cause}", retry_after=5.0
        )


class NoToken(Definite):
    """There was no token for the installation, so the call itself was never made."""


class Unreachable(Definite):
    """The request certainly never reached GitHub."""


class Unknown(GitHubError):
    """The call may have been carried out."""


class NoAnswer(Unknown):
    """The request was sent and no answer arrived."""


class ServerFailed(Unknown):
    """GitHub answered with 5xx."""


class NameTaken(Unknown):
    """A runner of that name exists: most likely ours, from a mint whose answer was lost."""


class Unreadable(Unknown):
    """The response does not match the API's documentation."""


def hidden(error: GitHubError) -> bool:
    """Return whether GitHub definitely shows nothing there: deleted, access removed, or the App not installed."""
    if isinstance(error, NoToken):
        return error.scope == "account"
    return isinstance(error, NotFound | NotAllowed)
