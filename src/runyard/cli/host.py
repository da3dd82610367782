"""`runyard host`: other machines that run jobs for this one.

This module declares the options; `hostrun` (on the main machine), `hostjoin` and `hostservice` (on the other one) run
the commands.
Exit codes: 0 success, 1 it was refused or took too long, 2 wrong usage, or nothing answers.
"""

import re
import sys
from pathlib import Path
from typing import Any, Literal

import click

from runyard.cli.options import DATA, DRIVERS, INSECURE_REGISTRY, Option, Program, with_options
from runyard.cli.pollerflags import RUNNER_DIRECTORY, RUNNER_SHA256, ArchiveSource

_WIDTH = {"max_content_width": 110}
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_KUBECONFIG = click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig of a cluster, instead of the machine of 'runyard up'.",
)
_MAIN: tuple[Option, ...] = (DATA, _KUBECONFIG, _JSON)
_AGENT_DATA = click.option(
    "--data",
    envvar="RUNYARD_AGENT_DATA",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the agent.  [default: ~/.local/share/runyard-agent]",
)
_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LEAST, _MOST = 60, 7 * 86400


class Duration(click.ParamType[float]):
    """A number with a unit: 90s, 30m, 1h, 2d."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the text to seconds."""
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration. Write it as 90s, 30m, 1h or 2d", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


@click.group(context_settings=_WIDTH)
def host() -> None:
    """Add other machines as hosts, and list, drain and remove hosts.

    \b
    runyard up --listen 0.0.0.0:7443     on the main machine: hosts join at the next port
    runyard host token                   on the main machine: prints the command for the other one
    runyard host join URL TOKEN          on the other machine
    runyard host list                    on the main machine
    runyard host drain mini-2            no new jobs there; waits until the running ones are done
    runyard host leave                   on the other machine: removes the agent's service and the credential
    runyard host remove mini-2           on the main machine: ends the credential
    """


@host.command()
@click.option(
    "--ttl", type=Duration(), default="1h", show_default=True, help="How long it can be used."
)
@click.option("--name", default="", help="Name that the host must join with.  [default: any]")
@click.option(
    "--address",
    metavar="HOST[:PORT]",
    default="",
    help="Name or address of this machine in the printed URL, and a port that leads here.  [default: where it listens]",
)
@click.option("--list", "listed", is_flag=True, help="List tokens: used, expired, valid.")
@click.option("--revoke", metavar="ID", default="", help="Revoke the token with this id.")
@with_options((DATA, _JSON))
def token(
    *,
    ttl: float,
    name: str,
    address: str,
    listed: bool,
    revoke: str,
    data: Path | None,
    as_json: bool,
) -> None:
    """Make a token with which one other machine can join, once, and print the command to type there.

    \b
    runyard host token
    runyard host token --ttl 15m --name mini-2
    runyard host token --list
    runyard host token --revoke 1f2e3d4c5b

    The token contains a hash of this machine's certificate authority, so the other machine can prove that it talks to
    this one. It is stored hashed, and shown only once.
    """
    from runyard.cli import hostrun

    if listed and revoke:
        raise click.UsageError("give either --list or --revoke")
    if not _LEAST <= ttl <= _MOST:
        raise click.UsageError("--ttl is between 60s and 7d")
    if listed:
        hostrun.list_tokens(data, as_json=as_json)
    elif revoke:
        hostrun.revoke_token(data, revoke, as_json=as_json)
    else:
        hostrun.make_token(data, ttl=ttl, name=name, address=address, as_json=as_json)


@host.command()
@click.argument("url")
@click.argument("token")
@click.option("--name", default="", help="Name of this host.  [default: this machine's name]")
@_AGENT_DATA
@click.option(
    "--driver",
    envvar="RUNYARD_DRIVER",
    type=DRIVERS,
    default="auto",
    show_default=True,
    help="How Pods are run; auto: the best one that works here.",
)
@click.option("--labels", default="", help="Additional labels of the Node: key=value,key=value.")
@click.option(
    "--runner",
    type=ArchiveSource(dir_okay=True),
    default="",
    metavar="PATH|URL",
    help="The actions runner. For processes: the directory of an unpacked one (with run.sh), needed if the main machine"
    " uses the real GitHub. For VMs: its archive (.tar.gz), for images that have no runner.",
)
@with_options((RUNNER_SHA256, RUNNER_DIRECTORY))
@click.option(
    "--tart-binary",
    envvar="RUNYARD_TART",
    type=Program(),
    default="tart",
    show_default=True,
    help="Path of tart, or its name on PATH.",
)
@click.option(
    "--vm-slots",
    type=click.IntRange(1, 64),
    help="VMs of tart that may run at once, those of other tools included; macOS allows two.  [default: 2]",
)
@INSECURE_REGISTRY
@click.option(
    "--no-service",
    is_flag=True,
    help="Install no service; print the command that starts the agent.",
)
@_JSON
def join(
    *,
    url: str,
    token: str,
    name: str,
    data: Path | None,
    driver: Literal["auto", "tart", "process"],
    labels: str,
    runner: str,
    runner_sha256: str,
    runner_directory: str,
    tart_binary: str,
    vm_slots: int | None,
    insecure_registry: tuple[str, ...],
    no_service: bool,
    as_json: bool,
) -> None:
    """Join the machine at URL as a host: it sends jobs here.

    \b
    runyard host join https://192.168.1.10:7444 TOKEN
    runyard host join https://192.168.1.10:7444 - < token-file      not visible in the list of processes
    runyard host join https://192.168.1.10:7444 TOKEN --name mini-2 --no-service

    'runyard host token' on the main machine prints URL and TOKEN. The token is sent only to a machine with the
    certificate authority that the token names. Joining again from the same machine, with another token, replaces the
    credential and all options, and starts the agent anew. The agent renews the credential by itself while it runs.
    """
    from runyard.cli import hostjoin
    from runyard.clock import RealClock

    hostjoin.join(
        hostjoin.JoinFlags(
            url=url,
            token=token,
            name=name,
            data=data,
            driver=driver,
            labels=labels,
            runner=runner,
            runner_sha256=runner_sha256,
            runner_directory=runner_directory,
            tart=tart_binary,
            slots=vm_slots,
            insecure=insecure_registry,
        ),
        service=not no_service,
        as_json=as_json,
        clock=RealClock(),
    )


@host.command()
@with_options((_AGENT_DATA, _JSON))
def status(*, data: Path | None, as_json: bool) -> None:
    """On a machine that joined: where it has joined, and whether its agent runs (exit code 0), also without a service.

    \b
    runyard host status
    """
    from runyard.cli import hostservice
    from runyard.clock import RealClock

    sys.exit(hostservice.run_status(data, as_json=as_json, clock=RealClock()))


@host.command()
@click.option("--force", is_flag=True, help="Also if runners still run here; their jobs end.")
@with_options((_AGENT_DATA, _JSON))
def leave(*, force: bool, data: Path | None, as_json: bool) -> None:
    """On a machine that joined: stop and remove the agent's service, and remove the credential.

    \b
    runyard host drain mini-2                    on the main machine: no new jobs; waits for the running ones
    runyard host leave                           on the other machine
    runyard host remove mini-2                   on the main machine

    Data and images are kept. It can be repeated.
    """
    from runyard.cli import hostservice
    from runyard.clock import RealClock

    hostservice.run_leave(data, force=force, as_json=as_json, clock=RealClock())


@host.command("list")
@with_options(_MAIN)
def list_(*, data: Path | None, kubeconfig: str, as_json: bool) -> None:
    """List the hosts: ready, driver, version, slots, last heartbeat.

    \b
    runyard host list
    runyard host list --json
    """
    from runyard.cli import hostrun

    hostrun.list_hosts(hostrun.Main(data, kubeconfig), as_json=as_json)


@host.command()
@click.argument("name")
@click.option(
    "--timeout", type=Duration(), default="6h", show_default=True, help="How long to wait."
)
@click.option("--no-wait", is_flag=True, help="Return at once; jobs there finish all the same.")
@with_options(_MAIN)
def drain(
    *, name: str, timeout: float, no_wait: bool, data: Path | None, kubeconfig: str, as_json: bool
) -> None:
    """Send no more jobs to a host, and wait until its running jobs are done.

    \b
    runyard host drain mini-2
    runyard host drain mini-2 --timeout 30m      exit code 1 if a job still runs then; the host stays cordoned
    runyard host undrain mini-2                  takes jobs again
    """
    from runyard.cli import hostrun

    main = hostrun.Main(data, kubeconfig)
    hostrun.drain(main, name, within=0.0 if no_wait else timeout, as_json=as_json)


@host.command()
@click.argument("name")
@with_options(_MAIN)
def undrain(*, name: str, data: Path | None, kubeconfig: str, as_json: bool) -> None:
    """Send jobs to a host again.

    \b
    runyard host undrain mini-2
    """
    from runyard.cli import hostrun

    hostrun.undrain(hostrun.Main(data, kubeconfig), name, as_json=as_json)


@host.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if jobs run there; they are lost to the fleet.")
@with_options((DATA, _JSON))
def remove(*, name: str, force: bool, data: Path | None, as_json: bool) -> None:
    """Remove a host that joined: its credential ends at once, and its Node is deleted.

    \b
    runyard host drain mini-2 && runyard host remove mini-2
    runyard host remove mini-2 --force           the machine is gone or broken
    """
    from runyard.cli import hostrun

    hostrun.remove(data, name, force=force, as_json=as_json)
