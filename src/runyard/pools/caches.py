"""The four caches that plans are made from: pools, runner Pods, their accounts, and hosts."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from runyard.clock import Clock
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS, Kind
from runyard.kube.objects import HasMeta, Node, Pod, RunnerPool, ServiceAccount
from runyard.kube.reflector import Reflector
from runyard.telemetry.meter import Meter
from runyard.wire import names

BY_POOL = "pool"

H = TypeVar("H", bound=HasMeta)
Change = Callable[[str, H | None, H | None], None]


class Caches:
    """Reflectors of everything that a plan looks at; Pods and accounts are indexed by their pool."""

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        rng: random.Random,
        meter: Meter,
        namespace: str,
        on_pool: Change[RunnerPool],
        on_pod: Change[Pod],
        on_account: Change[ServiceAccount],
        on_node: Change[Node],
    ) -> None:
        def mirror(
            kind: Kind, type_: type[H], on_change: Change[H], *, labels: str = ""
        ) -> Reflector[H]:
            return Reflector(
                kube,
                kind,
                type_,
                clock=clock,
                rng=rng,
                meter=meter,
                namespace=namespace if kind.namespaced else "",
                labels=labels,
                on_change=on_change,
                indexes={BY_POOL: pool_keys},
            )

        component = f"{names.APP_COMPONENT}={names.COMPONENT_RUNNER_SA}"
        self.nodes = mirror(NODES, Node, on_node)
        self.accounts = mirror(SERVICE_ACCOUNTS, ServiceAccount, on_account, labels=component)
        self.pods = mirror(PODS, Pod, on_pod, labels=f"{names.RUNNER}=true")
        self.pools = mirror(RUNNER_POOLS, RunnerPool, on_pool)

    def filled(self) -> bool:
        """Every cache has been filled once: before that, absence means nothing."""
        nodes, accounts = self.nodes.synced.is_set(), self.accounts.synced.is_set()
        return nodes and accounts and self.pods.synced.is_set() and self.pools.synced.is_set()

    async def run(self) -> None:
        """Follow the API until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run(), name="nodes")
            group.create_task(self.accounts.run(), name="accounts")
            group.create_task(self.pods.run(), name="pods")
            group.create_task(self.pools.run(), name="pools")


def pool_keys(obj: HasMeta) -> tuple[str, ...]:
    """The key of the pool that an object belongs to, if it does."""
    pool = obj.metadata.labels.get(names.RUNNER_POOL, "")
    return (f"{obj.metadata.namespace}/{pool}",) if pool else ()
