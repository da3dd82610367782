"""Generates the work of a fleet: pushes queue jobs, some are cancelled, images are rolled, pools scaled.

Arrivals are a Poisson stream whose rate follows the hour of the day, in bursts, because a push starts several
jobs at once. Durations are minutes with a long tail.
"""

import math
import random
from typing import TYPE_CHECKING

from runyard.kube.kinds import RUNNER_POOLS
from runyard.sim.shape import TenantShape
from runyard.wire import names

if TYPE_CHECKING:
    from runyard.sim.fleet import Fleet

BURST = (1, 1, 1, 2, 2, 3, 4, 8)
CANCELLED = 0.04  # share of pushes that are cancelled soon after
CANCEL_WITHIN = 90.0
MEDIAN_SECONDS = 110.0
SPREAD = 0.7
LONGEST_SECONDS = 1800.0
SMALLER_FOR = (60.0, 1200.0)
DAY = 86400.0


class Workload:
    """Acts as the users and operators of the fleet."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self._rng = fleet.chance("workload")
        self._rolls = fleet.chance("rolls")
        self._scales = fleet.chance("scales")
        self.queued = 0
        self.cancelled = 0

    async def push(self) -> None:
        """Queues jobs until cancelled."""
        rate = self._fleet.shape.jobs_per_day / DAY / (sum(BURST) / len(BURST))
        if rate <= 0:
            return
        while True:
            pace = rate * _tide(self._fleet.clock.monotonic())
            await self._fleet.clock.sleep(self._rng.expovariate(pace))
            self._one_push()

    async def roll(self) -> None:
        """Sets another image for a pool now and then."""
        per_day = self._fleet.shape.rolls_per_day
        if per_day <= 0:
            return
        number = 0
        while True:
            await self._fleet.clock.sleep(self._rolls.expovariate(per_day / DAY))
            number += 1
            pool = self._rolls.choice(self._fleet.shape.pools)
            await self.roll_to(pool.name, number)

    async def scale(self) -> None:
        """Scales a pool down for a while, now and then."""
        per_day = self._fleet.shape.scales_per_day
        if per_day <= 0:
            return
        while True:
            await self._fleet.clock.sleep(self._scales.expovariate(per_day / DAY))
            pool = self._scales.choice(self._fleet.shape.pools)
            seats = self._fleet.shape.seats_of(pool)
            try:
                await self._scale_to(pool.name, self._scales.randint(0, seats))
                await self._fleet.clock.sleep(self._scales.uniform(*SMALLER_FOR))
            finally:
                restore = self._scale_to(pool.name, seats)
                self._fleet.afterwards(restore, "scale up again")

    async def _scale_to(self, pool: str, replicas: int) -> None:
        self._fleet.report(f"{pool} shall have {replicas} runners")
        await self._fleet.admin.patch(
            RUNNER_POOLS, pool, {"spec": {"replicas": replicas}}, namespace=names.RUNNERS_NAMESPACE
        )

    async def roll_to(self, pool: str, number: int) -> None:
        """Sets the image of a pool."""
        image = f"registry.example/runner-macos@sha256:{number:064x}"
        self._fleet.counts["rolls"] += 1
        self._fleet.report(f"a new image for {pool}")
        await self._fleet.admin.patch(
            RUNNER_POOLS, pool, {"spec": {"image": image}}, namespace=names.RUNNERS_NAMESPACE
        )

    def _one_push(self) -> None:
        tenants = self._fleet.shape.tenants
        tenant = self._rng.choices(tenants, [each.share for each in tenants])[0]
        jobs = [self._queue(tenant) for _ in range(self._rng.choice(BURST))]
        if self._rng.random() < CANCELLED:
            wait = self._rng.uniform(0.0, CANCEL_WITHIN)
            self._fleet.background(self._cancel(jobs, wait), "cancel")

    async def _cancel(self, jobs: list[int], wait: float) -> None:
        await self._fleet.clock.sleep(wait)
        for job in jobs:
            self.cancelled += self._fleet.github.cancel_job(job)

    def _queue(self, tenant: TenantShape) -> int:
        repository = self._rng.choice(tenant.repositories)
        pools = self._fleet.shape.pools
        pool = self._rng.choices(pools, [each.share for each in pools])[0]
        self.queued += 1
        return self._fleet.github.queue_job(
            f"{tenant.name}/{repository}", (pool.label,), duration=_duration(self._rng)
        )


def _tide(seconds: float) -> float:
    """The relative rate: more work at noon than at midnight; one on average."""
    return 1.0 + 0.5 * math.sin(2 * math.pi * seconds / DAY)


def _duration(rng: random.Random) -> float:
    return min(LONGEST_SECONDS, MEDIAN_SECONDS * math.exp(SPREAD * rng.gauss(0.0, 1.0)))
