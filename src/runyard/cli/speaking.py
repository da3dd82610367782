"""How commands speak to GitHub: as an App, or with a token for one repository; from flags, or from what `connect` left.

Invariant: one way to say it for `runyard server`, `runyard up --github` and `runyard github`; what is missing or
contradicts itself is one line with its fix.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.githubfiles import Place, default_place
from runyard.cli.serverfiles import BadSetting, app_key, text_of, way_to
from runyard.clock import Clock
from runyard.github.app import AppAuth, Auth, TokenAuth
from runyard.http.client import HttpTransport

PUBLIC = "https://api.github.com"
_FILE = click.Path(dir_okay=False, path_type=Path)
Option = Callable[[Callable[..., Any]], Callable[..., Any]]

WHERE: tuple[Option, ...] = (  # which GitHub, and where our App is kept
    click.option(
        "--github-dir",
        envvar="RUNYARD_GITHUB_DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where `runyard github connect` keeps App, key and secret.  [default: ~/.config/runyard/github]",
    ),
    click.option(
        "--github-url",
        envvar="RUNYARD_GITHUB_URL",
        default="",
        help=f"GitHub's API; for GitHub Enterprise Server https://HOST/api/v3.  [default: {PUBLIC}]",
    ),
    click.option(
        "--github-ca-file",
        envvar="RUNYARD_GITHUB_CA_FILE",
        type=_FILE,
        help="The only authority to believe for --github-url (PEM).",
    ),
)
OPTIONS: tuple[Option, ...] = (
    *WHERE,
    click.option(
        "--github-app-id",
        envvar="RUNYARD_GITHUB_APP_ID",
        type=click.IntRange(min=1),
        help="The GitHub App's id.",
    ),
    click.option(
        "--github-key-file",
        "--github-app-key",
        "github_key_file",
        envvar="RUNYARD_GITHUB_KEY_FILE",
        type=_FILE,
        help="File with the App's private key (PEM).",
    ),
    click.option(
        "--github-token-file",
        envvar="RUNYARD_GITHUB_TOKEN_FILE",
        type=_FILE,
        help="Instead of an App: file with a personal access token, for one repository.",
    ),
    click.option(
        "--github-repository",
        envvar="RUNYARD_GITHUB_REPOSITORY",
        default="",
        help="The repository of --github-token-file: owner/name.",
    ),
)


RUNNER_GROUP: Option = click.option(
    "--runner-group",
    envvar="RUNYARD_RUNNER_GROUP",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The number of the group that an organisation's runners are in; a repository has one group only.",
)


def intake(default: str) -> Option:
    """How deliveries come."""
    return click.option(
        "--github-intake",
        envvar="RUNYARD_GITHUB_INTAKE",
        type=click.Choice(["webhook", "pull"]),
        default=default,
        show_default=True,
        help="GitHub calls the server, or deliveries are fetched (needs no public address).",
    )


def with_options(options: tuple[Option, ...]) -> Option:
    """Put these flags on a command, in their order."""

    def put(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return put


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are to GitHub, and which GitHub it is."""

    url: str
    ca: Path | None
    auth: Auth
    app_id: int = 0
    key_file: Path | None = None
    token_file: Path | None = None
    repository: str = ""
    secret: str = ""  # of the webhook, if `connect` left one

    def way(self) -> HttpTransport:
        """A way there; close it."""
        return way_to("--github-url", self.url, ca=self.ca)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `OPTIONS`."""

    github_dir: Path | None = None
    github_url: str = ""
    github_ca_file: Path | None = None
    github_app_id: int | None = None
    github_key_file: Path | None = None
    github_token_file: Path | None = None
    github_repository: str = ""


def said(given: Mapping[str, Any]) -> Said:
    """The flags about GitHub among those of a command."""
    return Said(**{name: given[name] for name in Said.__struct_fields__})


def speaker(flags: Said, *, clock: Clock) -> Speaker:
    """Who we are by these flags; `BadSetting` says what is missing."""
    by_token = flags.github_token_file is not None or bool(flags.github_repository)
    by_app = flags.github_app_id is not None or flags.github_key_file is not None
    if by_token and by_app:
        raise BadSetting(
            "--github-token-file and --github-app-id are both given. Be an App, or the holder of a token"
        )
    if by_token:
        return _holder(flags)
    if by_app:
        return _app(flags, clock)
    return _connected(flags, clock)


def _holder(flags: Said) -> Speaker:
    if flags.github_token_file is None or not flags.github_repository:
        raise BadSetting(
            "--github-token-file and --github-repository belong together: a token acts in one repository. Give both"
        )
    token = text_of("--github-token-file", flags.github_token_file)
    try:
        auth = TokenAuth(token, repository_name=flags.github_repository)
    except ValueError as error:
        raise BadSetting(
            f"--github-token-file, --github-repository: {error}. Write owner/name, and the token alone into the file"
        ) from None
    return Speaker(
        url=flags.github_url or PUBLIC,
        ca=flags.github_ca_file,
        auth=auth,
        token_file=flags.github_token_file,
        repository=flags.github_repository,
    )


def _app(flags: Said, clock: Clock) -> Speaker:
    if flags.github_app_id is None or flags.github_key_file is None:
        raise BadSetting(
            "--github-app-id and --github-key-file belong together: the App and its private key. Give both"
        )
    key = app_key(flags.github_app_id, flags.github_key_file, clock=clock)
    return Speaker(
        url=flags.github_url or PUBLIC,
        ca=flags.github_ca_file,
        auth=AppAuth(app_id=flags.github_app_id, private_key=key, clock=clock),
        app_id=flags.github_app_id,
        key_file=flags.github_key_file,
    )


def _connected(flags: Said, clock: Clock) -> Speaker:
    place = Place(flags.github_dir or default_place(os.environ))
    app = place.load()
    if app is None:
        where = f"{place.root} holds no App" if flags.github_dir else "nobody says which App it is"
        raise BadSetting(
            f"--github-app-id and --github-key-file are missing, and {where}."
            " `runyard github connect` makes one; a token for one repository is --github-token-file"
        )
    key = app_key(app.app_id, place.key, clock=clock)
    return Speaker(
        url=flags.github_url or app.github_url,
        ca=flags.github_ca_file,
        auth=AppAuth(app_id=app.app_id, private_key=key, clock=clock),
        app_id=app.app_id,
        key_file=place.key,
        secret=place.webhook_secret(),
    )
