"""Caches the RunnerPools: reads them from Kubernetes periodically and keeps the last result when a read fails.

Jobs are stored with their labels and matched against pools when they are claimed. So a pool that is created later, or
cannot be read for a while, loses no job: "no pool matches" only delays it.
"""

import msgspec

from runyard.dispatch.matching.values import PoolView
from runyard.kube.client import Kube
from runyard.kube.kinds import RUNNER_POOLS
from runyard.kube.objects import RunnerPool

PLATFORMS = {"darwin": "macos", "linux": "linux"}


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How many runners a pool should have, has, and may grow to."""

    desired: int = 0
    observed: int = 0
    most: int = 0


class Pools:
    """The RunnerPools by the last successful read."""

    def __init__(self, kube: Kube, *, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._known: tuple[PoolView, ...] = ()
        self._sizes: dict[str, Size] = {}
        self._was_read = False

    @property
    def was_read(self) -> bool:
        """Whether a read has succeeded; before that, `known` says nothing."""
        return self._was_read

    @property
    def known(self) -> tuple[PoolView, ...]:
        """The pools by the last successful read."""
        return self._known

    def by_name(self, name: str) -> PoolView | None:
        """Return the pool with that name, or None."""
        return next((pool for pool in self._known if pool.name == name), None)

    def size(self, name: str) -> Size | None:
        """Return the size of the pool with that name, or None."""
        return self._sizes.get(name)

    async def refresh(self) -> None:
        """Read the pools again; an error propagates and the last result stays.

        A pool that cannot be decoded is skipped.
        """
        listed = await self._kube.list_raw(RUNNER_POOLS, namespace=self._namespace)
        read = self._kube.reader(RunnerPool).read
        pools: list[RunnerPool] = []
        for raw in listed.items:
            try:
                pools.append(read(raw))
            except msgspec.MsgspecError:
                continue
        self._known = tuple(view_of(pool) for pool in sorted(pools, key=lambda p: p.metadata.name))
        self._sizes = {pool.metadata.name: size_of(pool) for pool in pools}
        self._was_read = True


def view_of(pool: RunnerPool) -> PoolView:
    """Convert a RunnerPool to the matcher's view of it."""
    spec = pool.spec
    labels = (*spec.runner_labels, spec.dispatch_label)
    return PoolView(
        name=pool.metadata.name,
        platform=PLATFORMS[spec.os],
        labels=tuple(label.lower() for label in labels),
        dispatch_label=spec.dispatch_label.lower(),
        mint_labels=labels,
        vcpus=max(1, -(-spec.pod_cpu_milli // 1000)),
        memory_gb=max(1, -(-spec.pod_memory_mb // 1024)),
        image=spec.image,
    )


def size_of(pool: RunnerPool) -> Size:
    """Return the desired, observed and maximum replicas of a RunnerPool."""
    growing = pool.spec.autoscaling
    return Size(
        desired=pool.spec.replicas,
        observed=pool.status.observed_replicas,
        most=growing.max_replicas if growing.enabled else 0,
    )
