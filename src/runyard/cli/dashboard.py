"""`runyard dashboard`: prints a link that opens the dashboard in a browser."""

import click

from runyard.cli.server_client import ServerClient, with_server_client
from runyard.wire.login import LOGIN_LINKS, LoginLink


@click.command(context_settings={"max_content_width": 110})
@with_server_client
def dashboard(client: ServerClient) -> None:
    """Print a link that opens the dashboard in a browser. It works once, for five minutes; the session lasts a week.

    \b
    runyard dashboard                                   of 'runyard up' on this machine
    runyard dashboard --server https://runners.example --token-file dashboard.token

    The server keeps open links in memory: with several replicas behind one address, log in with the token instead.

    Exit codes: 0 printed, 1 the server refuses, 2 the server does not respond.
    """
    link = client.read(LoginLink, "POST", LOGIN_LINKS)
    click.echo(f"{client.server.rstrip('/')}{link.path}")
