"""`runyard doctor`: checks whether this machine can run jobs, tonight and after its next restart.

This module declares the flags; `doctorrun` runs the checks. Exit codes: 0 no problem (warnings do not count), 1
problems were found, 2 wrong usage.
"""

import sys
from pathlib import Path

import click

from runyard.cli.options import DATA


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--only",
    metavar="ID",
    multiple=True,
    help="Make this check only; may be given several times. --list shows the ids.",
)
@click.option("--list", "listed", is_flag=True, help="List the checks of this machine; make none.")
@click.option("--verbose", is_flag=True, help="Also show what is fine, and what was looked at.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@DATA
@click.option(
    "--agent-data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the agent here.  [default: RUNYARD_AGENT_DATA, its service's, or ~/.local/share/runyard-agent]",
)
def doctor(
    only: tuple[str, ...],
    data: Path | None,
    agent_data: Path | None,
    *,
    listed: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Check whether this machine can run jobs, tonight and after its next restart.

    Each finding has its fix, problems first; the last line is your next step. The command changes nothing and needs no
    root. What it cannot check is listed as unknown, with the reason.

    \b
    runyard doctor                         all checks of this machine
    runyard doctor --verbose               what is fine too, and how it was checked
    runyard doctor --only sleep            one check
    runyard doctor --json                  for scripts and monitoring

    Exit codes: 0 no problem (warnings are allowed), 1 problems were found, 2 wrong usage.
    """
    from runyard.cli.doctorrun import Options, run

    options = Options(
        only=only,
        data=data,
        agent_data=agent_data,
        listed=listed,
        verbose=verbose,
        as_json=as_json,
    )
    sys.exit(0 if run(options) else 1)
