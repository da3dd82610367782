"""Finds the Kubernetes API for commands that a person types: that of `runyard up` on this machine, or a cluster.

The first of these is used, and its name is printed, so that nobody changes the wrong fleet: `--kubeconfig`, `--data`,
RUNYARD_DATA, KUBECONFIG, the machine of the default data directory. `~/.kube/config` is not searched: a fleet is only
changed where somebody named it.

Invariants: the machine's own kubeconfig (the administrator's, readable by its owner alone) is used only while the
machine runs; a refusal of the API is one line in the API's words; no credential is printed.
"""

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from runyard.cli.clusterflags import NAMESPACE
from runyard.cli.local_machine import Unreachable, machine_root, require_running
from runyard.cli.options import DATA, Failed, Option, is_typed, with_options
from runyard.text import harmless

if TYPE_CHECKING:  # loaded when a request is sent, not for --help
    from runyard.kube.client import Kube

T = TypeVar("T")
OPTIONS: tuple[Option, ...] = (
    DATA,
    click.option(
        "--kubeconfig",
        default="",
        help="Kubeconfig of a cluster, instead of a machine of 'runyard up'.  [default: KUBECONFIG, unless"
        " RUNYARD_DATA is set]",
    ),
    NAMESPACE,
)
_TIMEOUT = 15.0


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How the API is reached; `kubeconfig` is empty for that of KUBECONFIG."""

    kubeconfig: str
    namespace: str
    where: str  # for people

    def run(self, work: "Callable[[Kube], Awaitable[T]]") -> T:
        """Run `work` with a client; raises `Failed` for a refusal and `Unreachable` without an answer."""
        import asyncio

        from runyard.http.errors import TransportError
        from runyard.kube.errors import KubeError

        try:
            return asyncio.run(self._run(work))
        except KubeError as error:
            raise Failed(f"{self.where} refused: {refusal(error)}") from None
        except TransportError as error:
            message = f"{self.where} does not respond: {error}. Check that it runs"
            raise Unreachable(harmless(message)) from None

    async def _run(self, work: "Callable[[Kube], Awaitable[T]]") -> T:
        from runyard.cli.cluster import cluster
        from runyard.clock import RealClock
        from runyard.kube.client import Kube

        transport, _ = cluster(self.kubeconfig, clock=RealClock(), agent="runyard")
        try:
            return await work(Kube(transport, agent="runyard", timeout=_TIMEOUT))
        finally:
            await transport.close()


def refusal(error: Exception) -> str:
    """The API's own words, without the request that we sent, and what to do where that is known."""
    from runyard.kube.errors import Forbidden, KubeError, Unauthorized

    if not isinstance(error, KubeError):
        return harmless(str(error))
    text = error.message.partition(": ")[2] or error.message
    if isinstance(error, Forbidden):
        text += ". Use a kubeconfig whose account may do that"
    if isinstance(error, Unauthorized):
        text += ". Check the credential in the kubeconfig"
    return harmless(text)


def with_cluster_access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the API to a command; it gets `access`."""

    @with_options(OPTIONS)
    @functools.wraps(command)
    def with_access(
        *args: Any, data: Path | None, kubeconfig: str, namespace: str, **more: Any
    ) -> Any:
        return command(*args, access=find_access(data, kubeconfig, namespace), **more)

    return with_access


def find_access(data: Path | None, kubeconfig: str, namespace: str) -> ClusterAccess:
    """The API of these options, or `Unreachable`; called in a command that has them."""
    given = kubeconfig or ("" if data is not None else os.environ.get("KUBECONFIG", ""))
    if kubeconfig and data is not None and is_typed("data"):
        raise click.UsageError("--data and --kubeconfig name two fleets: give one of them")
    if given:
        return ClusterAccess(
            kubeconfig=kubeconfig, namespace=namespace, where=f"the cluster of {given}"
        )
    from runyard.embedded.up.layout import Layout

    root = machine_root(data)
    require_running(root, or_else="give --kubeconfig FILE for a cluster")
    path = Layout(root).kubeconfig
    return ClusterAccess(kubeconfig=str(path), namespace=namespace, where=f"the machine of {root}")
