"""Reads RunnerPools with their runners, hosts and events, and counts what they do, as `runyard pool` shows it.

The counts come from the operator's own predicates on the same Pods: what is busy here is what the operator protects.
The shape of `PoolReport` is the JSON that `--output json` prints; fields are added and never renamed.
"""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from runyard.cli.poolplan import able_hosts
from runyard.dispatch.pools import view_of
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import EVENTS, NODES, PODS, RUNNER_POOLS, Kind
from runyard.kube.objects import Meta, Node, Pod, RunnerPool
from runyard.pools.plans import predicates
from runyard.pools.plans.views import RunnerView
from runyard.pools.projection import project_pool, project_runner
from runyard.wire import names
from runyard.wire.instants import from_rfc3339
from runyard.wire.runnerpool import PoolSpec

_EVENTS = 10
T = TypeVar("T")


class PoolCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that the operator published: `reason` is the code, `text` the sentence."""

    type: str
    holds: bool
    reason: str
    text: str
    since: float | None = None


class PoolEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the pool; `count` are its repetitions."""

    at: float | None
    warning: bool
    reason: str
    text: str
    count: int


class PoolHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that has runners of the pool, or could have."""

    name: str
    runners: int
    able: bool  # it could take another one, if a slot is free


class PoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pool and what its runners do. Moments are seconds since the epoch."""

    name: str
    namespace: str
    desired: int
    ready: int  # idle, and able to take a job at once
    busy: int
    starting: int
    rolling: int  # runners of an older image or runtime
    stopping: int  # being deleted, or ended and not yet removed
    image: str
    runs_on: tuple[str, ...]  # the labels that a workflow writes
    deleting: bool
    created_at: float | None
    spec: PoolSpec
    conditions: tuple[PoolCondition, ...] = ()
    hosts: tuple[PoolHost, ...] = ()
    events: tuple[PoolEvent, ...] = ()
    unread: tuple[str, ...] = ()  # what could not be read, and why


class _Involved(msgspec.Struct, frozen=True):
    uid: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """A Kubernetes event, as far as it is shown."""

    metadata: Meta
    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: str = ""
    last_timestamp: str = ""
    event_time: str = ""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What was read; `unread` says what could not be."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    events: tuple[Event, ...] = ()
    unread: tuple[str, ...] = ()


async def read_others(kube: Kube, namespace: str, *, pool: str = "", events: bool = False) -> Read:
    """The Pods, the hosts and, if wanted, the events. Each that cannot be read is empty and named."""
    labels = f"{names.RUNNER_POOL}={pool}" if pool else f"{names.RUNNER}=true"
    fields = f"involvedObject.kind={names.POOL_KIND},involvedObject.name={pool}"
    unread: list[str] = []

    async def list_kind(what: str, kind: Kind, type_: type[T], **more: str) -> tuple[T, ...]:
        try:
            return await kube.list_as(kind, type_, **more)
        except (KubeError, TransportError) as error:
            unread.append(f"{what}: {error}")
            return ()

    async with asyncio.TaskGroup() as group:
        pods = group.create_task(
            list_kind("runners", PODS, Pod, namespace=namespace, labels=labels)
        )
        nodes = group.create_task(list_kind("hosts", NODES, Node))
        found: asyncio.Task[tuple[Event, ...]] | None = None
        if events:
            found = group.create_task(
                list_kind("events", EVENTS, Event, namespace=namespace, fields=fields)
            )
    return Read(
        pods=pods.result(),
        nodes=nodes.result(),
        events=() if found is None else found.result(),
        unread=tuple(sorted(unread)),
    )


async def read_pool(kube: Kube, name: str, namespace: str) -> RunnerPool:
    """One pool; `NotFound` if it is not there."""
    return await kube.get_as(RUNNER_POOLS, name, RunnerPool, namespace=namespace)


async def read_pools(kube: Kube, namespace: str) -> tuple[RunnerPool, ...]:
    """All pools, by name."""
    found = await kube.list_as(RUNNER_POOLS, RunnerPool, namespace=namespace)
    return tuple(sorted(found, key=lambda pool: pool.metadata.name))


def report(pool: RunnerPool, read: Read) -> PoolReport:
    """What is known of one pool."""
    view = project_pool(pool)
    pods = [p for p in read.pods if p.metadata.labels.get(names.RUNNER_POOL) == view.name]
    runners = [project_runner(each) for each in pods]
    alive = [each for each in runners if predicates.alive(each)]
    idle = [each for each in alive if predicates.idle(each)]
    ready = sum(predicates.warm(each, view) for each in idle)
    return PoolReport(
        name=view.name,
        namespace=view.namespace,
        desired=view.spec.replicas,
        ready=ready,
        busy=len(alive) - len(idle),
        starting=len(idle) - ready,
        rolling=sum(predicates.stale(each, view) for each in alive),
        stopping=len(runners) - len(alive),
        image=view.spec.image,
        runs_on=view_of(pool).mint_labels,
        deleting=view.deleting,
        created_at=_instant(pool.metadata.creation_timestamp),
        spec=view.spec,
        conditions=tuple(
            PoolCondition(
                type=each.type,
                holds=each.status == "True",
                reason=each.reason,
                text=each.message,
                since=_instant(each.last_transition_time),
            )
            for each in pool.status.conditions
        ),
        hosts=_hosts(pool, alive, read.nodes),
        events=_events(view.uid, read.events),
        unread=read.unread,
    )


def _hosts(
    pool: RunnerPool, alive: Iterable[RunnerView], nodes: tuple[Node, ...]
) -> tuple[PoolHost, ...]:
    runners = [each.node for each in alive if each.node]
    able = {node.metadata.name for node in able_hosts(pool, nodes)}
    return tuple(
        PoolHost(name=name, runners=runners.count(name), able=name in able)
        for name in sorted({*runners, *able})
    )


def _events(uid: str, events: Iterable[Event]) -> tuple[PoolEvent, ...]:
    """The newest events of this pool, and not of an earlier one of the same name; newest first."""
    own = [
        PoolEvent(
            at=_instant(each.last_timestamp or each.event_time or each.first_timestamp),
            warning=each.type == "Warning",
            reason=each.reason,
            text=each.message,
            count=max(1, each.count),
        )
        for each in events
        if each.involved_object.uid == uid
    ]
    return tuple(sorted(own, key=lambda each: -(each.at or 0.0))[:_EVENTS])


def _instant(text: str) -> float | None:
    try:
        return from_rfc3339(text) if text else None
    except ValueError:
        return None
