"""Lists pools, Pods, Nodes and node leases from Kubernetes.

An object that cannot be decoded is left out. A list that is forbidden (a role lacks a verb) is empty and named in
`Cluster.refused`; the other lists are still shown.
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
    """The listed objects, sorted by name. `refused` has the plurals of the lists that are forbidden."""

    pools: tuple[RunnerPool, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    leases: tuple[Lease, ...] = ()
    refused: tuple[str, ...] = ()


async def read_cluster(kube: Kube, *, namespace: str) -> Cluster:
    """List everything once; raises `KubeError` or `TransportError` when Kubernetes does not answer."""
    refused: list[str] = []

    async def list_kind(
        kind: Kind, type_: type[T], *, space: str = "", labels: str = ""
    ) -> tuple[T, ...] | Exception:
        try:
            listed = await kube.list_raw(kind, namespace=space, labels=labels)
            return _decoded(listed, kube.reader(type_))
        except (Forbidden, NotFound):
            refused.append(kind.plural)
            return ()
        except (KubeError, TransportError) as error:
            return error  # raising here would cancel the other lists and end in an exception group

    async with asyncio.TaskGroup() as group:
        pools = group.create_task(list_kind(RUNNER_POOLS, RunnerPool, space=namespace))
        pods = group.create_task(list_kind(PODS, Pod, space=namespace, labels=f"{RUNNER}=true"))
        nodes = group.create_task(list_kind(NODES, Node))
        leases = group.create_task(list_kind(LEASES, Lease, space=NODE_LEASE_NAMESPACE))
    return Cluster(
        pools=_unwrap(pools.result()),
        pods=_unwrap(pods.result()),
        nodes=_unwrap(nodes.result()),
        leases=_unwrap(leases.result()),
        refused=tuple(sorted(refused)),
    )


def _unwrap(result: tuple[T, ...] | Exception) -> tuple[T, ...]:
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
