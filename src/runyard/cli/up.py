"""`runyard up`: runs the whole system on this machine until Ctrl-C.

This module declares the options; `uprun` runs the command. Exit codes: 0 stopped by a signal, 1 a component failed or
the demo did not go as scripted, 2 it could not start (a directory or port in use, a bad value). The first Ctrl-C stops
everything in order, the second one at once.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from runyard.cli.githubflags import INTAKE, OPTIONS, RUNNER_GROUP, GithubFlags, github_flags
from runyard.cli.options import (
    DRIVERS,
    INSECURE_REGISTRY,
    VM_SLOTS,
    Program,
    is_set,
    is_typed,
    listen_option,
    with_options,
)
from runyard.cli.pollerflags import RUNNER_DIRECTORY, RUNNER_SHA256, ArchiveSource
from runyard.cli.servicelog import keep_short, service_log

if TYPE_CHECKING:
    from runyard.cli.uprun import UpFlags

DEMO_HOSTS = 2
ACTIONS = ("install", "uninstall", "status")
_OF_ACTIONS = frozenset({"data", "as_json", "plain", *ACTIONS})
NOT_OF_THE_SERVICE = _OF_ACTIONS | {"service", "demo"}  # or added by itself


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
    "the server and its dashboard; if it is not loopback, also over TLS for other machines."
    " Hosts join at the next port, over TLS ('runyard host token')",
)
@click.option(
    "--demo", is_flag=True, help="Run 20 jobs with faults in between, count leaks, and exit."
)
@click.option("--github", is_flag=True, help="Use the real GitHub instead of the practice GitHub.")
@with_options((*OPTIONS, INTAKE, RUNNER_GROUP))
@click.option(
    "--runner",
    type=ArchiveSource(dir_okay=True),
    default="",
    metavar="PATH|URL",
    help="The actions runner. For processes: the directory of an unpacked one (with run.sh), needed with --github."
    " For VMs: its archive (.tar.gz), for images that have no runner; a URL is downloaded once, and kept.",
)
@with_options((RUNNER_SHA256, RUNNER_DIRECTORY))
@click.option(
    "--driver",
    envvar="RUNYARD_DRIVER",
    type=DRIVERS,
    default="auto",
    show_default=True,
    help="How jobs run. tart: each in a fresh macOS VM. process: each in a group of processes. auto: tart where it"
    " is installed, else process.",
)
@click.option(
    "--image",
    default="",
    metavar="REF",
    help="Image of the VMs of the pool 'practice', which rolls to it if it is another one than at the last start."
    "  [default: a stock macOS image with the actions runner]",
)
@click.option(
    "--tart-binary",
    envvar="RUNYARD_TART",
    type=Program(),
    default="tart",
    show_default=True,
    help="Path of tart, or its name on PATH.",
)
@with_options((VM_SLOTS, INSECURE_REGISTRY))
@click.option(
    "--plain",
    is_flag=True,
    help="Print only lines, without a live summary below them, also on a terminal.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, for scripts."
)
@click.option(
    "--install",
    is_flag=True,
    help="Install this command as a service that starts at boot, with the options given here.",
)
@click.option(
    "--uninstall",
    is_flag=True,
    help="Stop and remove the service; keep all data.",
)
@click.option(
    "--status",
    is_flag=True,
    help="Show what the service does; exit code 0 if it runs.",
)
@click.option(
    "--service",
    is_flag=True,
    help="Run as the service does: at the end leave VMs to the next start, and keep DATA/logs/service.log small.",
)
def up(
    data: Path | None,
    hosts: int | None,
    listen: str,
    *,
    demo: bool,
    plain: bool,
    as_json: bool,
    runner: str,
    runner_sha256: str,
    runner_directory: str,
    driver: Literal["auto", "tart", "process"],
    image: str,
    tart_binary: str,
    vm_slots: int,
    insecure_registry: tuple[str, ...],
    github: bool,
    github_intake: str,
    runner_group: int,
    service: bool,
    **given: Any,
) -> None:
    """Run the whole fleet on this machine: Kubernetes API, Postgres, a practice GitHub, server, operator, hosts.

    \b
    runyard up                                      run until Ctrl-C; state is kept for the next start
    runyard practice 'echo hello'                   in another terminal: run a job
    kubectl --kubeconfig DATA/kubeconfig get nodes,pods,runnerpools,events
    runyard up --hosts 3                            run three hosts
    runyard up --github                             use the App of 'runyard github connect'
    runyard up --image registry.example/macos:26    on a Mac with tart: run jobs in VMs of this image
    runyard up --demo                               one minute: 20 jobs, 4 faults, a count of leaks
    runyard up --install --hosts 3                  start at boot, with these options (launchd, systemd)
    runyard up --status                             the service: does it run, since when, where are its logs
    runyard up --uninstall                          stop and remove the service; all data is kept

    DATA is the directory of --data. Exit codes: 0 stopped by a signal or the demo succeeded, 1 a component failed or
    the demo did not go as scripted, 2 it could not start.
    """
    action = _action(given)
    _check_action(action, demo=demo)
    _check_github(github=github, demo=demo)
    if demo and (is_typed("driver") or image):
        raise click.UsageError("--demo runs processes; remove --driver and --image")
    if service and data is not None:
        keep_short(service_log(data))
    from runyard.cli.uprun import UpFlags, run

    flags = UpFlags(
        # A demo uses a directory of its own, unless one is given on the command line.
        data=data if not demo or is_typed("data") else None,
        hosts=hosts or (DEMO_HOSTS if demo else 1),
        listen=listen,
        joining=is_set("listen") and not demo,
        demo=demo,
        runner=runner,
        runner_sha256=runner_sha256,
        runner_directory=runner_directory,
        github=github_flags(given) if github else None,
        pull=github_intake == "pull",
        runner_group=runner_group,
        service=service,
        driver=driver,
        tart=tart_binary,
        vm_slots=vm_slots,
        image=image,
        insecure=insecure_registry,
    )
    if action is None:
        sys.exit(run(flags, plain=plain, as_json=as_json))
    sys.exit(_act(action, flags, as_json=as_json))


def _act(action: str, flags: "UpFlags", *, as_json: bool) -> int:
    """Install, remove or describe the service."""
    from runyard.cli.serviceargs import given_options
    from runyard.cli.upservice import run_install, run_status, run_uninstall
    from runyard.clock import RealClock

    clock = RealClock()
    if action == "status":
        return run_status(flags.data, as_json=as_json, clock=clock)
    if action == "uninstall":
        run_uninstall(flags.data, as_json=as_json, clock=clock)
        return 0
    given = given_options(click.get_current_context(), without=NOT_OF_THE_SERVICE)
    run_install(flags, given, as_json=as_json, clock=clock)
    return 0


def _action(given: dict[str, Any]) -> str | None:
    """What to do with the service instead of running; one of it at most."""
    wanted = [each for each in ACTIONS if given.pop(each)]
    if len(wanted) > 1:
        raise click.UsageError(f"give only one of {' and '.join(f'--{each}' for each in wanted)}")
    return wanted[0] if wanted else None


def _check_action(action: str | None, *, demo: bool) -> None:
    """Refuse options that an action does not use."""
    if action == "install" and demo:
        raise click.UsageError("--demo ends by itself; remove it, or --install")
    if action in ("uninstall", "status"):
        for option in click.get_current_context().command.params:
            name = option.name or ""
            if is_typed(name) and name not in _OF_ACTIONS:
                raise click.UsageError(
                    f"--{action} takes only --data and --json; remove {option.opts[-1]}"
                )


def _check_github(*, github: bool, demo: bool) -> None:
    """Refuse flags about GitHub that contradict each other."""
    if not github and any(
        is_typed(name) for name in (*GithubFlags.__struct_fields__, "runner_group", "github_intake")
    ):
        raise click.UsageError("options for the real GitHub need --github")
    if github and demo:
        raise click.UsageError("--demo uses the practice GitHub; remove --github")
