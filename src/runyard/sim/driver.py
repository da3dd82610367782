"""A host's VM driver under virtual time: boot times, a shared uplink, one disk, slots, and faults on demand.

It belongs to the host, not to the agent: VMs, and the guests that run in them, continue when the agent is killed,
and the next agent finds them. It carries out requests, slowly and, if a test requests it, with faults.

A guest is a coroutine that starts when its VM has booted and returns the guest's exit code. Asking it to end is a
cancellation: a well-behaved guest catches it, cleans up and returns a code. The power-off is a second cancellation;
what a guest does after that has no effect.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from copy import copy
from itertools import count
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.sim.console import ConsoleLog
from runyard.sim.exec import Program, running
from runyard.sim.uplink import Uplink
from runyard.vm.contract import (
    Connection,
    DriverFailed,
    ExecSession,
    HostCapacity,
    ImageMissing,
    ImageView,
    NoSpace,
    PullProgress,
    ResolvedImage,
    SlotsFull,
    Stalled,
    TerminalSize,
    Unreachable,
    VmDriver,
    VmError,
    VmSpec,
    VmState,
    VmView,
    ignore_progress,
)

GB = 10**9
_UP = (VmState.BOOTING, VmState.RUNNING)
Guest = Callable[[VmSpec, str], Coroutine[Any, Any, int]]


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of the machine."""

    boot_seconds: float = 20.0
    clone_seconds: float = 2.0
    list_seconds: float = 0.05
    delete_seconds: float = 0.5
    probe_seconds: float = 0.2
    bandwidth: float = 0.125 * GB  # bytes a second, shared by all pulls of this host
    stall_seconds: float = 300.0  # a pull that gets nothing for so long is ended
    disk: float = 500.0 * GB
    image_bytes: float = 50.0 * GB  # of an image without a given size
    vm_bytes: float = 5.0 * GB  # what a clone takes beyond its image
    max_running: int = 0  # 0: no limit
    disk_growth: float = 0.0  # percent an hour by which a guest's disk fills up


class _Vm:
    """One VM, and the task that is its guest."""

    def __init__(self, spec: VmSpec) -> None:
        self.spec = spec
        self.view = VmView(name=spec.name, state=VmState.STOPPED)
        self.task: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.started_at = 0.0  # monotonic
        self.asked = False  # whether its guest was asked to end; asked again, it changes nothing

    def now_is(self, state: VmState, address: str = "") -> None:
        self.view = msgspec.structs.replace(self.view, state=state, address=address)


async def _idle(spec: VmSpec, address: str) -> int:
    """The default guest: does nothing until it is cancelled."""
    await asyncio.get_running_loop().create_future()
    return 0


class SimDriver(VmDriver):
    """The VMs and images of one simulated host."""

    def __init__(
        self,
        clock: Clock,
        *,
        host: Host | None = None,
        guest: Guest = _idle,
        registry: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        programs: Mapping[str, Program] | None = None,
        uplink: Uplink | None = None,
    ) -> None:
        self._clock = clock
        self.host = host or Host()
        self.guest = guest
        self.registry = registry  # images that exist, with their sizes; None: every image exists
        self.tags = dict(tags or {})  # what references without a digest mean now
        self.programs = dict(programs or {})  # that `exec` finds in every guest
        self.services: dict[int, Callable[[], AbstractAsyncContextManager[Connection]]] = {}
        self.history: list[str] = []  # every VM ever started, in order
        self.disk_percent: dict[
            str, float | None
        ] = {}  # by VM; what a guest reports about its disk
        self._vms: dict[str, _Vm] = {}
        self._logs: dict[
            str, ConsoleLog
        ] = {}  # also those of deleted VMs, until they are forgotten
        self._images: dict[str, ImageView] = {}
        self._pulls: dict[str, asyncio.Lock] = {}
        self._line = (uplink or Uplink(clock)).line(self.host.bandwidth)
        self._addresses = count(2)
        self._still: asyncio.Event | None = None  # set when a driver that stands still goes on
        self._frozen: dict[str, asyncio.Event] = {}  # by VM; set when it reacts again
        self._errors: dict[str, list[VmError]] = {}
        self._hangs: dict[str, int] = {}

    def reopened(self) -> "SimDriver":
        """Another driver of the same machine, as a restarted agent has it; planned faults are the old one's."""
        fresh = copy(self)
        vars(fresh).update(_pulls={}, _errors={}, _hangs={})
        return fresh

    # ── faults and state, for tests ─────────────────────────────────────────────────────────────

    def fail(self, method: str, error: VmError, *, times: int = 1) -> None:
        """Makes the next calls of a method raise."""
        self._errors.setdefault(method, []).extend([error] * times)

    def hang(self, method: str, *, times: int = 1) -> None:
        """Makes the next calls of a method never return."""
        self._hangs[method] = self._hangs.get(method, 0) + times

    def stall_pulls(self, stalled: bool = True) -> None:
        """Lets the network deliver nothing, or deliver again."""
        self._line.stall(stalled)

    def slow_down(self, bandwidth: float | None = None) -> None:
        """Changes the bandwidth of this host's line; without a number it is the usual one again."""
        self._line.set_bandwidth(self.host.bandwidth if bandwidth is None else bandwidth)

    def stand_still(self, still: bool = True) -> None:
        """Lets every call wait until the driver goes on; VMs and guests run meanwhile."""
        if still:
            self._still = self._still or asyncio.Event()
        elif self._still is not None:
            self._still.set()
            self._still = None

    def grow_disks(self, percent_an_hour: float) -> None:
        """Lets the disks of guests fill up."""
        self.host = msgspec.structs.replace(self.host, disk_growth=percent_an_hour)

    def freeze(self, name: str, frozen: bool = True) -> None:
        """Lets a VM not react: calls about it wait until it does again."""
        if frozen:
            self._frozen.setdefault(name, asyncio.Event())
        elif name in self._frozen:
            self._frozen.pop(name).set()

    def heal(self) -> None:
        """Removes planned faults; calls that hang stay so until they are cancelled."""
        self._errors.clear()
        self._hangs.clear()
        self._line.stall(False)

    def spec(self, name: str) -> VmSpec:
        """What a VM was created from."""
        return self._vms[name].spec

    def view(self, name: str) -> VmView | None:
        """The state of a VM, without a call to the host."""
        vm = self._vms.get(name)
        return None if vm is None else vm.view

    def has(self, image: str) -> bool:
        """Whether an image is stored, without a call to the host."""
        return image in self._images

    def views(self) -> tuple[VmView, ...]:
        """The state of every VM."""
        return tuple(vm.view for vm in self._vms.values())

    def kill(self, name: str, *, reason: str = "the VM's process died") -> None:
        """Ends one VM at once; its guest reports nothing."""
        vm = self._vms.get(name)
        if vm is not None and vm.view.state in _UP:
            self._end(vm, None, reason)

    def add_foreign_vm(self, name: str) -> None:
        """Adds a running VM that the agent did not create."""
        vm = self._vms[name] = _Vm(VmSpec(name=name, image="", cpu_milli=0, memory_mb=0))
        vm.view = VmView(name=name, state=VmState.RUNNING, owned=False, address="192.168.64.254")

    def power_off_host(self) -> None:
        """Cuts the power: every guest ends at once and reports nothing."""
        for vm in self._vms.values():
            if vm.view.state in _UP:
                self._end(vm, None, "the host lost its power")

    # ── the contract ────────────────────────────────────────────────────────────────────────────

    async def list(self) -> tuple[VmView, ...]:
        """Every VM."""
        await self._fault("list")
        await self._clock.sleep(self.host.list_seconds)
        return tuple(vm.view for vm in self._vms.values())

    async def create(self, spec: VmSpec) -> None:
        """Clone; the VM appears when the clone is complete."""
        await self._fault("create")
        if spec.name in self._vms:
            self._owned(spec.name)
            return
        if spec.image not in self._images:
            raise ImageMissing(spec.image)
        self._need(self.host.vm_bytes)
        await self._clock.sleep(self.host.clone_seconds)
        self._vms.setdefault(spec.name, _Vm(spec))
        self._logs.setdefault(spec.name, ConsoleLog())
        self._use(spec.image)

    async def start(self, name: str) -> None:
        """Boots in the background, on the host."""
        await self._fault("start", name)
        vm = self._owned(name)
        if vm is None:
            raise DriverFailed(f"{name} does not exist")
        if vm.view.state is VmState.EXITED:
            raise DriverFailed(f"{name} has ended")
        if vm.view.state is not VmState.STOPPED:
            return
        if 0 < self.host.max_running <= self._running():
            raise SlotsFull(f"{self._running()} of {self.host.max_running} slots are in use")
        vm.now_is(VmState.BOOTING)
        vm.started_at = self._clock.monotonic()
        self.history.append(name)
        # An empty context: the task belongs to the host and outlives the agent that asked for it.
        loop = asyncio.get_running_loop()
        vm.task = loop.create_task(self._live(vm), name=f"vm {name}", context=Context())

    async def stop(self, name: str, *, grace: float) -> None:
        """Asks, waits, powers off."""
        await self._fault("stop", name)
        vm = self._vms.get(name)
        if vm is None or not vm.view.owned or vm.view.state not in _UP:
            return
        if vm.task is not None and not vm.asked:
            vm.asked = True
            vm.task.cancel()
        try:
            async with self._clock.timeout(max(0.0, grace)):
                await vm.ended.wait()
        except TimeoutError:
            self._end(vm, None, "powered off")

    async def delete(self, name: str) -> None:
        """Remove what is not running."""
        await self._fault("delete", name)
        await self._clock.sleep(self.host.delete_seconds)
        vm = self._vms.get(name)
        if vm is None or not vm.view.owned:
            return
        if vm.view.state in _UP:
            raise DriverFailed(f"{name} is running")
        del self._vms[name]
        self.disk_percent.pop(name, None)

    async def forget(self, name: str) -> None:
        """Drops the log."""
        await self._fault("forget")
        if name not in self._vms:
            self._logs.pop(name, None)

    async def resolve(self, image: str) -> ResolvedImage:
        """What a tag means by the test's table; an image without a tag in it means itself."""
        await self._fault("resolve")
        pinned = self.tags.get(image, image)
        return ResolvedImage(reference=pinned, bytes=int(self._size(pinned)))

    async def images(self) -> tuple[ImageView, ...]:
        """What is on the disk."""
        await self._fault("images")
        return tuple(self._images.values())

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        """Transfers it over the shared uplink; a partial transfer is lost when it is cancelled."""
        await self._fault("pull")
        async with self._pulls.setdefault(image, asyncio.Lock()):
            if image in self._images:
                return
            size = self._size(image)
            self._need(size)

            def report(done: float) -> None:
                percent = 100.0 * done / size if size else 100.0
                progress(PullProgress(percent=percent, bytes_done=int(done), bytes_total=int(size)))

            if not await self._line.transfer(
                size, stall_after=self.host.stall_seconds, report=report
            ):
                raise Stalled(f"{image}: nothing arrived for {self.host.stall_seconds:.0f} s")
            self._need(size)
            self._images[image] = ImageView(
                reference=image, bytes=int(size), last_used=self._clock.now()
            )

    async def remove_image(self, image: str) -> None:
        """Free its space."""
        await self._fault("remove_image")
        self._images.pop(image, None)

    @contextlib.asynccontextmanager
    async def _exec(
        self, name: str, argv: tuple[str, ...], tty: TerminalSize | None
    ) -> AsyncIterator[ExecSession]:
        await self._fault("exec", name)
        vm = self._vms.get(name)
        if vm is None or vm.view.state is not VmState.RUNNING:
            raise Unreachable(f"{name} is not running")
        async with running(self.programs, argv, tty) as session:
            yield session

    def exec(
        self, name: str, argv: tuple[str, ...], *, tty: TerminalSize | None = None
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Runs one of the test's programs."""
        return self._exec(name, argv, tty)

    async def logs(self, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What `write_log` wrote."""
        log = self._logs.get(name)
        sent = 0
        while log is not None:
            changed, vm = log.changed, self._vms.get(name)
            if len(log.text) > sent:
                piece, sent = bytes(log.text[sent:]), len(log.text)
                yield piece
                continue
            if not follow or vm is None or vm.view.state is VmState.EXITED:
                return
            await changed.wait()

    def write_log(self, name: str, text: bytes) -> None:
        """Writes to a VM's console."""
        self._logs[name].write(text)

    @contextlib.asynccontextmanager
    async def _dial(self, name: str, port: int) -> AsyncIterator[Connection]:
        await self._fault("dial", name)
        service = self.services.get(port)
        vm = self._vms.get(name)
        if service is None or vm is None or vm.view.state is not VmState.RUNNING:
            raise Unreachable(f"{name} serves nothing at port {port}")
        async with service() as connection:
            yield connection

    def dial(self, name: str, port: int) -> AbstractAsyncContextManager[Connection]:
        """Connects to one of the test's services."""
        return self._dial(name, port)

    async def disk_usage(self, name: str) -> float | None:
        """What a test has set, else a third and the growth since the start."""
        await self._fault("disk_usage", name)
        await self._clock.sleep(self.host.probe_seconds)
        vm = self._vms.get(name)
        if vm is None or vm.view.state is not VmState.RUNNING:
            return None
        if name in self.disk_percent:
            return self.disk_percent[name]
        hours = (self._clock.monotonic() - vm.started_at) / 3600.0
        return min(100.0, 33.0 + hours * self.host.disk_growth)

    async def capacity(self) -> HostCapacity:
        """Disk and slots."""
        await self._fault("capacity")
        return HostCapacity(
            disk_total=int(self.host.disk),
            disk_free=int(self.host.disk - self._used()),
            slots=self.host.max_running,
            slots_used=self._running(),
        )

    # ── internal ──────────────────────────────────────────────────────────────────────────────────

    async def _live(self, vm: _Vm) -> None:
        """Boots, runs the guest, ends. After a power-off the guest's own end does not count."""
        code, reason = None, ""
        try:
            await self._clock.sleep(self.host.boot_seconds)
            number = next(self._addresses)
            address = f"192.168.{64 + number // 250}.{number % 250 + 2}"
            vm.now_is(VmState.RUNNING, address)
            code = await self.guest(vm.spec, address)
        except asyncio.CancelledError:
            reason = "asked to end"  # by `stop`, or by the end of the whole run
        finally:
            self._end(vm, code, reason)

    def _end(self, vm: _Vm, code: int | None, reason: str) -> None:
        if vm.view.state is VmState.EXITED:
            return
        vm.view = VmView(
            name=vm.view.name,
            state=VmState.EXITED,
            owned=vm.view.owned,
            exit_code=code,
            exit_reason=reason,
            finished_at=self._clock.now(),
        )
        vm.ended.set()
        if vm.view.name in self._logs:
            self._logs[vm.view.name].write(b"")  # whoever follows it sees that the VM has ended
        if vm.task is not None and not vm.task.done():
            vm.task.cancel()

    def _owned(self, name: str) -> _Vm | None:
        vm = self._vms.get(name)
        if vm is not None and not vm.view.owned:
            raise DriverFailed(f"{name} was not created here: it is left alone")
        return vm

    def _running(self) -> int:
        return sum(vm.view.state in _UP for vm in self._vms.values())

    def _size(self, image: str) -> float:
        if self.registry is None:
            return self.host.image_bytes
        if image not in self.registry:
            raise ImageMissing(f"{image} is not in the registry")
        return self.registry[image]

    def _use(self, image: str) -> None:
        held = self._images.get(image)
        if held is not None:
            self._images[image] = msgspec.structs.replace(held, last_used=self._clock.now())

    def _used(self) -> float:
        return sum(image.bytes for image in self._images.values()) + self.host.vm_bytes * len(
            self._vms
        )

    def _need(self, size: float) -> None:
        if self._used() + size > self.host.disk:
            raise NoSpace("No space left on device")

    async def _fault(self, method: str, name: str = "") -> None:
        if name in self._frozen:
            await self._frozen[name].wait()
        if self._still is not None:
            await self._still.wait()
        left = self._hangs.get(method, 0)
        if left:
            self._hangs[method] = left - 1
            await asyncio.get_running_loop().create_future()
        errors = self._errors.get(method)
        if errors:
            raise errors.pop(0)
