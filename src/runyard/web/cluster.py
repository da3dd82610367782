"""What Kubernetes knows: pools, Pods, Nodes and their heartbeats, each list for itself.

One object that makes no sense is left out and hides no other; one list that is refused (a role that lacks a
verb) leaves its part empty and names itself, and the rest is shown.
"""

import asyncio
from typing import TypeVar

import msgspec

from runyard.http.errors import TransportError
from runyard.kube.client import Kube, RawListing
from runyard.kube.errors import Forbidden, KubeError, NotFound
from runyard.kube.kinds import LEASES, NODES, PODS, RUNNER_POOLS, Kind
from runyard.kube.objects import HasMeta, Lease, Node, Pod, Reader, RunnerPool
from runyard.wire.names import NODE_LEASE_NAMESPACE, RUNNER

T = TypeVar("T", bound=HasMeta)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was listed, sorted by name. `refused` names the lists that are not allowed."""

    pools: tuple[RunnerPool, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    leases: tuple[Lease, ...] = ()
    refused: tuple[str, ...] = ()


async def read_cluster(kube: Kube, *, namespace: str) -> Cluster:
    """List once; raises `KubeError` or `TransportError` when Kubernetes is not there."""
    refused: list[str] = []

    async def some(
        kind: Kind, type_: type[T], *, space: str = "", labels: str = ""
    ) -> tuple[T, ...] | Exception:
        try:
            listed = await kube.list_raw(kind, namespace=space, labels=labels)
            return _decoded(listed, kube.reader(type_))
        except (Forbidden, NotFound):
            refused.append(kind.plural)
            return ()
        except (KubeError, TransportError) as error:
            return error  # not raised here: that would cancel the others and come out as a group

    async with asyncio.TaskGroup() as group:
        pools = group.create_task(some(RUNNER_POOLS, RunnerPool, space=namespace))
        pods = group.create_task(some(PODS, Pod, space=namespace, labels=f"{RUNNER}=true"))
        nodes = group.create_task(some(NODES, Node))
        leases = group.create_task(some(LEASES, Lease, space=NODE_LEASE_NAMESPACE))
    return Cluster(
        pools=_got(pools.result()),
        pods=_got(pods.result()),
        nodes=_got(nodes.result()),
        leases=_got(leases.result()),
        refused=tuple(sorted(refused)),
    )


def _got(result: tuple[T, ...] | Exception) -> tuple[T, ...]:
    if isinstance(result, Exception):
        raise result
    return result


def _decoded(listed: RawListing, reader: Reader[T]) -> tuple[T, ...]:
    found: list[T] = []
    for raw in listed.items:
        try:
            found.append(reader.read(raw))
        except msgspec.MsgspecError:
            continue
    return tuple(sorted(found, key=lambda each: each.metadata.name))
