"""Lists the hosts of a fleet, and changes what they take: cordon, drain, remove.

Draining is a cordon: no new Pods, and the pool operator removes runners of cordoned hosts that have no job. A runner
with a job finishes it. Removing ends the credential first, so that the host cannot register again, and then deletes the
Node; its Pods follow, by the operator and by the API's own collector. Only a host that joined is removed, or what an
interrupted removal has left of it: a Node without an account, of a runtime that our agents run.

All of it is idempotent. Listing, cordoning and draining work on any cluster.
"""

import contextlib
from collections.abc import AsyncIterator

import msgspec

from runyard.clock import Clock
from runyard.hosts.joining import accounts
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError, NotFound
from runyard.kube.kinds import LEASES, NODES, PODS, SERVICE_ACCOUNTS
from runyard.kube.objects import Lease, Node, Pod
from runyard.wire import names, rights
from runyard.wire.instants import from_rfc3339

_ENDED = ("Succeeded", "Failed")
_ASK_EVERY = 1.0
_RUNTIMES = (names.NODE_RUNTIME_TART, names.NODE_RUNTIME_PROCESS)


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One host, for people and scripts."""

    name: str
    ready: str  # as the Node's condition says: True, False, Unknown
    reason: str
    driver: str
    version: str
    slots: int
    used: int  # Pods that have not ended
    busy: int  # those with a job
    heartbeat: float | None  # seconds since the epoch
    cordoned: bool
    joined: bool  # false: a host of the main machine itself, or of a cluster
    seen: bool = True  # false: it has joined, and has no Node: its agent has never registered here


class Load(msgspec.Struct, frozen=True):
    """The Pods of a host that have not ended, and how many of them have a job."""

    pods: int
    busy: int


class UnknownHost(Exception):
    """There is no such host."""


class HostOfMain(Exception):
    """The host did not join, so it cannot be removed."""


async def hosts(kube: Kube) -> tuple[HostView, ...]:
    """Every host, by name; also those that only have a credential, which nothing else would show."""
    nodes = await kube.list_as(NODES, Node)
    leases = await kube.list_as(LEASES, Lease, namespace=names.NODE_LEASE_NAMESPACE)
    beats = {each.metadata.name: each.spec.renew_time for each in leases}
    pods = await kube.list_as(PODS, Pod)
    joined = frozenset(await accounts.joined(kube))
    found = [
        _view(node, pods, beat=beats.get(node.metadata.name, ""), joined=joined) for node in nodes
    ]
    found += [_never_seen(name) for name in joined - {each.name for each in found}]
    return tuple(sorted(found, key=lambda each: each.name))


async def cordon(kube: Kube, name: str, *, cordoned: bool) -> bool:
    """Take no more Pods on this host, or take them again; whether that changed. Raises `UnknownHost`."""
    try:
        node = await kube.get_as(NODES, name, Node)
        if node.spec.unschedulable == cordoned:
            return False
        value = True if cordoned else None
        await kube.patch(NODES, name, {"spec": {"unschedulable": value}})
    except NotFound:
        raise UnknownHost(name) from None
    return True


async def load(kube: Kube, name: str) -> Load:
    """How much runs on this host."""
    pods = await kube.list_as(PODS, Pod, fields=f"spec.nodeName={name}")
    return _load(pods)


async def emptying(kube: Kube, name: str, *, clock: Clock) -> AsyncIterator[Load]:
    """The load of a host each time that it changes, until it is empty. Errors of the API are passed over."""
    last: Load | None = None
    while True:
        with contextlib.suppress(KubeError):
            found = await load(kube, name)
            if found != last:
                last = found
                yield found
            if not found.pods:
                return
        await clock.sleep(_ASK_EVERY)


async def remove(kube: Kube, name: str) -> bool:
    """End the host's credential and delete its Node; false if neither was there. Raises `HostOfMain`."""
    await check_removable(kube, name)
    revoked = await accounts.revoke(kube, name)
    return await accounts.forget_node(kube, name) or revoked


async def check_removable(kube: Kube, name: str) -> bool:
    """Whether there is anything to remove; raises `HostOfMain` if no join made it, or it is a Node of something else.

    Pods of a host that was removed may be left for a moment; they are no reason to refuse a repetition.
    """
    if name in await accounts.joined(kube):
        return True
    with contextlib.suppress(NotFound):
        account = rights.host_account(name)
        await kube.get(SERVICE_ACCOUNTS, account, namespace=names.CONTROLLER_NAMESPACE)
        raise HostOfMain(name)
    with contextlib.suppress(NotFound):
        node = await kube.get_as(NODES, name, Node)
        if node.metadata.labels.get(names.NODE_RUNTIME, "") not in _RUNTIMES:
            raise HostOfMain(name)
        return True
    return False


def _view(node: Node, pods: tuple[Pod, ...], *, beat: str, joined: frozenset[str]) -> HostView:
    name = node.metadata.name
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    found = _load(tuple(pod for pod in pods if pod.spec.node_name == name))
    return HostView(
        name=name,
        ready=ready.status if ready is not None else "Unknown",
        reason=ready.reason if ready is not None else "",
        driver=node.metadata.labels.get(names.NODE_RUNTIME, ""),
        version=node.status.node_info.kubelet_version,
        slots=int(node.status.allocatable.get("pods") or 0),
        used=found.pods,
        busy=found.busy,
        heartbeat=from_rfc3339(beat) if beat else None,
        cordoned=node.spec.unschedulable,
        joined=name in joined,
    )


def _never_seen(name: str) -> HostView:
    return HostView(
        name=name,
        ready="Unknown",
        reason="NeverSeen",
        driver="",
        version="",
        slots=0,
        used=0,
        busy=0,
        heartbeat=None,
        cordoned=False,
        joined=True,
        seen=False,
    )


def _load(pods: tuple[Pod, ...]) -> Load:
    alive = [pod for pod in pods if pod.status.phase not in _ENDED]
    return Load(len(alive), sum(names.POOL_OWNER in pod.metadata.labels for pod in alive))
