"""The scope at which a runner is registered: an organisation or one repository.

A scope is written as text in rows and logs, `orgs/acme` or `repos/acme/app`, and that text is also the
beginning of GitHub's path for it. It includes the installation whose token has access to it.

Invariant: a `Scope` that exists is safe to put into a path. Names are checked when it is made, so a
hostile repository name cannot address another endpoint.
"""

import re
from typing import Literal

import msgspec

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """An organisation (`repo` is empty) or a repository, and the installation that may act there."""

    owner: str
    installation_id: int
    repo: str = ""

    def __post_init__(self) -> None:
        names = (self.owner, self.repo) if self.repo else (self.owner,)
        for name in names:
            if _NAME.fullmatch(name) is None or name in (".", ".."):
                raise ValueError(f"not a name at GitHub: {name[:100]!r}")
        if self.installation_id <= 0:
            raise ValueError(f"not an installation: {self.installation_id}")

    @property
    def kind(self) -> Literal["orgs", "repos"]:
        """Which family of endpoints serves this scope."""
        return "repos" if self.repo else "orgs"

    def __str__(self) -> str:
        return f"repos/{self.owner}/{self.repo}" if self.repo else f"orgs/{self.owner}"

    def organisation(self) -> "Scope":
        """The owner of this scope, as an organisation."""
        return Scope(owner=self.owner, installation_id=self.installation_id)


def organisation(owner: str, *, installation_id: int) -> Scope:
    """The scope `orgs/{owner}`."""
    return Scope(owner=owner, installation_id=installation_id)


def repository(full_name: str, *, installation_id: int) -> Scope:
    """The scope of a repository given as `owner/name`; raises `ValueError` on anything else."""
    owner, slash, repo = full_name.partition("/")
    if not slash or not repo:
        raise ValueError(f"not owner/name: {full_name[:200]!r}")
    return Scope(owner=owner, repo=repo, installation_id=installation_id)


def parse(text: str, *, installation_id: int) -> Scope:
    """Read what `str(scope)` wrote; raises `ValueError` on anything else."""
    kind, _, rest = text.partition("/")
    if kind == "orgs":
        return organisation(rest, installation_id=installation_id)
    if kind == "repos":
        return repository(rest, installation_id=installation_id)
    raise ValueError(f"not a scope: {text[:200]!r}")
