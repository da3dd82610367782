"""A VM is a directory and a group of processes: the driver for a machine without virtual machines.

It runs real jobs with real scripts and is what `runyard up` uses where there is neither tart nor QEMU. How far VMs are
kept apart, `isolation.py` tells; where things lie and how a VM's state is read from its files, `layout.py`; how a VM's
keeper is started and told, `keeping.py`.

Invariants:
- This object knows nothing that is not on disk. Killed at any moment, another one on the same home goes on.
- A VM appears and disappears by a rename: half a VM has a name with a dot, is not listed, and is swept away unless
  somebody who lives holds its lock.
- A VM without a keeper and without an exit is *buried* (its processes are ended, its exit is written) before
  anybody hears of its end.
- What a VM had outside its directory, a control group and users, goes with the directory; what a killed agent has left
  of either is cleared by the next one.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.vm.contract import DriverFailed, VmDriver, VmError, VmSpec, VmView
from runyard.vm.process import groups, keeping, sandbox, staging, users
from runyard.vm.process.folders import Fresh, away, copy, full_disk_is_told, sweep, visible
from runyard.vm.process.imagestore import ImageStore
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.keeping import POWER_OFF_PATIENCE
from runyard.vm.process.layout import Kept, Place, Pulse, vm_name
from runyard.vm.process.limits import Limits, leaf_limits
from runyard.vm.process.probe import sweep_trials


class ProcessDriver(VmDriver):
    """The VMs and images of one host, under `home`; images are "pulled" from `image_source`."""

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
        """Every VM; those whose keeper was killed are buried first."""
        await self._open()
        for place in self._places():
            if place.pulse() is Pulse.ORPHANED:
                with contextlib.suppress(VmError):  # then it is shown as running, and tried again
                    await keeping.bury(place, self._clock)
        return tuple(place.view() for place in self._places() if place.exists())

    async def create(self, spec: VmSpec) -> None:
        """Copy the image and stage the guest's files; the VM appears when it is complete."""
        await self._open()
        place = self._place(spec.name)
        if place.exists():
            return
        image = self._images.find(spec.image)
        with full_disk_is_told():
            async with Fresh(place.path) as fresh:
                own = users.claim(self.isolation, fresh.holder, place.path)
                made = staging.skeleton(fresh.path, env=spec.env, token=spec.token)
                await copy(image, made.image)
                _take_work(made)
                kept = Kept(
                    name=spec.name,
                    image=spec.image,
                    cpu_milli=spec.cpu_milli,
                    memory_mb=spec.memory_mb,
                    users=own,
                )
                staging.private(fresh.path / "spec.json", msgspec.json.encode(kept))
                await staging.give(made, own)
                fresh.appear()

    async def start(self, name: str) -> None:
        """Start its keeper, and return when the guest has been started."""
        place = self._place(name)
        if not place.exists():
            raise DriverFailed(f"{name} does not exist")
        if _is_up(place):
            return
        async with keeping.locked(place, self._clock) as lock:
            if lock is None or _is_up(place):
                return  # somebody else is at it: one start
            kept = place.kept()
            if kept is None:
                raise DriverFailed(f"what {name} was created from cannot be read")
            with full_disk_is_told():
                self._give_order(place, kept)
                await keeping.start(place, lock, self._clock)

    async def stop(self, name: str, *, grace: float) -> None:
        """Ask the guest's first process, wait, then end every process of the VM."""
        place = self._place(name)
        pulse = place.pulse()
        if pulse is Pulse.ORPHANED:
            await keeping.bury(place, self._clock)
        if pulse not in (Pulse.BOOTING, Pulse.RUNNING):
            return
        if grace > 0:
            await keeping.tell(place, keeping.ASK, self._clock)
            if await keeping.gone(place, self._clock, within=grace):
                return
        await keeping.tell(place, keeping.POWER_OFF, self._clock)
        if not await keeping.gone(place, self._clock, within=POWER_OFF_PATIENCE):
            raise DriverFailed(
                f"{name} did not end within {POWER_OFF_PATIENCE:g} s of its power-off"
            )

    async def stop_all(self, *, grace: float) -> None:
        """Stop every VM at once, for an orderly end of the host's agent; one that does not end keeps no other up."""
        views = await self.list()
        stops = (self.stop(view.name, grace=grace) for view in views)
        outcomes = await asyncio.gather(*stops, return_exceptions=True)
        users.tidy(self.isolation.registry)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def delete(self, name: str) -> None:
        """Remove its directory, its control group and its users."""
        await self._open()
        place = self._place(name)
        if not place.exists():
            return
        if place.pulse() is Pulse.ORPHANED:
            await keeping.bury(place, self._clock)
        if place.pulse() in (Pulse.BOOTING, Pulse.RUNNING, Pulse.ORPHANED):
            raise DriverFailed(f"{name} is running")
        await keeping.gone(place, self._clock, within=POWER_OFF_PATIENCE)  # a keeper's last breath
        async with keeping.locked(place, self._clock) as lock:
            if lock is None:
                raise DriverFailed(f"{name} is being started")
            if self.isolation.cgroup:
                await groups.clear(groups.leaf_of(self._group, place.path), self._clock)
            await away(place.path)
        users.tidy(self.isolation.registry)

    async def images(self) -> tuple[str, ...]:
        """What was pulled, and is still what the source offers under that name."""
        await self._open()
        return self._images.names()

    async def pull(self, image: str) -> None:
        """Copy it from the source; it appears when it is complete."""
        await self._open()
        await self._images.pull(image)

    async def remove_image(self, image: str) -> None:
        """Remove its directory; VMs have their own copies."""
        await self._open()
        await self._images.remove(image)

    async def disk_usage(self, name: str) -> float | None:
        """What the VM has written, of what it may write."""
        place = self._place(name)
        used = place.disk_bytes()
        if used is None or not self.limits.disk_mb or place.pulse() is not Pulse.RUNNING:
            return None
        return min(100.0, 100.0 * used / (self.limits.disk_mb << 20))

    # ── orders and directories ──────────────────────────────────────────────────────────────────

    @property
    def _group(self) -> Path:
        return Path(self.isolation.cgroup)

    def _give_order(self, place: Place, kept: Kept) -> None:
        order = sandbox.order(
            place,
            self.isolation,
            users=kept.users,
            limits=self.limits,
            cgroup=self._make_group(place, kept),
        )
        fresh = place.state / "order.new"
        fresh.unlink(missing_ok=True)
        staging.private(fresh, msgspec.json.encode(order))
        fresh.replace(place.state / "order.json")

    def _make_group(self, place: Place, kept: Kept) -> str:
        if not self.isolation.cgroup:
            return ""
        limits = leaf_limits(
            self.isolation.controllers,
            cpu_milli=self.limits.cpu_milli or kept.cpu_milli,
            memory_mb=self.limits.memory_mb or kept.memory_mb,
            pids=self.limits.pids,
        )
        return str(groups.make(self._group, place.path, limits))

    def _place(self, name: str) -> Place:
        return Place(self._vms / vm_name(name))

    def _places(self) -> tuple[Place, ...]:
        return tuple(Place(path) for path in visible(self._vms))

    async def _open(self) -> None:
        """Make the folders; once, clear what a killed agent has left half made, half removed or without an owner."""
        if self._swept:
            return
        self._swept = True
        self._vms.mkdir(parents=True, exist_ok=True)
        self._vms.chmod(0o711)  # a VM's own user must get through, and need not look around
        await sweep_trials(self._home)
        await sweep(self._vms)
        await self._images.open()
        if self.isolation.cgroup:
            await groups.sweep(self._group, self._clock)
        users.tidy(self.isolation.registry)


def _is_up(place: Place) -> bool:
    """Whether it lives; one that has ended never starts again."""
    pulse = place.pulse()
    if pulse in (Pulse.EXITED, Pulse.ORPHANED):
        raise DriverFailed(f"{place.name} has ended")
    return pulse is not Pulse.STOPPED


def _take_work(made: Place) -> None:
    """The image's work folder is how the VM's own begins."""
    first = made.image / "work"
    if first.is_dir() and not first.is_symlink():
        made.work.rmdir()
        first.rename(made.work)
        made.work.chmod(0o700)
