"""The settings of one host's agent."""

from typing import Literal

import msgspec

from runyard.vm.contract import STOP_MARGIN
from runyard.wire import names


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long one effect may take, in seconds. A hang is an error like any other."""

    resolve: float = 60.0
    pull_stall: float = 900.0  # without any progress; longer than the drivers' own limit
    clone: float = 1500.0  # longer than the drivers' own limits: two copies of a whole image
    start: float = 120.0
    stop_margin: float = STOP_MARGIN  # on top of the grace period
    delete: float = 300.0
    list: float = 60.0  # the drivers try again within it
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
    """Where this host reaches the server, if not at the URL in the Pods' environment. Guests poll it, too, unless their
    pool says where they reach the server, or they are VMs and it is on loopback (`plans.poll_urls`)."""

    poller: Literal["host", "guest"] = "guest"
    """Who asks the server for a job: a script in the guest, or this host, which then starts the runner in the guest. A
    Pod's annotation `runyard.dev/poller` goes first."""
    refuse_loopback: bool = True
    """Whether a guest in a VM that would poll loopback, which is the guest itself, is refused. Otherwise its Pod's
    environment is passed on unchanged, with an event."""
    server_ca: str = ""  # certificates (PEM) by which this host checks the server when it polls
    runner_directory: str = ""  # of the Actions runner in guests; empty: the usual places
    runner_archive: str = ""  # on this host, for guests without a runner

    # The Node's capacity, and the size of a VM whose Pod requests none; 0: the image's own size.
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
    pin_seconds: float = 60.0  # how long a tag is taken to mean the same
    progress_every: float = 15.0  # a pull's progress is published so often
    stamp_every: float = 60.0  # and noted for the pool's start deadline so often
    slots_full_every: float = 5.0  # a Pod that waits for a VM slot tries again
    gc: bool = True
    """Whether this agent collects garbage at all. Without it, images and orphans stay until they are removed by hand;
    a VM of ours is still deleted when its Pod ends."""
    image_idle: float = 24 * 3600.0  # an image unused for so long is removed
    image_gone: float = 600.0  # one of ours that is missing for so long was deleted by others
    workers: int = 0  # Pods worked on at once; 0: enough for every slot twice

    @property
    def pod_workers(self) -> int:
        """The number of workers, so many that no Pod waits for another one's clone or shutdown."""
        return self.workers or 2 * self.pods + 4
