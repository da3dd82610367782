"""A simulated host: its machine, its disk, its agent, and how it can be lost.

The machine (driver, records, guests) outlives the agent. A host can lose its power, lose its network while its
runners keep theirs, or be lost for good; then its Node object is removed and another machine takes its place, as
the fleet's operator would do.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.components import agent
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Guest, Host, SimDriver
from runyard.sim.network import Link
from runyard.sim.process import Process, wrap, wrap_transport
from runyard.sim.trace import Trace
from runyard.sim.uplink import Uplink
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmSpec, VmState
from runyard.wire import names

DRIVER_EFFECTS = ("create", "start", "stop", "delete", "pull", "remove_image")
# Children of the agent that continue when it is killed.
DETACHED = ("create", "stop", "pull")
UP = (VmState.BOOTING, VmState.RUNNING)


class HostRecords(Records):
    """Records on a real disk, with an index of their VMs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=False)
        self.vms: dict[str, str] = {}  # Pod uid → VM

    def write(self, record: Any) -> None:
        """Writes, and indexes the VM."""
        super().write(record)
        self.vms[record.uid] = record.vm

    def forget(self, uid: str) -> None:
        """Removes both."""
        super().forget(uid)
        self.vms.pop(uid, None)


class HostDriver(SimDriver):
    """The machine's driver, with callbacks when VMs are created and started."""

    def __init__(
        self,
        clock: Clock,
        *,
        host: Host,
        guest: Guest,
        uplink: Uplink,
        on_create: Callable[[str], None],
        on_start: Callable[[str, int], None],
    ) -> None:
        super().__init__(clock, host=host, guest=guest, uplink=uplink)
        self._on_create = on_create
        self._on_start = on_start
        self._starts: dict[str, int] = {}

    async def create(self, spec: VmSpec) -> None:
        """Calls `on_create`, then clones."""
        self._on_create(spec.name)
        await super().create(spec)

    async def start(self, name: str) -> None:
        """Starts; `on_start` gets how often this VM has been started."""
        before = len(self.history)
        await super().start(name)
        if len(self.history) > before:
            self._starts[name] = self._starts.get(name, 0) + 1
            self._on_start(name, self._starts[name])


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a host that outlive its agent."""

    driver: HostDriver
    records: HostRecords


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """A host's network: to the Kubernetes API, and its guests' links to the servers."""

    kube: Link
    lines: tuple[Link, ...]


class SimHost:
    """One machine of the fleet."""

    def __init__(
        self,
        name: str,
        *,
        settings: Settings,
        hardware: Hardware,
        links: Links,
        trace: Trace,
        rng: random.Random,
        meters: list[Meter],
    ) -> None:
        self.name = name
        self.driver = hardware.driver
        self.records = hardware.records
        self.kube = links.kube
        self.lines = links.lines  # of its guests, to the servers
        self.powered = True
        self.cut = False
        self.gone = False
        self.process = Process(f"agent-{name}", trace=trace)
        self._settings = settings
        self._clock = VirtualClock(skew=rng.uniform(-2.0, 2.0))
        self._rng = rng
        self._meters = meters
        self._transport: Transport = wrap_transport(self.process, links.kube, name="kube")
        self._driver = wrap(
            self.process, hardware.driver, DRIVER_EFFECTS, kind="vm", detached=DETACHED
        )
        self._records = wrap(self.process, hardware.records, ("write", "forget"), kind="record")

    async def agent(self) -> None:
        """Runs one life of its agent."""
        meter = Meter()
        self._meters.append(meter)
        await agent.run(
            Deps(
                clock=self._clock,
                rng=random.Random(self._rng.getrandbits(64)),
                kube=Kube(self._transport, agent=names.NODE_AGENT),
                driver=self._driver,
                records=self._records,
                meter=meter,
                log=get_logger("agent", host=self.name),
                settings=self._settings,
                health=Health(self._clock, conditions.ALL),
                freshness=Freshness(self._clock),
            )
        )

    @property
    def may_run(self) -> bool:
        """Whether its agent may be started."""
        return self.powered and not self.gone

    def running(self) -> int:
        """How many of its VMs are up."""
        return sum(view.state in UP for view in self.driver.views())

    def cut_network(self) -> None:
        """Cuts the host off: it reaches neither the cluster nor the servers, and they do not reach it."""
        self.cut = True
        for link in (self.kube, *self.lines):
            link.sever()

    def restore_network(self) -> None:
        """Restores the network."""
        self.cut = False
        for link in (self.kube, *self.lines):
            link.restore()

    def power_off(self) -> None:
        """Stops everything on it at once."""
        self.powered = False
        self.process.crash()
        self.driver.power_off_host()

    def power_on(self) -> None:
        """Boots it; its supervisor starts the agent."""
        self.powered = True
        if not self.process.alive:
            self.process.start(self.agent)
