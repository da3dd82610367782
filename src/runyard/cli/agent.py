"""`runyard agent`: the node agent of one host, on any Kubernetes cluster.

This module declares the options; `agentrun` runs the command. Exit codes: 0 stopped by a signal, 1 it failed, 2 it
could not start: a bad setting is one line with its cause and its fix.
"""

from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from runyard.cli.clusterflags import KUBECONFIG, probes_options
from runyard.cli.options import (
    DRIVERS,
    INSECURE_REGISTRY,
    LOGGING,
    VM_SLOTS,
    Option,
    Program,
    is_set,
    label_value,
    with_options,
)
from runyard.cli.pollerflags import POLLING

_FOLDER = click.Path(file_okay=False, path_type=Path)


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, from the command line or the environment."""

    driver: Literal["auto", "tart", "process"]
    tart_binary: str
    vm_slots: int
    vm_slots_set: bool = False  # the option was given
    insecure_registry: tuple[str, ...]
    kubeconfig: str
    node_name: str
    node_ip: str
    fleet: str
    node_labels: str
    joined: bool
    data: Path
    images: Path
    isolation: Literal["auto", "host-network", "none"]
    server_url: str
    practice_url: str
    poller: Literal["auto", "host", "guest"]
    server_ca_file: Path | None
    runner_directory: str
    runner_archive: str
    runner_sha256: str
    pods: int | None
    pod_cpu_milli: int | None
    pod_memory_mb: int | None
    pod_disk_mb: int
    listen: str
    metrics_token_file: Path | None
    as_json: bool
    log_level: str


NODE: tuple[Option, ...] = (
    click.option(
        "--node-name",
        envvar="RUNYARD_NODE_NAME",
        default="",
        help="Name of the Node.  [default: this machine's host name]",
    ),
    click.option(
        "--node-ip",
        envvar="RUNYARD_NODE_IP",
        default="127.0.0.1",
        show_default=True,
        help="IP address of this host, as published in the Node's status.",
    ),
    click.option(
        "--fleet",
        callback=label_value,
        envvar="RUNYARD_FLEET",
        default="local",
        show_default=True,
        help="Group of this host; a RunnerPool selects hosts by it (fleetSelector).",
    ),
    click.option(
        "--node-labels",
        envvar="RUNYARD_NODE_LABELS",
        default="",
        help="Additional labels of the Node: key=value,key=value.",
    ),
)
HOST: tuple[Option, ...] = (
    click.option(
        "--driver",
        envvar="RUNYARD_DRIVER",
        type=DRIVERS,
        default="auto",
        show_default=True,
        help="How Pods are run. tart: each Pod is a macOS VM. process: each Pod is a group of processes; needs no"
        " virtual machines. auto: tart where it is installed, else process.",
    ),
    click.option(
        "--tart-binary",
        envvar="RUNYARD_TART",
        type=Program(),
        default="tart",
        show_default=True,
        help="Path of tart, or its name on PATH.",
    ),
    VM_SLOTS,
    INSECURE_REGISTRY,
    click.option(
        "--data",
        envvar="RUNYARD_AGENT_DATA",
        type=_FOLDER,
        default=lambda: Path.home() / ".local" / "share" / "runyard-agent",
        show_default="~/.local/share/runyard-agent",
        help="Directory of this agent's records, VMs and images; kept across restarts; each agent needs its own.",
    ),
    click.option(
        "--joined",
        is_flag=True,
        help="Use what 'runyard host join' wrote to --data: kubeconfig, name, labels. Renews the credential.",
    ),
    click.option(
        "--images",
        envvar="RUNYARD_IMAGES",
        type=_FOLDER,
        help="Directory that images are copied from.  [default: DATA/images]",
    ),
    click.option(
        "--isolation",
        envvar="RUNYARD_ISOLATION",
        type=click.Choice(["auto", "host-network", "none"]),
        default="auto",
        show_default=True,
        help="auto: the best sandbox that works here, with a network of its own for each Pod if slirp4netns works."
        " host-network: the same sandbox with the host's network. none: no sandbox.",
    ),
    click.option(
        "--server-url",
        envvar="RUNYARD_SERVER_URL",
        default="",
        help="Base URL of the dispatch server for runners on this host.  [default: the URL in their Pods]",
    ),
    click.option(
        "--poller",
        type=click.Choice(["auto", "host", "guest"]),
        default="auto",
        show_default=True,
        help="Who asks the server for a job: a script in the guest, or this host, which then starts the runner in the"
        " guest. auto: the host for VMs, the guest for processes. A pool's annotation runyard.dev/poller goes first.",
    ),
    *POLLING,
    click.option(
        "--practice-url",
        envvar="RUNYARD_PRACTICE_URL",
        default="",
        help="URL of a practice GitHub on this machine. Runners with a network of their own can reach it then.",
    ),
)
SIZE: tuple[Option, ...] = (
    click.option(
        "--pods",
        type=click.IntRange(1, 110),
        help="Largest number of Pods on this host.  [default: 2; of VMs as many as --vm-slots]",
    ),
    click.option(
        "--pod-cpu-milli",
        type=click.IntRange(min=1),
        help="CPU of each Pod, in thousandths of a core.  [default: 500; of VMs an equal share of this machine]",
    ),
    click.option(
        "--pod-memory-mb",
        type=click.IntRange(min=1),
        help="Memory of each Pod, in MB.  [default: 512; of VMs an equal share of this machine]",
    ),
    click.option(
        "--pod-disk-mb",
        type=click.IntRange(min=1),
        default=20_480,
        show_default=True,
        help="Disk limit of each Pod, in MB.",
    ),
)


@click.command(context_settings={"max_content_width": 110})
@with_options((KUBECONFIG, *NODE, *HOST, *SIZE, *probes_options(9093), *LOGGING))
def agent(**given: Any) -> None:
    """Run the node agent of one host: it registers a Node and runs the Pods that are scheduled to it.

    The agent runs runner Pods, and those that select hosts of its runtime and tolerate their taint by name. Jobs
    continue while it is restarted, upgraded or killed: the next agent with the same --data takes them over.
    Each agent needs its own --data and --node-name.

    First create the agent's roles and this host's account in the cluster, and a token for its kubeconfig:

    \b
    runyard manifests --component agent --host mini-1 | kubectl apply -f -
    kubectl -n tuist create token tart-kubelet-mini-1

    A machine that joined another one ('runyard host join') has all this: runyard agent --joined

    Then start the agent and check it:

    \b
    runyard agent --driver process --kubeconfig mini-1.kubeconfig --node-name mini-1 --data /srv/runyard
    curl localhost:9093/readyz                    lists problems
    """
    from runyard.cli.agentrun import run

    given["data"] = given["data"].absolute()  # shims have another working directory
    given["images"] = (given["images"] or given["data"] / "images").absolute()
    run(msgspec.convert(given | {"vm_slots_set": is_set("vm_slots")}, Flags))
