"""Options of GitHub, for `runyard server`, `runyard up --github` and `runyard github`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.options import Option

PUBLIC = "https://api.github.com"
_FILE = click.Path(dir_okay=False, path_type=Path)

WHERE: tuple[Option, ...] = (  # which GitHub, and the directory of our App
    click.option(
        "--github-dir",
        envvar="RUNYARD_GITHUB_DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Directory of the App, saved by `runyard github connect`.  [default: ~/.config/runyard/github]",
    ),
    click.option(
        "--github-url",
        envvar="RUNYARD_GITHUB_URL",
        default="",
        help=f"URL of GitHub's API; for GitHub Enterprise Server https://HOST/api/v3.  [default: {PUBLIC}]",
    ),
    click.option(
        "--github-ca-file",
        envvar="RUNYARD_GITHUB_CA_FILE",
        type=_FILE,
        help="The only certificate authority trusted for --github-url (PEM).",
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
    help="Id of the runner group in which an organisation's runners are registered; repositories have no groups.",
)


INTAKE: Option = click.option(
    "--github-intake",
    envvar="RUNYARD_GITHUB_INTAKE",
    type=click.Choice(["webhook", "pull"]),
    default="pull",
    show_default=True,
    help="pull: the server fetches deliveries; needs no public address. webhook: GitHub sends them to the server.",
)


class GithubFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Values of `OPTIONS`."""

    github_dir: Path | None = None
    github_url: str = ""
    github_ca_file: Path | None = None
    github_app_id: int | None = None
    github_key_file: Path | None = None
    github_token_file: Path | None = None
    github_repository: str = ""


def github_flags(given: Mapping[str, Any]) -> GithubFlags:
    """Select the GitHub options from all options of a command."""
    return GithubFlags(**{name: given[name] for name in GithubFlags.__struct_fields__})
