"""`runyard server`: runs one replica of the dispatch server, with your own Postgres and cluster.

This module declares the options; `serverrun` runs the command. Exit codes: 0 stopped by a signal, 1 it failed, 2 it
could not start: a bad setting is one line with its cause and its fix.
"""

from typing import Any

import click

from runyard.cli.serverflags import flags_of, with_flags


@click.command(context_settings={"max_content_width": 110})
@with_flags
def server(**given: Any) -> None:
    """Run one replica of the dispatch server; any number may share one Postgres.

    It receives GitHub's webhooks (or fetches deliveries), assigns jobs to waiting runners, repairs inconsistencies, and
    serves the dashboard, /healthz, /readyz, /metrics and /openapi.json. SIGTERM stops it within ten seconds.

    With the App of `runyard github connect`, fetching deliveries:

    \b
    head -c 32 /dev/urandom | base64 > seal.key      once; every replica uses the same key
    runyard server --database-url-file db.url --kubeconfig server.yaml --seal-key-file seal.key

    With another App, and webhooks:

    \b
    runyard server --database-url-file db.url --kubeconfig server.yaml --seal-key-file seal.key \\
      --github-intake webhook --github-app-id 7 --github-key-file app.pem --webhook-secret-file hook.secret
    """
    from runyard.cli.serverrun import run

    run(flags_of(given))
