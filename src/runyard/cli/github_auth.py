"""Authenticates commands at GitHub: as an App or with a token for one repository, from flags or from `connect`'s files.

Invariant: `runyard server`, `runyard up --github` and `runyard github` have the same options; missing or contradictory
ones become one line with its fix.
"""

import os
from pathlib import Path

import msgspec

from runyard.cli.githubfiles import AppDirectory, default_directory
from runyard.cli.githubflags import PUBLIC, GithubFlags
from runyard.cli.options import BadSetting
from runyard.cli.serverfiles import app_key, text_of, transport_to
from runyard.clock import Clock
from runyard.github.app import AppAuth, Auth, TokenAuth
from runyard.http.client import HttpTransport


class GithubIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for GitHub, and the URL of its API."""

    url: str
    ca: Path | None
    auth: Auth
    app_id: int = 0
    key_file: Path | None = None
    token_file: Path | None = None
    repository: str = ""
    secret: str = ""  # of the webhook, if `connect` saved one

    def transport(self) -> HttpTransport:
        """A transport to GitHub; the caller closes it."""
        return transport_to("--github-url", self.url, ca=self.ca)


def github_identity(flags: GithubFlags, *, clock: Clock) -> GithubIdentity:
    """The identity given by the options; raises `BadSetting`."""
    by_token = flags.github_token_file is not None or bool(flags.github_repository)
    by_app = flags.github_app_id is not None or flags.github_key_file is not None
    if by_token and by_app:
        raise BadSetting("--github-token-file and --github-app-id are both given. Give one of them")
    if by_token:
        return _token_identity(flags)
    if by_app:
        return _app_identity(flags, clock)
    return _stored_identity(flags, clock)


def _token_identity(flags: GithubFlags) -> GithubIdentity:
    if flags.github_token_file is None or not flags.github_repository:
        raise BadSetting(
            "--github-token-file and --github-repository belong together: a token is used for one repository. Give both"
        )
    token = text_of("--github-token-file", flags.github_token_file)
    try:
        auth = TokenAuth(token, repository_name=flags.github_repository)
    except ValueError as error:
        raise BadSetting(
            f"--github-token-file, --github-repository: {error}. Write owner/name; the file must contain the token only"
        ) from None
    return GithubIdentity(
        url=flags.github_url or PUBLIC,
        ca=flags.github_ca_file,
        auth=auth,
        token_file=flags.github_token_file,
        repository=flags.github_repository,
    )


def _app_identity(flags: GithubFlags, clock: Clock) -> GithubIdentity:
    if flags.github_app_id is None or flags.github_key_file is None:
        raise BadSetting(
            "--github-app-id and --github-key-file belong together: the App and its private key. Give both"
        )
    key = app_key(flags.github_app_id, flags.github_key_file, clock=clock)
    return GithubIdentity(
        url=flags.github_url or PUBLIC,
        ca=flags.github_ca_file,
        auth=AppAuth(app_id=flags.github_app_id, private_key=key, clock=clock),
        app_id=flags.github_app_id,
        key_file=flags.github_key_file,
    )


def _stored_identity(flags: GithubFlags, clock: Clock) -> GithubIdentity:
    directory = AppDirectory(flags.github_dir or default_directory(os.environ))
    app = directory.load()
    if app is None:
        where = (
            f"{directory.root} contains no App"
            if flags.github_dir
            else "no App was created on this machine"
        )
        raise BadSetting(
            f"--github-app-id and --github-key-file are missing, and {where}."
            " Create one with `runyard github connect`, or give --github-token-file for one repository"
        )
    key = app_key(app.app_id, directory.key, clock=clock)
    return GithubIdentity(
        url=flags.github_url or app.github_url,
        ca=flags.github_ca_file,
        auth=AppAuth(app_id=app.app_id, private_key=key, clock=clock),
        app_id=app.app_id,
        key_file=directory.key,
        secret=directory.webhook_secret(),
    )
