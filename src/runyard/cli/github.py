"""`runyard github`: create a GitHub App for the fleet, and check the connection.

This module declares the flags; `githubconnect` and `githubcheck` run them. Exit codes of `connect`: 0 the App is
created and installed, 1 it is not, 2 it could not start. Exit codes of `check`: 0 no check fails (warnings do not
count), 1 a check fails, 2 it could not start.
"""

import sys
from pathlib import Path
from typing import Any

import click

from runyard.cli.githubflags import INTAKE, OPTIONS, RUNNER_GROUP, WHERE, github_flags
from runyard.cli.options import with_options


@click.group(context_settings={"max_content_width": 110})
def github() -> None:
    """Connect the fleet to GitHub, and check the connection.

    \b
    runyard github connect --org acme      create an App for an organisation, in your browser
    runyard github check                   check permissions, events, rate limit, clock, deliveries
    """


@github.command()
@click.option(
    "--org", default="", help="Organisation that owns the App.  [default: your own account]"
)
@click.option("--name", default="", help="Name of the App; must be unique at GitHub.")
@with_options(WHERE)
@click.option(
    "--webhook-url",
    default="",
    help="Webhook URL, https://HOST/webhooks/github of your server.  [default: none, deliveries are fetched]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the local page; 0 is any free port.",
)
@click.option("--no-browser", is_flag=True, help="Print the URL instead of opening a browser.")
@click.option(
    "--wait",
    type=click.IntRange(1, 86400),
    default=900,
    show_default=True,
    help="Seconds to wait for you to finish in the browser.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for scripts.")
def connect(
    org: str,
    name: str,
    github_url: str,
    github_ca_file: Path | None,
    webhook_url: str,
    github_dir: Path | None,
    port: int,
    wait: int,
    *,
    no_browser: bool,
    as_json: bool,
) -> None:
    """Create a GitHub App for this fleet: confirm it in a browser, then install it.

    The App's key and secrets are written to a private directory, which `runyard server` and `runyard up --github` read
    as --github-dir. Run the command again after an interruption: an App that exists is not created twice.

    \b
    runyard github connect --org acme                       no webhooks: the server fetches deliveries
    runyard github connect --org acme --webhook-url https://runners.example/webhooks/github
    runyard github connect --org acme --no-browser          print the URL, to open it yourself
    """
    from runyard.cli.githubconnect import ConnectOptions, run

    options = ConnectOptions(
        org=org,
        name=name,
        github_url=github_url,
        ca_file=github_ca_file,
        webhook_url=webhook_url,
        port=port,
        browser=not no_browser,
        within=float(wait),
    )
    run(options, directory=github_dir, as_json=as_json)


@github.command()
@with_options((*OPTIONS, INTAKE, RUNNER_GROUP))
@click.option(
    "--runner-version",
    default="",
    help="Version of the actions runner in your images, for example 2.330.0.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def check(
    github_intake: str, runner_group: int, runner_version: str, *, as_json: bool, **given: Any
) -> None:
    """Check whether GitHub is configured as the fleet needs it; each line names a problem and its fix.

    The command only reads; it changes nothing at GitHub. Give it the same GitHub options as `runyard server`.

    \b
    runyard github check                                    the App of `runyard github connect`
    runyard github check --runner-version 2.330.0           also check the runner in your images
    runyard github check --github-token-file token --github-repository acme/app

    Exit codes: 0 no check failed (warnings are allowed), 1 a check failed, 2 it could not start.
    """
    from runyard.cli.githubcheck import CheckOptions, run

    options = CheckOptions(
        intake=github_intake, runner_group=runner_group, runner_version=runner_version
    )
    sys.exit(0 if run(github_flags(given), options, as_json=as_json) else 1)
