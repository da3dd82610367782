"""The driver that runs a VM as a directory and a group of processes, for machines without virtual machines.

It runs real jobs with real scripts; `runyard up` uses it where there is neither tart nor QEMU. `isolation.py` says how
far VMs are isolated, `layout.py` where files are and how a VM's state is read from them, `shims.py` how a VM's shim is
started and controlled.

Invariants:
- All state is on disk. If the process is killed at any moment, another driver on the same home continues.
- A VM appears and disappears by a rename: an incomplete VM has a name with a dot, is not listed, and is removed
  unless a live process holds its lock.
- A VM without a shim and without an exit record is *reaped* (its processes are killed, its exit record is written)
  before its end is reported.
- A VM's control group and users are released with its directory; the next driver clears what a killed agent has
  left of either.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.vm.contract import DriverFailed, VmDriver, VmError, VmSpec, VmView
from runyard.vm.process import cgroups, sandbox, shims, staging, users
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
from runyard.vm.process.layout import ShimState, StoredSpec, VmDirectory, vm_name
from runyard.vm.process.limits import Limits, leaf_limits
from runyard.vm.process.probe import sweep_trials
from runyard.vm.process.shims import POWER_OFF_TIMEOUT


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
    ) -> None:
        self._clock = clock
        self._home = home
        self._vms = home / "vms"
        self._images = ImageStore(home / "images", image_source)
        self.limits = limits or Limits()
        self.isolation = isolation or Isolation()
        self._swept = False

    # ── the contract ────────────────────────────────────────────────────────────────────────────

    async def list(self) -> tuple[VmView, ...]:
        """Lists every VM; those whose shim was killed are reaped first."""
        await self._open()
        for directory in self._directories():
            if directory.shim_state() is ShimState.ORPHANED:
                # If that fails, it is shown as running, and reaped at the next call.
                with contextlib.suppress(VmError):
                    await shims.reap(directory, self._clock)
        return tuple(directory.view() for directory in self._directories() if directory.exists())

    async def create(self, spec: VmSpec) -> None:
        """Copies the image and stages the guest's files; the VM appears when it is complete."""
        await self._open()
        directory = self._directory(spec.name)
        if directory.exists():
            return
        image = self._images.find(spec.image)
        with map_os_errors():
            async with NewDirectory(directory.path) as fresh:
                own = users.claim(self.isolation, fresh.holder, directory.path)
                made = staging.skeleton(fresh.path, env=spec.env, token=spec.token)
                await copy(image, made.image)
                _use_work_of_image(made)
                stored = StoredSpec(
                    name=spec.name,
                    image=spec.image,
                    cpu_milli=spec.cpu_milli,
                    memory_mb=spec.memory_mb,
                    users=own,
                )
                staging.private(fresh.path / "spec.json", msgspec.json.encode(stored))
                await staging.set_owners(made, own)
                fresh.publish()

    async def start(self, name: str) -> None:
        """Starts its shim, and returns when the guest has started."""
        directory = self._directory(name)
        if not directory.exists():
            raise DriverFailed(f"{name} does not exist")
        if _is_up(directory):
            return
        async with shims.locked(directory, self._clock) as lock:
            if lock is None or _is_up(directory):
                return  # another caller starts it
            stored = directory.stored_spec()
            if stored is None:
                raise DriverFailed(f"the spec.json of {name} cannot be read")
            with map_os_errors():
                self._write_order(directory, stored)
                await shims.start(directory, lock, self._clock)

    async def stop(self, name: str, *, grace: float) -> None:
        """Requests a shutdown from the guest, waits `grace` seconds, then kills every process of the VM."""
        directory = self._directory(name)
        shim_state = directory.shim_state()
        if shim_state is ShimState.ORPHANED:
            await shims.reap(directory, self._clock)
        if shim_state not in (ShimState.BOOTING, ShimState.RUNNING):
            return
        if grace > 0:
            await shims.send(directory, shims.SHUT_DOWN, self._clock)
            if await shims.wait_gone(directory, self._clock, within=grace):
                return
        await shims.send(directory, shims.POWER_OFF, self._clock)
        if not await shims.wait_gone(directory, self._clock, within=POWER_OFF_TIMEOUT):
            raise DriverFailed(
                f"{name} did not end within {POWER_OFF_TIMEOUT:g} s of its power-off"
            )

    async def stop_all(self, *, grace: float) -> None:
        """Stops all VMs at the same time, for an orderly end of the agent; one that hangs does not delay the others."""
        views = await self.list()
        stops = (self.stop(view.name, grace=grace) for view in views)
        outcomes = await asyncio.gather(*stops, return_exceptions=True)
        users.tidy(self.isolation.registry)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def delete(self, name: str) -> None:
        """Removes its directory, its control group and its users."""
        await self._open()
        directory = self._directory(name)
        if not directory.exists():
            return
        if directory.shim_state() is ShimState.ORPHANED:
            await shims.reap(directory, self._clock)
        if directory.shim_state() in (ShimState.BOOTING, ShimState.RUNNING, ShimState.ORPHANED):
            raise DriverFailed(f"{name} is running")
        # The shim ends after it has written the exit record.
        await shims.wait_gone(directory, self._clock, within=POWER_OFF_TIMEOUT)
        async with shims.locked(directory, self._clock) as lock:
            if lock is None:
                raise DriverFailed(f"{name} is being started")
            if self.isolation.cgroup:
                await cgroups.clear(cgroups.leaf_path(self._group, directory.path), self._clock)
            await remove_whole(directory.path)
        users.tidy(self.isolation.registry)

    async def images(self) -> tuple[str, ...]:
        """The pulled images that are still current at the source."""
        await self._open()
        return self._images.names()

    async def pull(self, image: str) -> None:
        """Copies it from the source; it appears when it is complete."""
        await self._open()
        await self._images.pull(image)

    async def remove_image(self, image: str) -> None:
        """Removes its directory; VMs have their own copies."""
        await self._open()
        await self._images.remove(image)

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
        )
        fresh = directory.state / "order.new"
        fresh.unlink(missing_ok=True)
        staging.private(fresh, msgspec.json.encode(order))
        fresh.replace(directory.state / "order.json")

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
        self._vms.chmod(0o711)  # a VM's user may pass through, but not list
        await sweep_trials(self._home)
        await sweep(self._vms)
        await self._images.open()
        if self.isolation.cgroup:
            await cgroups.sweep(self._group, self._clock)
        users.tidy(self.isolation.registry)


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
