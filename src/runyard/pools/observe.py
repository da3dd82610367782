"""Builds the snapshot of one pool from the caches and the operator's own notes.

Two facts cannot be taken from a cache, because absence would be the evidence: that a host is gone, and that a creation
the watch does not show happened. Both are read from the API; a read that fails leaves them unknown, and what is unknown
changes nothing.
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
        """What is known about one pool now."""
        where = key(pool)
        await self._look_up(where)
        view = project_pool(pool)
        runners = self.runners(where)
        nodes = [await self._node(name) for name in _hosts(runners)]
        accounts = self._caches.accounts.store.by_index(BY_POOL, where)
        return Snapshot(
            pool=view,
            runners=runners,
            accounts=tuple(project_account(account) for account in accounts),
            nodes=tuple(node for node in nodes if node is not None),
            expected=tuple(split_key(name)[1] for name in self._memory.expected(where)),
            fleet=self._fleet(view) if predicates.kata_pool(view) else None,
            held_for=self._memory.held(where, now=self._clock.monotonic()),
        )

    def runners(self, pool: str) -> tuple[RunnerView, ...]:
        """A pool's runners, with the notes laid over."""
        now, wall = self._clock.monotonic(), self._clock.now()
        expire = self._settings.expectation_seconds
        return tuple(
            self._memory.overlay(self.view(pod), now=now, wall=wall, expire=expire)
            for pod in self._caches.pods.store.by_index(BY_POOL, pool)
        )

    def view(self, pod: Pod) -> RunnerView:
        """A Pod's projection; one whose newest version could not be read is protected as busy."""
        where = key(pod)
        known = self._views.get(where)
        if known is None or known.resource_version != pod.metadata.resource_version:
            known = self._views[where] = project_runner(pod)
        if where in self._caches.pods.unreadable:
            return project_runner(pod, readable=False)
        return known

    def forget(self, where: str) -> None:
        """The Pod of that key is gone."""
        self._views.pop(where, None)

    async def _look_up(self, pool: str) -> None:
        """Ask about creations that stay invisible."""
        now = self._clock.monotonic()
        after = self._settings.expectation_seconds
        for where in self._memory.overdue(pool, now=now, after=after):
            namespace, name = split_key(where)
            try:
                await self._kube.get(PODS, name, namespace=namespace)
            except NotFound:
                self._memory.settled(where)
            except (KubeError, TransportError):
                continue
            else:
                self._memory.confirmed(where, at=self._clock.monotonic())

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
        """The hosts that this pool shares with its siblings, and what is starting there."""
        everyone = map(project_pool, self._caches.pools.store.values())
        siblings = [other for other in everyone if _shares(other, pool)]
        total = here = hungry = 0
        for other in siblings:
            where = f"{other.namespace}/{other.name}"
            runners = self.runners(where)
            expected = len(self._memory.expected(where))
            starting = expected + sum(predicates.provisioning(r, other) for r in runners)
            total += starting
            if other.name == pool.name:
                here = starting
            elif not starting:
                alive = sum(predicates.alive(runner) for runner in runners)
                hungry += alive < other.spec.replicas
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
            hungry_siblings=hungry,
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
