"""`runyard up`: runs the whole system on this machine until Ctrl-C.

This module declares the options; `uprun` runs the command. Exit codes: 0 stopped by a signal, 1 a component failed or
the demo did not go as scripted, 2 it could not start (a directory or port in use, a bad value). The first Ctrl-C stops
everything in order, the second one at once.
"""

import sys
from pathlib import Path
from typing import Any

import click

from runyard.cli.githubflags import INTAKE, OPTIONS, RUNNER_GROUP, GithubFlags, github_flags
from runyard.cli.options import is_typed, listen_option, with_options

DEMO_HOSTS = 2


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--data",
    envvar="RUNYARD_DATA",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of all state.  [default: ~/.local/share/runyard; with --demo a temporary directory]",
)
@click.option(
    "--hosts",
    type=click.IntRange(1, 50),
    help="Number of hosts to run on this machine.  [default: 1; with --demo 2]",
)
@listen_option(
    "127.0.0.1:0",
    "the server and its dashboard; if it is not loopback, also over TLS for other machines",
)
@click.option(
    "--demo", is_flag=True, help="Run 20 jobs with faults in between, count leaks, and exit."
)
@click.option("--github", is_flag=True, help="Use the real GitHub instead of the practice GitHub.")
@with_options((*OPTIONS, INTAKE, RUNNER_GROUP))
@click.option(
    "--runner",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of an unpacked actions runner (with run.sh); needed with --github.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Print only lines, without a live summary below them, also on a terminal.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, for scripts."
)
def up(
    data: Path | None,
    hosts: int | None,
    listen: str,
    *,
    demo: bool,
    plain: bool,
    as_json: bool,
    runner: Path | None,
    github: bool,
    github_intake: str,
    runner_group: int,
    **given: Any,
) -> None:
    """Run the whole fleet on this machine: Kubernetes API, Postgres, a practice GitHub, server, operator, hosts.

    \b
    runyard up                                      run until Ctrl-C; state is kept for the next start
    runyard practice 'echo hello'                   in another terminal: run a job
    kubectl --kubeconfig DATA/kubeconfig get nodes,pods,runnerpools,events
    runyard up --hosts 3                            run three hosts
    runyard up --github --runner ./actions-runner   use the App of 'runyard github connect'
    runyard up --demo                               one minute: 20 jobs, 4 faults, a count of leaks

    DATA is the directory of --data. Exit codes: 0 stopped by a signal or the demo succeeded, 1 a component failed or
    the demo did not go as scripted, 2 it could not start.
    """
    _check_github(github=github, demo=demo, runner=runner)
    from runyard.cli.uprun import UpFlags, run

    flags = UpFlags(
        # A demo uses a directory of its own, unless one is given on the command line.
        data=data if not demo or is_typed("data") else None,
        hosts=hosts or (DEMO_HOSTS if demo else 1),
        listen=listen,
        demo=demo,
        runner=runner,
        github=github_flags(given) if github else None,
        pull=github_intake == "pull",
        runner_group=runner_group,
    )
    sys.exit(run(flags, plain=plain, as_json=as_json))


def _check_github(*, github: bool, demo: bool, runner: Path | None) -> None:
    """Refuse flags about GitHub that contradict each other."""
    if not github and any(
        is_typed(name) for name in (*GithubFlags.__struct_fields__, "runner_group", "github_intake")
    ):
        raise click.UsageError("options for the real GitHub need --github")
    if github and demo:
        raise click.UsageError("--demo uses the practice GitHub; remove --github")
    if github and runner is None:
        raise click.UsageError("--github needs --runner: an unpacked actions runner")
