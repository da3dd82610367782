"""The parameters of a simulated fleet: hosts, pools, tenants, how much work, which faults. Values only.

Every number that a run depends on is here, so one `Shape` describes a run completely: the same shape
gives the same run.
"""

import math
from typing import Literal

import msgspec

from runyard.embedded.github.model import AccountKind
from runyard.sim.driver import GB, Host

IMAGE = "registry.example/runner-macos@sha256:" + "1" * 64
FLEET = "macs"
PLATFORM = "macos"


class PoolShape(msgspec.Struct, frozen=True, kw_only=True):
    """One RunnerPool. `share` is its share of the fleet's VM slots."""

    name: str
    label: str
    share: float = 1.0
    image: str = IMAGE
    cpu_milli: int = 4000
    memory_mb: int = 7168
    idle_timeout: int = 0
    roll_percent: int = 25


class TenantShape(msgspec.Struct, frozen=True, kw_only=True):
    """One organisation: its repositories, its budget, its share of all jobs."""

    name: str
    repositories: tuple[str, ...]
    vcpus: int
    memory_gb: int
    share: float
    kind: AccountKind = "Organization"


POOLS = (
    PoolShape(name="mac-general", label="fleet-macos", share=0.7),
    PoolShape(name="mac-spare", label="fleet-macos-spare", share=0.3, idle_timeout=300),
)
TENANTS = (
    TenantShape(name="acme", repositories=("app", "kit"), vcpus=64, memory_gb=112, share=0.6),
    TenantShape(name="birch", repositories=("shop",), vcpus=16, memory_gb=28, share=0.3),
    TenantShape(name="cedar", repositories=("site",), vcpus=4, memory_gb=7, share=0.1),
)
MACHINE = Host(boot_seconds=18.0, image_bytes=20.0 * GB, bandwidth=0.25 * GB, max_running=2)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one run."""

    seed: int = 1
    hours: float = 1.0
    hosts: int = 6
    seats: int = 2  # VMs that a host may run
    replicas: int = 2  # of the dispatch server
    jobs_per_day: float = 2000.0
    rolls_per_day: float = 24.0
    scales_per_day: float = 48.0
    faults: tuple[str, ...] = ()
    pools: tuple[PoolShape, ...] = POOLS
    tenants: tuple[TenantShape, ...] = TENANTS
    machine: Host = MACHINE
    uplink: float = math.inf  # bytes a second, shared by the pulls of all hosts
    quiet_limit: float = (
        2 * 3600.0
    )  # after the last job and fault: at rest within this, or it failed
    stamped_grace: float = 300.0
    intake: Literal["webhook", "pull"] = "webhook"  # how deliveries arrive
    off: tuple[str, ...] = ()  # guards that this fleet lacks, by name (`sim.guard_switches`)

    def seats_of(self, pool: PoolShape) -> int:
        """The replicas of a pool: its share of the VM slots; the first pool takes the rest."""
        total = self.hosts * self.seats
        weight = sum(each.share for each in self.pools)
        counts = {each.name: max(1, int(total * each.share / weight)) for each in self.pools}
        counts[self.pools[0].name] += total - sum(counts.values())
        return counts[pool.name]
