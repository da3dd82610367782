"""`runyard processor`: reads uploaded result bundles and stores their results in Postgres, on any machine.

This module declares the options; `processorrun` runs the command. Exit codes: 0 stopped by a signal, 1 it failed, 2 it
could not start: a bad setting is one line with its cause and its fix.
"""

from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.blobflags import BLOBS
from runyard.cli.clusterflags import probes_options
from runyard.cli.options import LOGGING, NumberRange, Option, with_options
from runyard.cli.serverflags import DATABASE


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, from the command line or the environment."""

    database_url: str
    database_url_file: Path | None
    database_connections: int
    migrate: bool
    blobs: str
    blobs_endpoint: str
    blobs_region: str
    blobs_credentials_file: Path | None
    scratch: Path
    slots: int
    memory: str
    reserve: str
    poll: float
    finish_within: float
    verify_with_xcresulttool: bool
    listen: str
    metrics_token_file: Path | None
    name: str
    as_json: bool
    log_level: str


WORK: tuple[Option, ...] = (
    click.option(
        "--scratch",
        envvar="RUNYARD_SCRATCH",
        type=click.Path(file_okay=False, path_type=Path),
        default=lambda: Path.home() / ".cache" / "runyard" / "processor",
        show_default="~/.cache/runyard/processor",
        help="Directory for temporary files; processors on one machine may share it.",
    ),
    click.option(
        "--slots",
        envvar="RUNYARD_SLOTS",
        type=click.IntRange(1, 64),
        default=2,
        show_default=True,
        help="Number of runs processed at the same time; each uses one core.",
    ),
    click.option(
        "--memory",
        envvar="RUNYARD_MEMORY",
        default="512MiB",
        show_default=True,
        help="Limit of memory for reading one bundle (Linux only).",
    ),
    click.option(
        "--reserve",
        envvar="RUNYARD_RESERVE",
        default="512MiB",
        show_default=True,
        help="Free space to keep on the filesystem of --scratch; with less, this processor takes no runs.",
    ),
    click.option(
        "--poll",
        envvar="RUNYARD_POLL",
        type=NumberRange(0.05, 60.0),
        default=1.0,
        show_default=True,
        help="Seconds between two checks of an empty queue.",
    ),
    click.option(
        "--finish-within",
        envvar="RUNYARD_FINISH_WITHIN",
        type=NumberRange(0.0, 660.0),
        default=25.0,
        show_default=True,
        help="Seconds for runs in progress to finish after SIGTERM; then they are given back.",
    ),
    click.option(
        "--verify-with-xcresulttool",
        envvar="RUNYARD_VERIFY_WITH_XCRESULTTOOL",
        is_flag=True,
        help="On a Mac with Xcode: compare each result with that of xcresulttool; count and log differences.",
    ),
)
REST: tuple[Option, ...] = (
    *probes_options(9091),
    click.option(
        "--name",
        envvar="RUNYARD_NAME",
        default="",
        help="Name in leases and logs.  [default: HOSTNAME-PID]",
    ),
    *LOGGING,
)
_POSTGRES = (
    *DATABASE[:2],
    *DATABASE[4:],
)  # it polls for work, so it needs no direct connection past a pooler


@click.command(context_settings={"max_content_width": 110})
@with_options((*_POSTGRES, *BLOBS, *WORK, *REST))
def processor(**given: Any) -> None:
    """Process uploaded Xcode result bundles; any number of processors may share one Postgres.

    It takes runs from the queue, reads their bundles (no Mac and no Xcode needed), and writes modules, suites, cases,
    failures, attachments and coverage into Postgres. If a processor dies, another one takes its runs over within 30 s.
    After SIGTERM, runs in progress may finish; the others are given back.

    \b
    runyard processor --database-url-file db.url --blobs s3://results --blobs-region eu-central-1
    runyard processor --database-url postgresql://localhost/runyard --blobs /srv/blobs --scratch /mnt/fast
    curl localhost:9091/readyz            lists problems
    """
    from runyard.cli.processorrun import run

    run(msgspec.convert(given, Flags))
