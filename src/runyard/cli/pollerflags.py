"""Flags of hosts that ask the dispatch server for jobs on behalf of their VMs."""

from pathlib import Path

import click

from runyard.cli.options import Option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
POLLING: tuple[Option, ...] = (
    click.option(
        "--server-ca-file",
        type=_FILE,
        help="Certificates (PEM) by which this host checks the server when it polls.  [default: the system's]",
    ),
    click.option(
        "--runner-directory",
        default="",
        help="Directory of the Actions runner in the VMs.  [default: ~/actions-runner, ~/runner, /opt/actions-runner]",
    ),
    click.option(
        "--runner-archive",
        type=_FILE,
        help="Actions runner (.tar.gz) that is copied into VMs whose image has none.",
    ),
)
