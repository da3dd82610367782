"""`runyard pool`: creates, lists, shows and deletes pools of runners, without YAML."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runyard.cli.cluster_access import OPTIONS, find_access, with_cluster_access
from runyard.cli.options import with_options
from runyard.cli.poolflags import CREATE

if TYPE_CHECKING:  # loaded when a command runs, not for --help
    from runyard.cli.cluster_access import ClusterAccess
    from runyard.cli.poolscreen import Format

_WIDTH = {"max_content_width": 110}
_OUTPUT = click.option(
    "--output",
    "-o",
    "format",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How the result is printed.",
)


@click.group(context_settings=_WIDTH)
def pool() -> None:
    """Create, show and delete pools: groups of equal runners that are kept ready for jobs.

    \b
    runyard pool create mac --image registry.example/macos-runner:sequoia --replicas 2
    runyard pool create mac --image … --dry-run -o yaml    print the RunnerPool, send nothing
    runyard pool create mac --replicas 3 --replace         change an existing pool
    runyard pool list
    runyard pool show mac
    runyard pool delete mac
    runyard explain pool mac                               why it has too few runners
    """


@pool.command(context_settings=_WIDTH)
@click.argument("name")
@with_options(CREATE)
@click.option("--replace", is_flag=True, help="Change the given fields of a pool that exists.")
@click.option(
    "--dry-run", is_flag=True, help="Print the RunnerPool (YAML, or -o json) and send nothing."
)
@click.option(
    "--output",
    "-o",
    "format",
    type=click.Choice(["json", "yaml"]),
    help="Print the RunnerPool instead of sentences.",
)
@with_options(OPTIONS)
def create(
    name: str,
    data: Path | None,
    kubeconfig: str,
    namespace: str,
    format: "Format | None",
    *,
    replace: bool,
    dry_run: bool,
    runtime: str | None,
    runtime_class: str | None,
    **fields: Any,
) -> None:
    """Create a pool, and print what a workflow writes in runs-on.

    What is left out is taken from the hosts: their group, operating system, runtime, and a slot's share of their CPU
    and memory. The same command again changes nothing; if the pool exists with other values, the differences are
    printed and nothing is changed, except with --replace. Fields that are not given keep their values.

    \b
    runyard pool create mac --image registry.example/macos-runner:sequoia --replicas 2
    runyard pool create ci --image ci:3 --labels self-hosted,Linux,X64 --dispatch-label ci --cpu 2 --memory 4Gi
    runyard pool create ci --image ci:4 --replace          roll the pool to another image
    runyard pool create ci --image ci:3 --fleet local --os linux --dry-run > ci.yaml

    Exit codes: 0 done or unchanged, 1 refused, or it exists and differs, 2 the command line or the address is wrong.
    """
    if runtime and runtime_class:
        raise click.UsageError("--runtime and --runtime-class name two classes: give one of them")
    from runyard.cli import poolrun
    from runyard.cli.poolplan import Wanted
    from runyard.wire.names import RUNTIME_CLASS_PREFIX

    given = RUNTIME_CLASS_PREFIX + runtime if runtime else runtime_class
    asked = poolrun.Create(
        name=name,
        namespace=namespace,
        wanted=Wanted(
            runtime_class=given,
            cpu_milli=fields.pop("cpu"),
            memory_mb=fields.pop("memory"),
            **fields,
        ),
        replace=replace,
        dry_run=dry_run,
        format=format or "table",
    )
    poolrun.create(lambda: find_access(data, kubeconfig, namespace), asked)


@pool.command("list", context_settings=_WIDTH)
@_OUTPUT
@with_cluster_access
def list_(access: "ClusterAccess", format: "Format") -> None:
    """List all pools with their runners, image and labels.

    \b
    runyard pool list
    runyard pool list -o wide          also fleet, runtime, size and age
    runyard pool list -o json          for scripts
    """
    from runyard.cli import poolrun

    poolrun.list_pools(access, format)


@pool.command(context_settings=_WIDTH)
@click.argument("name")
@_OUTPUT
@with_cluster_access
def show(access: "ClusterAccess", name: str, format: "Format") -> None:
    """Show one pool: its runners, image, hosts, conditions, recent events, and the runs-on line.

    \b
    runyard pool show mac
    runyard pool show mac -o yaml
    """
    from runyard.cli import poolrun

    poolrun.show(access, name, format)


@pool.command(context_settings=_WIDTH)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_cluster_access
def delete(access: "ClusterAccess", name: str, *, yes: bool) -> None:
    """Delete a pool. Idle runners are removed at once; running jobs finish, and then the pool is gone.

    Jobs whose labels lead to it wait from now on. A pool that is not there is a success.

    \b
    runyard pool delete mac
    runyard pool delete mac --yes      in a script
    """
    from runyard.cli import poolrun

    poolrun.delete(access, name, yes=yes)
