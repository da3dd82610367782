"""The settings of one host's agent."""

import msgspec

from runyard.wire import names


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long one effect may take, in seconds. A hang is an error like any other."""

    pull: float = 1200.0
    clone: float = 300.0
    start: float = 120.0
    stop_margin: float = 30.0  # on top of the grace period
    delete: float = 300.0
    list: float = 30.0
    probe: float = 15.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one host's agent."""

    node_name: str
    node_ip: str = ""
    provider_id: str = ""
    fleet: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    os: str = "darwin"
    arch: str = "arm64"
    runtime: str = names.NODE_RUNTIME_TART

    dispatch_url: str = ""
    """Replaces the dispatch URL in the Pods' environment, where guests reach the server by another address."""

    # The Node's capacity, and the size of a VM whose Pod requests none.
    cpu_milli: int = 8000
    memory_mb: int = 16384
    pods: int = 2
    vm_cpu_milli: int = 4000
    vm_memory_mb: int = 8192

    lease_every: float = 10.0
    lease_duration: int = 40
    heartbeat_every: float = 30.0
    probe_every: float = 30.0
    list_every: float = 5.0
    gc_every: float = 300.0
    images_every: float = 60.0
    recheck_every: float = 60.0  # a Pod is reconciled again, even without a change

    deadlines: Deadlines = Deadlines()
    driver_stale_after: float = 120.0  # without a good list of VMs: Ready is Unknown
    orphan_grace: float = 30.0
    max_grace: float = 6 * 3600.0
    disk_pressure_percent: float = 90.0

    pulls: int = 2  # images pulled at the same time
    retry_base: float = 5.0
    retry_cap: float = 300.0
    gc_images: bool = True
    image_idle: float = 24 * 3600.0  # an image unused for so long is removed
    workers: int = 0  # Pods worked on at once; 0: enough for every slot twice

    @property
    def pod_workers(self) -> int:
        """The number of workers, so many that no Pod waits for another one's clone or shutdown."""
        return self.workers or 2 * self.pods + 4
