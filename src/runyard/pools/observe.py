"""Builds the snapshot of one pool from the caches and from `memory`.

Two facts cannot be taken from a cache, because a missing object proves nothing there: whether a host is gone, and
whether a creation that the watch does not show has happened. Both are read from the API; a read that fails leaves them
unknown, and an unknown fact changes nothing.
"""

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError, NotFound
from runyard.kube.kinds import NODES, PODS
from runyard.kube.objects import Node, Pod, RunnerPool, key, split_key
from runyard.pools.caches import BY_POOL, Caches
from runyard.pools.memory import Memory
from runyard.pools.plans import predicates
from runyard.pools.plans.admission import ceiling
from runyard.pools.plans.views import FleetView, NodeView, PoolView, RunnerView, Snapshot
from runyard.pools.projection import (
    healthy,
    project_account,
    project_node,
    project_pool,
    project_runner,
)
from runyard.pools.settings import Settings
from runyard.wire import names


class Observer:
    """Builds snapshots. Keeps each Pod's projection until the Pod changes."""

    def __init__(
        self,
        *,
        kube: Kube,
        caches: Caches,
        memory: Memory,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._caches = caches
        self._memory = memory
        self._clock = clock
        self._settings = settings
        self._views: dict[str, RunnerView] = {}

    async def snapshot(self, pool: RunnerPool) -> Snapshot:
        """The current snapshot of one pool."""
        pool_key = key(pool)
        await self._read_invisible(pool_key)
        view = project_pool(pool)
        runners = self.runners(pool_key)
        nodes = [await self._node(name) for name in _hosts(runners)]
        accounts = self._caches.accounts.store.by_index(BY_POOL, pool_key)
        return Snapshot(
            pool=view,
            runners=runners,
            accounts=tuple(project_account(account) for account in accounts),
            nodes=tuple(node for node in nodes if node is not None),
            expected=tuple(split_key(name)[1] for name in self._memory.expected(pool_key)),
            fleet=self._fleet(view) if predicates.kata_pool(view) else None,
            held_for=self._memory.held(pool_key, now=self._clock.monotonic()),
        )

    def runners(self, pool: str) -> tuple[RunnerView, ...]:
        """A pool's runners, including writes that the watch does not show yet."""
        now, wall = self._clock.monotonic(), self._clock.now()
        expire = self._settings.expectation_seconds
        return tuple(
            self._memory.overlay(self.view(pod), now=now, wall=wall, expire=expire)
            for pod in self._caches.pods.store.by_index(BY_POOL, pool)
        )

    def view(self, pod: Pod) -> RunnerView:
        """A Pod's projection; one whose newest version could not be read is protected as busy."""
        pod_key = key(pod)
        known = self._views.get(pod_key)
        if known is None or known.resource_version != pod.metadata.resource_version:
            known = self._views[pod_key] = project_runner(pod)
        if pod_key in self._caches.pods.unreadable:
            return project_runner(pod, readable=False)
        return known

    def forget(self, pod_key: str) -> None:
        """Discard the projection of a Pod that is gone."""
        self._views.pop(pod_key, None)

    async def _read_invisible(self, pool: str) -> None:
        """Read from the API the created Pods that the watch does not show."""
        now = self._clock.monotonic()
        after = self._settings.expectation_seconds
        for pod_key in self._memory.overdue(pool, now=now, after=after):
            namespace, name = split_key(pod_key)
            try:
                await self._kube.get(PODS, name, namespace=namespace)
            except NotFound:
                self._memory.settled(pod_key)
            except (KubeError, TransportError):
                continue
            else:
                self._memory.confirmed(pod_key, at=self._clock.monotonic())

    async def _node(self, name: str) -> NodeView | None:
        known = self._caches.nodes.store.get(f"/{name}")
        if known is not None:
            return project_node(known)
        try:
            return project_node(await self._kube.get_as(NODES, name, Node))
        except NotFound:
            return NodeView(name=name, gone=True)
        except (KubeError, TransportError):
            return None

    def _fleet(self, pool: PoolView) -> FleetView:
        """The hosts that this pool shares with its siblings, and the runners that start there."""
        pools = map(project_pool, self._caches.pools.store.values())
        siblings = [other for other in pools if _shares(other, pool)]
        total = here = starved = 0
        for other in siblings:
            pool_key = f"{other.namespace}/{other.name}"
            runners = self.runners(pool_key)
            expected = len(self._memory.expected(pool_key))
            starting = expected + sum(predicates.provisioning(r, other) for r in runners)
            total += starting
            if other.name == pool.name:
                here = starting
            elif not starting:
                alive = sum(predicates.alive(runner) for runner in runners)
                starved += alive < other.spec.replicas
        limits = (other.spec.provisioning.max_concurrent_per_fleet_selector for other in siblings)
        fit = (
            node
            for node in self._caches.nodes.store.values()
            if node.metadata.labels.get(names.NODE_LINUX_POOL) == pool.spec.fleet_selector
        )
        return FleetView(
            ceiling=ceiling(tuple(limits)),
            provisioning=total,
            provisioning_here=here,
            healthy_nodes=sum(healthy(node) for node in fit),
            starved_siblings=starved,
        )


def _shares(other: PoolView, pool: PoolView) -> bool:
    same = (other.namespace, other.spec.fleet_selector) == (
        pool.namespace,
        pool.spec.fleet_selector,
    )
    return same and predicates.kata_pool(other) and not other.deleting


def _hosts(runners: tuple[RunnerView, ...]) -> tuple[str, ...]:
    """The hosts that these runners are bound to, each once, in order."""
    return tuple(dict.fromkeys(runner.node for runner in runners if runner.node))
