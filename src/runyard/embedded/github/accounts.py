"""Holds where the App is installed and what it may access there. Names match in any case, as at GitHub."""

from runyard.embedded.github.model import Installation, Repo


class Accounts:
    """All installations, by id and by the account's name."""

    def __init__(self) -> None:
        self.installations: dict[int, Installation] = {}
        self._named: dict[str, Installation] = {}

    def add(self, installation: Installation) -> None:
        """Adds an installation."""
        self.installations[installation.id] = installation
        self._named[installation.account.lower()] = installation

    def named(self, name: str) -> Installation | None:
        """The installation at an account."""
        return self._named.get(name.lower())

    def owner(self, repo: Repo) -> Installation:
        """The installation at the account of a repository that the App may access."""
        return self._named[repo.owner.lower()]

    def repo(self, owner: str, name: str) -> Repo | None:
        """A repository that the App may access."""
        installation = self.named(owner)
        return None if installation is None else installation.repos.get(name.lower())

    def same(self, repo: Repo) -> Repo:
        """The one record of a repository, for a stored record that holds a copy of it."""
        return self.owner(repo).repos[repo.name.lower()]
