"""The driver for Macs: VMs of Apple's virtualization, run by tart.

    create   record and staged files → golden VM of the image → `tart clone`, `set`   lifecycle, golden, directory
    start    a free slot → the shared shim, which runs `tart run`                     slots, lifecycle, guest
    list     `tart list` for what exists, the shims' records for what ours do         listing, addresses
    exec …   `tart exec`; the console log; a connection to the VM's address           sessions, console, dialing
    pull     `tart pull`, bounded by its progress                                     pulling

`commands` runs tart and `errors` reads its messages. `tart list` says "stopped" also of a VM that has ended; whether a
VM of ours was started, runs or has ended is read from its shim's record only.

Invariants:
- All state is on disk, below `home` and in tart's own folder: after a crash another driver continues.
- VMs without a record of ours are listed with `owned=False`; neither they nor their images are changed.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

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
    Unreachable,
    VmDriver,
    VmSpec,
    VmState,
    VmView,
    ignore_progress,
)
from runyard.vm.oci.failures import Hidden
from runyard.vm.oserrors import map_os_errors
from runyard.vm.shim import logs
from runyard.vm.shim.directory import ShimState
from runyard.vm.tart import dialing, sessions
from runyard.vm.tart.addresses import Addresses
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.directory import TartDirectory, sweep, visible, vm_name
from runyard.vm.tart.disk import percent_used
from runyard.vm.tart.golden import Goldens
from runyard.vm.tart.lifecycle import UP, Lifecycle
from runyard.vm.tart.links import linked
from runyard.vm.tart.listing import Entry
from runyard.vm.tart.pulling import Download, Pulls
from runyard.vm.tart.settings import Settings
from runyard.vm.tart.slots import Slots

_REAP = 2.0  # seconds that a list waits for VMs whose shims were killed


class Resolver(Protocol):
    """Asks registries what references mean; `vm.oci` does."""

    async def resolve(self, image: str) -> ResolvedImage:
        """What a reference means now."""
        ...

    async def download(self, image: str) -> Download:
        """What a pull of this image takes; empty if the registry does not say."""
        ...


class TartDriver(VmDriver):
    """Runs the VMs of one Mac; records and logs are below `home`."""

    pulls_tags = True

    def __init__(
        self,
        home: Path,
        *,
        registry: Resolver,
        clock: Clock,
        settings: Settings,
        environ: Mapping[str, str],
    ) -> None:
        self._vms = home / "vms"
        self._logs = home / "logs"
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self.tart = Tart(settings, clock, environ)
        self._goldens = Goldens(self.tart, home / "goldens")
        self._slots = Slots(self.tart, self._running)
        self._lifecycle = Lifecycle(self.tart, self._goldens, self._slots, self._logs)
        self._addresses = Addresses(self.tart)
        self._pulls = Pulls(self.tart, self._is_pulled, registry.download)
        self._swept = False

    # ── VMs ─────────────────────────────────────────────────────────────────────────────────────

    async def list(self) -> tuple[VmView, ...]:
        """Every VM of this host; golden VMs are a detail of images and are left out."""
        self._open()
        entries = await self.tart.list()
        await self._settle()
        ours = visible(self._vms)
        self._addresses.keep_only(self._running())
        views = [self._view(each) for each in ours if not self._lifecycle.is_being_created(each)]
        names = [directory.name for directory in ours]
        foreign = (
            _foreign(entry)
            for entry in entries
            if entry.local and entry.name not in names and not self._goldens.is_ours(entry.name)
        )
        return (*views, *foreign)

    async def create(self, spec: VmSpec) -> None:
        """Clones the image and stages the guest's files."""
        self._open()
        await self._lifecycle.create(self._directory(spec.name), spec)

    async def start(self, name: str) -> None:
        """Starts it if a slot is free."""
        await self._lifecycle.start(self._directory(name))

    async def stop(self, name: str, *, grace: float) -> None:
        """Asks the guest to shut down, waits, then powers it off."""
        await self._lifecycle.stop(self._directory(name), grace=grace)

    async def delete(self, name: str) -> None:
        """Deletes the VM and what was staged for it."""
        self._open()
        await self._lifecycle.delete(self._directory(name))

    async def forget(self, name: str) -> None:
        """Removes the log of a deleted VM."""
        absent = contextlib.suppress(FileNotFoundError)
        with map_os_errors(f"the log of {name} cannot be removed"), absent:
            shutil.rmtree(self._logs / vm_name(name))

    # ── images ──────────────────────────────────────────────────────────────────────────────────

    async def resolve(self, image: str) -> ResolvedImage:
        """Asks the registry; where only tart has the credentials for it, its pull tells what a tag means."""
        try:
            return await self._registry.resolve(image)
        except Hidden:
            return ResolvedImage(reference=image, pinned=False)

    async def remembered(self, image: str) -> str:
        """Follows tart's link from the tag to the digest."""
        return await asyncio.to_thread(linked, self.tart.home, image)

    async def images(self) -> tuple[ImageView, ...]:
        """The images with a digest; a tag is only another name for one of them."""
        return tuple(
            ImageView(reference=entry.name, bytes=entry.bytes, last_used=entry.accessed)
            for entry in await self.tart.list()
            if not entry.local and "@" in entry.name
        )

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        """Fetches it, unless it is there."""
        await self._pulls.pull(image, progress)

    async def remove_image(self, image: str) -> None:
        """Deletes it and its golden VM; VMs have their own copies."""
        await self._goldens.remove(image)
        await self.tart.delete(image)

    async def collect(self, *, used: frozenset[str], idle: float) -> tuple[str, ...]:
        """Deletes golden VMs: of images that are gone, and unused ones."""
        listed = frozenset(entry.name for entry in await self.tart.list() if not entry.local)
        return await self._goldens.collect(listed=listed, used=used, idle=idle)

    async def _is_pulled(self, image: str) -> bool:
        if "@" not in image:  # a tag may mean another image by now
            return False
        return any(entry.name == image for entry in await self.tart.list() if not entry.local)

    # ── guests ──────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def exec(
        self, name: str, argv: tuple[str, ...], *, tty: TerminalSize | None = None
    ) -> AsyncIterator[ExecSession]:
        """Runs a command through the guest's agent."""
        self._check_up(name)
        async with sessions.session(self.tart, name, argv, size=tty) as session:
            yield session

    def logs(self, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What tart and the guest have printed."""
        directory = self._directory(name)
        return logs.read(
            (directory.state, self._logs / directory.name),
            clock=self._clock,
            follow=follow,
            ended=lambda: directory.has_ended() or not directory.exists(),
        )

    def dial(self, name: str, port: int) -> AbstractAsyncContextManager[Connection]:
        """Connects to the VM's address."""
        return self._dial(name, port)

    @contextlib.asynccontextmanager
    async def _dial(self, name: str, port: int) -> AsyncIterator[Connection]:
        self._check_up(name)
        address = await self._addresses.now(name)
        if not address:
            raise Unreachable(f"{name} has no address yet")
        within = self._settings.dial
        async with dialing.connect(address, port, clock=self._clock, within=within) as connection:
            yield connection

    async def disk_usage(self, name: str) -> float | None:
        """Percent used of the guest's root volume; None if it does not run."""
        if self._directory(name).shim_state() not in UP:
            return None
        return percent_used(await self.tart.execute(name, "/bin/df", "-k", "/"))

    async def capacity(self) -> HostCapacity:
        """The file system of tart's folder, and the VM slots."""
        used = len(await self._slots.used())
        with map_os_errors(f"the file system of {self.tart.home} cannot be measured"):
            found = await asyncio.to_thread(os.statvfs, _existing(self.tart.home))
        return HostCapacity(
            disk_total=found.f_blocks * found.f_frsize,
            disk_free=found.f_bavail * found.f_frsize,
            slots=self._settings.slots,
            slots_used=used,
        )

    # ── records ─────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        """Makes the folders; the first call removes what a killed agent left half made."""
        if self._swept:
            return
        with map_os_errors(f"{self._vms} cannot be made"):
            for folder in (self._vms, self._logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(self._vms)
            self._goldens.sweep()
        self._swept = True

    async def _settle(self) -> None:
        """Brings records up to date: of VMs whose shims were killed, and of runs that tart has refused."""
        found = visible(self._vms)
        orphans = [each for each in found if each.shim_state() is ShimState.ORPHANED]
        ended = [each for each in found if each.shim_state() is ShimState.EXITED]
        work = [
            *(self._lifecycle.reap(each, within=_REAP) for each in orphans),
            *(self._lifecycle.take_back_refused(each) for each in ended),
        ]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            # One that cannot be reaped now is shown as running, and tried again at the next call.
            if isinstance(outcome, BaseException) and not isinstance(outcome, DriverFailed):
                raise outcome

    def _view(self, directory: TartDirectory) -> VmView:
        running = directory.shim_state() in UP
        return directory.view(address=self._addresses.of(directory.name) if running else "")

    def _running(self) -> tuple[str, ...]:
        return tuple(
            each.name
            for each in visible(self._vms)
            if each.shim_state() in (*UP, ShimState.ORPHANED)
        )

    def _check_up(self, name: str) -> None:
        directory = self._directory(name)
        if not directory.exists():
            raise Unreachable(f"{name} does not exist")
        if directory.shim_state() not in UP:
            raise Unreachable(f"{name} does not run")

    def _directory(self, name: str) -> TartDirectory:
        return TartDirectory(self._vms / vm_name(name))


def _foreign(entry: Entry) -> VmView:
    state = VmState.RUNNING if entry.running else VmState.STOPPED
    return VmView(name=entry.name, state=state, owned=False)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())
