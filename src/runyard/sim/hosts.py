"""A simulated host: its machine, its disk, its agent, and the ways in which it goes missing.

The machine (driver, records, guests) outlives the agent. A host can lose its power, lose its network while
its runners keep theirs, or go for good; whoever owns the fleet then removes its Node object and puts another
machine in its place.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runyard.clock import Clock
from runyard.http.messages import Transport
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.parts import agent
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Guest, Host, SimDriver
from runyard.sim.network import Link
from runyard.sim.process import Process, wrap, wrap_transport
from runyard.sim.trace import Trace
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmSpec, VmState

DRIVER_EFFECTS = ("create", "start", "stop", "delete", "pull", "remove_image")
# Children of the agent that go on when it is killed.
DETACHED = ("create", "stop", "pull")
UP = (VmState.BOOTING, VmState.RUNNING)


class HostRecords(Records):
    """Records on a real disk, with a look at what they say."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=False)
        self.vms: dict[str, str] = {}  # Pod uid → VM

    def write(self, record: Any) -> None:
        """Write, and remember the VM."""
        super().write(record)
        self.vms[record.uid] = record.vm

    def forget(self, uid: str) -> None:
        """Forget both."""
        super().forget(uid)
        self.vms.pop(uid, None)


class HostDriver(SimDriver):
    """The machine, with somebody who looks on when VMs are made and started."""

    def __init__(
        self,
        clock: Clock,
        *,
        host: Host,
        guest: Guest,
        on_create: Callable[[str], None],
        on_start: Callable[[str, int], None],
    ) -> None:
        super().__init__(clock, host=host, guest=guest)
        self._on_create = on_create
        self._on_start = on_start
        self._starts: dict[str, int] = {}

    async def create(self, spec: VmSpec) -> None:
        """Clone; whoever looks on is told before."""
        self._on_create(spec.name)
        await super().create(spec)

    async def start(self, name: str) -> None:
        """Start; whoever looks on learns how often this VM has been started."""
        before = len(self.history)
        await super().start(name)
        if len(self.history) > before:
            self._starts[name] = self._starts.get(name, 0) + 1
            self._on_start(name, self._starts[name])


class SimHost:
    """One machine of the fleet."""

    def __init__(
        self,
        name: str,
        *,
        settings: Settings,
        driver: HostDriver,
        records: HostRecords,
        kube: Link,
        lines: tuple[Link, ...],
        trace: Trace,
        rng: random.Random,
        meters: list[Meter],
    ) -> None:
        self.name = name
        self.driver = driver
        self.records = records
        self.kube = kube
        self.lines = lines  # of its guests, to the servers
        self.powered = True
        self.cut = False
        self.gone = False
        self.process = Process(f"agent-{name}", trace=trace)
        self._settings = settings
        self._clock = VirtualClock(skew=rng.uniform(-2.0, 2.0))
        self._rng = rng
        self._meters = meters
        self._transport: Transport = wrap_transport(self.process, kube, name="kube")
        self._driver = wrap(self.process, driver, DRIVER_EFFECTS, kind="vm", detached=DETACHED)
        self._records = wrap(self.process, records, ("write", "forget"), kind="record")

    async def agent(self) -> None:
        """One life of its agent."""
        meter = Meter()
        self._meters.append(meter)
        await agent.run(
            agent.AgentDeps(
                clock=self._clock,
                rng=random.Random(self._rng.getrandbits(64)),
                kube=self._transport,
                driver=self._driver,
                records=self._records,
                meter=meter,
                log=get_logger("agent", host=self.name),
                settings=self._settings,
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
        """Nobody reaches this host and it reaches neither the cluster nor the servers."""
        self.cut = True
        for link in (self.kube, *self.lines):
            link.sever()

    def mend_network(self) -> None:
        """The line is back."""
        self.cut = False
        for link in (self.kube, *self.lines):
            link.restore()

    def power_off(self) -> None:
        """Everything on it stops at once."""
        self.powered = False
        self.process.crash()
        self.driver.power_off_host()

    def power_on(self) -> None:
        """It boots; its agent is started by its supervisor."""
        self.powered = True
        if not self.process.alive:
            self.process.start(self.agent)
