"""The pools as the server knows them: read from Kubernetes now and then, kept when a read fails.

Jobs are stored with their labels and matched against pools at claim time, so a pool that appears
later, or could not be read for a while, never costs a job: "no pool matches" is a reason, not a
verdict.
"""

import msgspec

from runyard.dispatch.matching.values import PoolView
from runyard.kube.client import Kube
from runyard.kube.kinds import RUNNER_POOLS
from runyard.kube.objects import RunnerPool

PLATFORMS = {"darwin": "macos", "linux": "linux"}


class Pools:
    """The last good reading of the RunnerPools."""

    def __init__(self, kube: Kube, *, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._known: tuple[PoolView, ...] = ()

    @property
    def known(self) -> tuple[PoolView, ...]:
        """Pools by the last good reading."""
        return self._known

    def by_name(self, name: str) -> PoolView | None:
        """One pool."""
        return next((pool for pool in self._known if pool.name == name), None)

    async def refresh(self) -> None:
        """Read them again; an error leaves the last reading in place and propagates.

        A pool that makes no sense is left out and does not hide the others.
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


def view_of(pool: RunnerPool) -> PoolView:
    """What a pool's runners offer, as the matcher sees it."""
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
