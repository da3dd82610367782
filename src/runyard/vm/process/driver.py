"""The driver that runs a VM as a directory and a group of processes, for machines without virtual machines.

It runs real jobs with real scripts; `runyard up` uses it where there is neither tart nor QEMU. `isolation.py` says how
far VMs are isolated, `layout.py` where files are, `vm/shim` how a VM's state is read from them and how its shim is
started and controlled.

Invariants:
- All state is on disk. If the process is killed at any moment, another driver on the same home continues.
- A VM appears and disappears by a rename: an incomplete VM has a name with a dot, is not listed, and is removed
  unless a live process holds its lock.
- A VM without a shim and without an exit record is *reaped* (its processes are killed, its exit record is written)
  before its end is reported.
- The log of a deleted VM stays in `logs/<name>` until the VM is forgotten.
- A VM's control group and users are released with its directory; the next driver clears what a killed agent has
  left of either.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.vm.contract import (
    Connection,
    DriverFailed,
    ExecSession,
    HostCapacity,
    ImageView,
    PullProgress,
    ResolvedImage,
    TerminalSize,
    VmDriver,
    VmError,
    VmSpec,
    VmState,
    VmView,
    ignore_progress,
)
from runyard.vm.process import cgroups, guests, sandbox, staging, users
from runyard.vm.process.addresses import connects_its_own_way
from runyard.vm.process.folders import (
    NewDirectory,
    copy,
    map_os_errors,
    remove_whole,
    sweep,
    visible,
)
from runyard.vm.process.imagestore import ImageStore
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import StoredSpec, VmDirectory, vm_name
from runyard.vm.process.limits import Limits, leaf_limits
from runyard.vm.process.networks import network_order
from runyard.vm.process.probe import sweep_trials
from runyard.vm.relays import Relay
from runyard.vm.shim import control, logs
from runyard.vm.shim.control import POWER_OFF_TIMEOUT
from runyard.vm.shim.directory import ShimState, private
from runyard.vm.shim.orders import Pace, polling_order, stage_polling
from runyard.wire import names

SHIM = "runyard.vm.process.shim"  # the program of its shims
_REAP_IN_LIST = 1.0  # seconds for VMs whose shims were killed; more than their processes need


class ProcessDriver(VmDriver):
    """Runs the VMs of one host under `home`; images are "pulled" from `image_source`."""

    def __init__(
        self,
        home: Path,
        *,
        image_source: Path,
        clock: Clock,
        limits: Limits | None = None,
        isolation: Isolation | None = None,
        relays: tuple[Relay, ...] = (),
        pace: Pace | None = None,
    ) -> None:
        self._clock = clock
        self._home = home
        self._vms = home / "vms"
        self._images = ImageStore(home / "images", image_source, clock)
        self.limits = limits or Limits()
        self.isolation = isolation or Isolation()
        self._relays = relays
        self._pace = pace
        self._swept = False

    # ── the contract ────────────────────────────────────────────────────────────────────────────

    async def list(self) -> tuple[VmView, ...]:
        """Lists every VM; those whose shim was killed are reaped first, in a short time for all of them."""
        await self._open()
        orphans = [each for each in self._directories() if each.shim_state() is ShimState.ORPHANED]
        async with asyncio.TaskGroup() as tasks:
            for directory in orphans:
                tasks.create_task(self._try_to_reap(directory))
        return tuple(self._view(each) for each in self._directories() if each.exists())

    async def _try_to_reap(self, directory: VmDirectory) -> None:
        # If it takes longer, it is shown as running, and the next call looks again.
        with contextlib.suppress(VmError):
            await control.reap(directory, self._clock, program=SHIM, within=_REAP_IN_LIST)

    async def create(self, spec: VmSpec) -> None:
        """Copies the image and stages the guest's files; the VM appears when it is complete."""
        await self._open()
        directory = self._directory(spec.name)
        if directory.exists():
            _need_ours(directory)
            return
        image = self._images.find(spec.image)
        with map_os_errors():
            async with NewDirectory(directory.path) as fresh:
                await self._stage(fresh, directory, spec, image)
                fresh.publish()
        _need_ours(directory)

    async def _stage(
        self, fresh: NewDirectory, directory: VmDirectory, spec: VmSpec, image: Path
    ) -> None:
        own = users.claim(self.isolation, fresh.holder, directory.path)
        if spec.polling is None:
            made = staging.skeleton(fresh.path, env=spec.env, token=spec.token)
        else:  # nothing of the host's is staged for the guest
            made = staging.skeleton(fresh.path, env=(), token="")
            stage_polling(made, spec)
        await copy(image, made.image)
        _use_work_of_image(made)
        env = dict(spec.env)
        stored = StoredSpec(
            name=spec.name,
            image=spec.image,
            cpu_milli=spec.cpu_milli,
            memory_mb=spec.memory_mb,
            users=own,
            dispatch_url="" if spec.polling else env.get(names.ENV_DISPATCH_URL, ""),
            dispatch_direct=connects_its_own_way(env),
            polling=spec.polling,
            env=spec.env if spec.polling else (),
        )
        private(fresh.path / "spec.json", msgspec.json.encode(stored))
        await staging.set_owners(made, own)

    async def start(self, name: str) -> None:
        """Starts its shim, and returns when the guest has started."""
        directory = self._directory(name)
        if not directory.exists():
            raise DriverFailed(f"{name} does not exist")
        _need_ours(directory)
        if _is_up(directory):
            return
        async with control.locked(directory, self._clock) as lock:
            if lock is None or _is_up(directory):
                return  # another caller starts it
            stored = directory.stored_spec()
            if stored is None:
                raise DriverFailed(f"the spec.json of {name} cannot be read")
            with map_os_errors():
                self._write_order(directory, stored)
                await control.start(directory, lock, self._clock, program=SHIM)

    async def stop(self, name: str, *, grace: float) -> None:
        """Requests a shutdown from the guest, waits `grace` seconds, then kills every process of the VM."""
        directory = self._directory(name)
        if not directory.prepared():
            return
        try:
            await self._stop(directory, grace)
        finally:
            users.tidy(self.isolation.registry)

    async def _stop(self, directory: VmDirectory, grace: float) -> None:
        shim_state = directory.shim_state()
        if shim_state is ShimState.ORPHANED:
            await control.reap(directory, self._clock, program=SHIM)
        if shim_state not in (ShimState.BOOTING, ShimState.RUNNING):
            return
        if grace > 0:
            await control.send(directory, control.SHUT_DOWN, self._clock)
            if await control.wait_gone(directory, self._clock, within=grace):
                return
        await control.send(directory, control.POWER_OFF, self._clock)
        if not await control.wait_gone(directory, self._clock, within=POWER_OFF_TIMEOUT):
            raise DriverFailed(
                f"{directory.name} did not end within {POWER_OFF_TIMEOUT:g} s of its power-off"
            )

    async def delete(self, name: str) -> None:
        """Removes its directory, its control group and its users; its log is moved to the kept ones."""
        await self._open()
        directory = self._directory(name)
        if not directory.prepared():
            return
        if directory.shim_state() is ShimState.ORPHANED:
            await control.reap(directory, self._clock, program=SHIM)
        if directory.shim_state() in (ShimState.BOOTING, ShimState.RUNNING, ShimState.ORPHANED):
            raise DriverFailed(f"{name} is running")
        # The shim ends after it has written the exit record.
        await control.wait_gone(directory, self._clock, within=POWER_OFF_TIMEOUT)
        async with control.locked(directory, self._clock) as lock:
            if lock is None:
                raise DriverFailed(f"{name} is being started")
            if self.isolation.cgroup:
                await cgroups.clear(cgroups.leaf_path(self._group, directory.path), self._clock)
            with contextlib.suppress(OSError):  # a full disk must not keep it from being emptied
                logs.keep(directory.state, self._kept(name))
            await remove_whole(directory.path)
        users.tidy(self.isolation.registry)

    async def forget(self, name: str) -> None:
        """Removes the log of a deleted VM."""
        await self._open()
        await remove_whole(self._kept(name))

    async def resolve(self, image: str) -> ResolvedImage:
        """The image of that name at the source."""
        return self._images.resolve(image)

    async def images(self) -> tuple[ImageView, ...]:
        """The pulled images that are still current at the source."""
        await self._open()
        return self._images.views()

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        """Copies it from the source; it appears when it is complete."""
        await self._open()
        await self._images.pull(image, progress)

    async def remove_image(self, image: str) -> None:
        """Removes its directory; VMs have their own copies."""
        await self._open()
        await self._images.remove(image)

    def exec(
        self, name: str, argv: tuple[str, ...], *, tty: TerminalSize | None = None
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Runs a command in the VM's sandbox, as its job's user."""
        return guests.run_command(self._directory(name), argv, tty=tty, clock=self._clock)

    def logs(self, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """The newest output of the guest: of a VM that exists, else of a deleted one."""
        directory = self._directory(name)
        return logs.read(
            (directory.state, self._kept(name)),
            clock=self._clock,
            follow=follow,
            ended=lambda: not directory.exists() or directory.has_ended(),
        )

    def dial(self, name: str, port: int) -> AbstractAsyncContextManager[Connection]:
        """Connects to a port on the guest's loopback, in its own network."""
        return guests.connect(self._directory(name), port, clock=self._clock)

    async def disk_usage(self, name: str) -> float | None:
        """Percent of the allowed disk space that the VM has used."""
        directory = self._directory(name)
        used = directory.disk_bytes()
        if (
            used is None
            or not self.limits.disk_mb
            or directory.shim_state() is not ShimState.RUNNING
        ):
            return None
        return min(100.0, 100.0 * used / (self.limits.disk_mb << 20))

    async def capacity(self) -> HostCapacity:
        """The file system of the home; processes need no slots."""
        await self._open()
        with map_os_errors():
            found = os.statvfs(self._home)
        return HostCapacity(
            disk_total=found.f_blocks * found.f_frsize, disk_free=found.f_bavail * found.f_frsize
        )

    # ── launch orders and directories ──────────────────────────────────────────────────────────────────

    @property
    def _group(self) -> Path:
        return Path(self.isolation.cgroup)

    def _write_order(self, directory: VmDirectory, stored: StoredSpec) -> None:
        order = sandbox.order(
            directory,
            self.isolation,
            users=stored.users,
            limits=self.limits,
            cgroup=self._make_group(directory, stored),
            network=network_order(
                directory,
                self.isolation,
                users=stored.users,
                dispatch_url=stored.dispatch_url,
                dispatch_direct=stored.dispatch_direct,
                relays=self._relays,
            ),
            polling=self._polling_order(directory, stored),
        )
        directory.write_order(order)

    def _polling_order(self, directory: VmDirectory, stored: StoredSpec) -> dict[str, Any] | None:
        if stored.polling is None:
            return None
        return polling_order(
            directory,
            stored.polling,
            env=stored.env,
            exec_argv=guests.command_argv(directory),
            pace=self._pace,
        )

    def _make_group(self, directory: VmDirectory, stored: StoredSpec) -> str:
        if not self.isolation.cgroup:
            return ""
        limits = leaf_limits(
            self.isolation.controllers,
            cpu_milli=self.limits.cpu_milli or stored.cpu_milli,
            memory_mb=self.limits.memory_mb or stored.memory_mb,
            pids=self.limits.pids,
        )
        return str(cgroups.make(self._group, directory.path, limits))

    def _view(self, directory: VmDirectory) -> VmView:
        """What is in its folder and was not made by a driver is another's."""
        if directory.prepared():
            return directory.view()
        return VmView(name=directory.name, state=VmState.STOPPED, owned=False)

    def _kept(self, name: str) -> Path:
        return self._home / "logs" / vm_name(name)

    def _directory(self, name: str) -> VmDirectory:
        return VmDirectory(self._vms / vm_name(name))

    def _directories(self) -> tuple[VmDirectory, ...]:
        return tuple(VmDirectory(path) for path in visible(self._vms))

    async def _open(self) -> None:
        """Creates the folders; the first call removes what a killed agent left incomplete or without an owner."""
        if self._swept:
            return
        self._swept = True
        self._vms.mkdir(parents=True, exist_ok=True)
        (self._home / "logs").mkdir(mode=0o700, exist_ok=True)
        self._vms.chmod(0o711)  # a VM's user may pass through, but not list
        await sweep_trials(self._home)
        await sweep(self._vms)
        await sweep(self._home / "logs")
        await self._images.open()
        if self.isolation.cgroup:
            await cgroups.sweep(self._group, self._clock)
        users.tidy(self.isolation.registry)


def _need_ours(directory: VmDirectory) -> None:
    if not directory.prepared():
        raise DriverFailed(
            f"{directory.path} was not made by this driver and is left alone: move it away, or use another name"
        )


def _is_up(directory: VmDirectory) -> bool:
    """Whether it runs; a VM that has ended never starts again."""
    shim_state = directory.shim_state()
    if shim_state in (ShimState.EXITED, ShimState.ORPHANED):
        raise DriverFailed(f"{directory.name} has ended")
    return shim_state is not ShimState.STOPPED


def _use_work_of_image(made: VmDirectory) -> None:
    """Makes the image's work folder the VM's work folder."""
    first = made.image / "work"
    if first.is_dir() and not first.is_symlink():
        made.work.rmdir()
        first.rename(made.work)
        made.work.chmod(0o700)
