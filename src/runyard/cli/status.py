"""`runyard status`: the whole fleet on one screen, with one verdict."""

from pathlib import Path

import click

from runyard.cli.options import NumberRange
from runyard.cli.server_client import ServerClient, find_server, server_options


@click.command(context_settings={"max_content_width": 110})
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts (docs/status.md).")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every",
    type=NumberRange(0.5, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes of --watch.",
)
@server_options
def status(
    server: str | None,
    data: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    every: float,
    *,
    as_json: bool,
    watch: bool,
) -> None:
    """Show the whole fleet on one screen: one verdict, then components, hosts, pools, jobs, and what to do.

    The verdict is the dashboard's. Every problem has its fix, and the oldest waiting job the reason why it waits. What
    cannot be read is named; the rest is shown.

    \b
    runyard status                         of 'runyard up' on this machine
    runyard status --watch
    runyard status --server https://runners.example --token-file dashboard.token
    runyard status --json | jq .state

    Exit codes: 0 healthy, 1 degraded or critical, 2 it cannot be told.
    """
    from runyard.cli import statusrun

    def find() -> ServerClient:
        return find_server(server, data=data, token_file=token_file, ca_file=ca_file)

    if watch:
        statusrun.watch(find, data, every=every, as_json=as_json)
    click.get_current_context().exit(statusrun.show_once(find, data, as_json=as_json))
