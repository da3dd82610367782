"""The four caches that plans read: pools, runner Pods, their accounts, and hosts."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS, Kind
from runyard.kube.objects import HasMeta, Node, Pod, RunnerPool, ServiceAccount
from runyard.kube.reflector import Reflector, Scope, WatchDeps
from runyard.pools.deps import Deps
from runyard.wire import names

BY_POOL = "pool"

H = TypeVar("H", bound=HasMeta)
Change = Callable[[str, H | None, H | None], None]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks after an object of each kind changed."""

    pool: Change[RunnerPool]
    pod: Change[Pod]
    account: Change[ServiceAccount]
    node: Change[Node]


class Caches:
    """Reflectors of everything that a plan reads; Pods and accounts are indexed by their pool."""

    def __init__(self, deps: Deps, changes: Changes) -> None:
        def mirror(
            kind: Kind, type_: type[H], on_change: Change[H], *, labels: str = ""
        ) -> Reflector[H]:
            return Reflector(
                WatchDeps(kube=deps.kube, clock=deps.clock, rng=deps.rng, meter=deps.meter),
                kind,
                type_,
                scope=Scope(
                    namespace=deps.settings.namespace if kind.namespaced else "", labels=labels
                ),
                on_change=on_change,
                indexes={BY_POOL: pool_keys},
            )

        component = f"{names.APP_COMPONENT}={names.COMPONENT_RUNNER_SA}"
        self.nodes = mirror(NODES, Node, changes.node)
        self.accounts = mirror(SERVICE_ACCOUNTS, ServiceAccount, changes.account, labels=component)
        self.pods = mirror(PODS, Pod, changes.pod, labels=f"{names.RUNNER}=true")
        self.pools = mirror(RUNNER_POOLS, RunnerPool, changes.pool)
        self.all: tuple[Reflector[Any], ...] = (
            self.nodes,
            self.accounts,
            self.pods,
            self.pools,
        )

    def filled(self) -> bool:
        """Whether every cache has been filled once; before that, a missing object proves nothing."""
        return all(cache.synced.is_set() for cache in self.all)

    async def run(self) -> None:
        """Follow the API until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run(), name="nodes")
            group.create_task(self.accounts.run(), name="accounts")
            group.create_task(self.pods.run(), name="pods")
            group.create_task(self.pools.run(), name="pools")


def pool_keys(obj: HasMeta) -> tuple[str, ...]:
    """The key of the pool that an object belongs to; empty if there is none."""
    pool = obj.metadata.labels.get(names.RUNNER_POOL, "")
    return (f"{obj.metadata.namespace}/{pool}",) if pool else ()
