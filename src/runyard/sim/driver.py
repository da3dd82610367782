"""A host's VM driver under virtual time: boot times, one network line, one disk, and faults on demand.

It belongs to the host, not to the agent: VMs, and the guests that run in them, continue when the agent is killed,
and the next agent finds them. It carries out requests, slowly and, if a test requests it, with faults.

A guest is a coroutine that starts when its VM has booted and returns the guest's exit code. Asking it to end is a
cancellation: a well-behaved guest catches it, cleans up and returns a code. The power-off is a second cancellation;
what a guest does after that has no effect.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.vm.contract import (
    DriverFailed,
    ImageMissing,
    NoSpace,
    VmDriver,
    VmError,
    VmSpec,
    VmState,
    VmView,
)

GB = 10**9
Guest = Callable[[VmSpec, str], Coroutine[Any, Any, int]]


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of the machine."""

    boot_seconds: float = 20.0
    clone_seconds: float = 2.0
    list_seconds: float = 0.05
    delete_seconds: float = 0.5
    probe_seconds: float = 0.2
    bandwidth: float = 0.125 * GB  # bytes a second, shared by all pulls
    disk: float = 500.0 * GB
    image_bytes: float = 50.0 * GB  # of an image without a given size
    vm_bytes: float = 5.0 * GB  # what a clone takes beyond its image
    max_running: int = 0  # 0: no limit


class _Vm:
    """One VM, and the task that is its guest."""

    def __init__(self, spec: VmSpec) -> None:
        self.spec = spec
        self.view = VmView(name=spec.name, state=VmState.STOPPED)
        self.task: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

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
    ) -> None:
        self._clock = clock
        self.host = host or Host()
        self.guest = guest
        self.registry = registry  # images that exist, with their sizes; None: every image exists
        self.history: list[str] = []  # every VM ever started, in order
        self.disk_percent: dict[
            str, float | None
        ] = {}  # by VM; what a guest reports about its disk
        self._vms: dict[str, _Vm] = {}
        self._images: dict[str, float] = {}
        self._pulls = 0
        self._line_changed = asyncio.Event()
        self._addresses = 1
        self._errors: dict[str, list[VmError]] = {}
        self._hangs: dict[str, int] = {}

    # ── faults and state, for tests ─────────────────────────────────────────────────────────────

    def fail(self, method: str, error: VmError, *, times: int = 1) -> None:
        """Makes the next calls of a method raise."""
        self._errors.setdefault(method, []).extend([error] * times)

    def hang(self, method: str, *, times: int = 1) -> None:
        """Makes the next calls of a method never return."""
        self._hangs[method] = self._hangs.get(method, 0) + times

    def heal(self) -> None:
        """Removes planned faults; calls that hang stay so until they are cancelled."""
        self._errors.clear()
        self._hangs.clear()

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
        if vm is not None and vm.view.state in (VmState.BOOTING, VmState.RUNNING):
            self._end(vm, None, reason)

    def add_foreign_vm(self, name: str) -> None:
        """Adds a running VM that the agent did not create."""
        vm = self._vms[name] = _Vm(VmSpec(name=name, image="", cpu_milli=0, memory_mb=0))
        vm.now_is(VmState.RUNNING, "192.168.64.254")

    def power_off_host(self) -> None:
        """Cuts the power: every guest ends at once and reports nothing."""
        for vm in self._vms.values():
            if vm.view.state in (VmState.BOOTING, VmState.RUNNING):
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
            return
        if spec.image not in self._images:
            raise ImageMissing(spec.image)
        self._need(self.host.vm_bytes)
        await self._clock.sleep(self.host.clone_seconds)
        self._vms.setdefault(spec.name, _Vm(spec))

    async def start(self, name: str) -> None:
        """Boots in the background, on the host."""
        await self._fault("start")
        vm = self._vms.get(name)
        if vm is None:
            raise DriverFailed(f"{name} does not exist")
        if vm.view.state is VmState.EXITED:
            raise DriverFailed(f"{name} has ended")
        if vm.view.state is not VmState.STOPPED:
            return
        if 0 < self.host.max_running <= self._running():
            raise DriverFailed("the number of VMs exceeds the system limit")
        vm.now_is(VmState.BOOTING)
        self.history.append(name)
        # An empty context: the task belongs to the host and outlives the agent that asked for it.
        loop = asyncio.get_running_loop()
        vm.task = loop.create_task(self._live(vm), name=f"vm {name}", context=Context())

    async def stop(self, name: str, *, grace: float) -> None:
        """Asks, waits, powers off."""
        await self._fault("stop")
        vm = self._vms.get(name)
        if vm is None or vm.view.state not in (VmState.BOOTING, VmState.RUNNING):
            return
        if vm.task is not None:
            vm.task.cancel()
        try:
            async with self._clock.timeout(max(0.0, grace)):
                await vm.ended.wait()
        except TimeoutError:
            self._end(vm, None, "powered off")

    async def delete(self, name: str) -> None:
        """Remove what is not running."""
        await self._fault("delete")
        await self._clock.sleep(self.host.delete_seconds)
        vm = self._vms.get(name)
        if vm is None:
            return
        if vm.view.state in (VmState.BOOTING, VmState.RUNNING):
            raise DriverFailed(f"{name} is running")
        del self._vms[name]
        self.disk_percent.pop(name, None)

    async def images(self) -> tuple[str, ...]:
        """What is on the disk."""
        await self._fault("images")
        return tuple(self._images)

    async def pull(self, image: str) -> None:
        """Transfers it over the shared line; a partial transfer is lost when it is cancelled."""
        await self._fault("pull")
        if image in self._images:
            return
        if self.registry is not None and image not in self.registry:
            raise ImageMissing(f"{image} is not in the registry")
        size = self.host.image_bytes if self.registry is None else self.registry[image]
        self._need(size)
        await self._transfer(size)
        self._need(size)
        self._images[image] = size

    async def remove_image(self, image: str) -> None:
        """Free its space."""
        await self._fault("remove_image")
        self._images.pop(image, None)

    async def disk_usage(self, name: str) -> float | None:
        """What a test has set, else a third."""
        await self._fault("disk_usage")
        await self._clock.sleep(self.host.probe_seconds)
        vm = self._vms.get(name)
        if vm is None or vm.view.state is not VmState.RUNNING:
            return None
        return self.disk_percent.get(name, 33.0)

    # ── internal ──────────────────────────────────────────────────────────────────────────────────

    async def _live(self, vm: _Vm) -> None:
        """Boots, runs the guest, ends. After a power-off the guest's own end does not count."""
        code, reason = None, ""
        try:
            await self._clock.sleep(self.host.boot_seconds)
            self._addresses += 1
            address = f"192.168.{64 + self._addresses // 250}.{self._addresses % 250 + 2}"
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
            exit_code=code,
            exit_reason=reason,
            finished_at=self._clock.now(),
        )
        vm.ended.set()
        if vm.task is not None and not vm.task.done():
            vm.task.cancel()

    def _running(self) -> int:
        up = (VmState.BOOTING, VmState.RUNNING)
        return sum(vm.view.state in up for vm in self._vms.values())

    def _need(self, size: float) -> None:
        used = sum(self._images.values()) + self.host.vm_bytes * len(self._vms)
        if used + size > self.host.disk:
            raise NoSpace("No space left on device")

    async def _transfer(self, size: float) -> None:
        """Transfers so many bytes; concurrent pulls get equal shares."""
        self._share(+1)
        try:
            while size >= 1.0:
                rate = self.host.bandwidth / self._pulls
                began = self._clock.monotonic()
                try:
                    async with self._clock.timeout(size / rate):
                        await self._line_changed.wait()
                except TimeoutError:
                    return
                size -= (self._clock.monotonic() - began) * rate
        finally:
            self._share(-1)

    def _share(self, change: int) -> None:
        self._pulls += change
        changed, self._line_changed = self._line_changed, asyncio.Event()
        changed.set()

    async def _fault(self, method: str) -> None:
        left = self._hangs.get(method, 0)
        if left:
            self._hangs[method] = left - 1
            await asyncio.get_running_loop().create_future()
        errors = self._errors.get(method)
        if errors:
            raise errors.pop(0)
