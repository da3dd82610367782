"""A VM is a directory and a group of processes: the driver for a machine without virtual machines.

It runs real jobs with real scripts and is what `runyard up` uses where there is neither tart nor QEMU. How far VMs are
kept apart, `isolation.py` tells; where things lie and how a VM's state is read from its files, `layout.py`.

Invariants:
- This object knows nothing that is not on disk. Killed at any moment, another one on the same home goes on.
- A VM appears and disappears by a rename: half a VM has a name with a dot, is not listed, and is swept away unless
  somebody who lives holds its lock.
- Nobody signals a process by a number that he has read from a file. A VM is alive while its keeper holds the pipe
  `alive` open; it is asked to end through the pipe `control`.
- A VM without a keeper and without an exit is *buried* (its processes are ended, its exit is written) before
  anybody hears of its end.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from runyard import proc
from runyard.clock import Clock
from runyard.vm.contract import (
    DriverFailed,
    ImageMissing,
    VmDriver,
    VmError,
    VmSpec,
    VmView,
)
from runyard.vm.guest.image import image_id
from runyard.vm.process import sandbox, staging
from runyard.vm.process.folders import Fresh, away, copy, flock, full_disk_is_told, sweep, visible
from runyard.vm.process.isolation import Isolation, Limits
from runyard.vm.process.layout import Kept, Place, Pulse, quoted, unquoted, vm_name
from runyard.vm.process.processes import drop_cgroup
from runyard.vm.process.users import claim

POWER_OFF_PATIENCE = 20.0  # for the kernel to end what was killed
_START_PATIENCE = 60.0
# The keeper needs nothing but this package's own modules and the standard library.
_IMPORT = """
import sys
sys.path.append(sys.argv.pop(1))
from runyard.vm.process.keeper import main
sys.exit(main(sys.argv[1:]))
"""
_KEEPER = (
    *(sys.executable, "-I", "-S", "-c"),
    _IMPORT,
    str(Path(__file__).resolve().parents[3]),
)
_ENV = {"PATH": sandbox.PATH, "LC_ALL": "C"}


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
        self._source = image_source
        self._vms = home / "vms"
        self._images = home / "images"
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
                    await self._bury(place)
        return tuple(place.view() for place in self._places() if place.exists())

    async def create(self, spec: VmSpec) -> None:
        """Copy the image and stage the guest's files; the VM appears when it is complete."""
        await self._open()
        place = Place(self._vms / vm_name(spec.name))
        if place.exists():
            return
        image = self._images / quoted(spec.image)
        if not image.is_dir():
            raise ImageMissing(f"{spec.image} has not been pulled")
        with full_disk_is_told():
            async with Fresh(place.path) as fresh:
                users = claim(self.isolation, fresh.holder, place.path)
                made = staging.skeleton(fresh.path, env=spec.env, token=spec.token)
                await copy(image, made.image)
                _take_work(made)
                kept = Kept(
                    name=spec.name,
                    image=spec.image,
                    cpu_milli=spec.cpu_milli,
                    memory_mb=spec.memory_mb,
                    users=users,
                )
                staging.private(fresh.path / "spec.json", msgspec.json.encode(kept))
                await staging.give(made, users)
                fresh.appear()

    async def start(self, name: str) -> None:
        """Start its keeper, and return when the guest has been started."""
        place = Place(self._vms / vm_name(name))
        if not place.exists():
            raise DriverFailed(f"{name} does not exist")
        if _is_up(place):
            return
        async with _locked(place, self._clock) as lock:
            if lock is None or _is_up(place):
                return  # somebody else is at it: one start
            kept = place.kept()
            if kept is None:
                raise DriverFailed(f"what {name} was created from cannot be read")
            with full_disk_is_told():
                self._give_order(place, kept)
                await self._start_keeper(place, lock)

    async def stop(self, name: str, *, grace: float) -> None:
        """Ask the guest's first process, wait, then end every process of the VM."""
        place = Place(self._vms / vm_name(name))
        pulse = place.pulse()
        if pulse is Pulse.ORPHANED:
            await self._bury(place)
        if pulse not in (Pulse.BOOTING, Pulse.RUNNING):
            return
        if grace > 0:
            await self._order(place, b"T")
            if await self._gone(place, within=grace):
                return
        await self._order(place, b"K")
        if not await self._gone(place, within=POWER_OFF_PATIENCE):
            raise DriverFailed(
                f"{name} did not end within {POWER_OFF_PATIENCE:g} s of its power-off"
            )

    async def delete(self, name: str) -> None:
        """Remove its directory."""
        await self._open()
        place = Place(self._vms / vm_name(name))
        if not place.exists():
            return
        if place.pulse() is Pulse.ORPHANED:
            await self._bury(place)
        if place.pulse() in (Pulse.BOOTING, Pulse.RUNNING, Pulse.ORPHANED):
            raise DriverFailed(f"{name} is running")
        await self._gone(place, within=POWER_OFF_PATIENCE)  # a keeper's last breath
        async with _locked(place, self._clock) as lock:
            if lock is None:
                raise DriverFailed(f"{name} is being started")
            if self.isolation.cgroup:
                drop_cgroup(str(self._cgroup(place)))
            await away(place.path)

    async def images(self) -> tuple[str, ...]:
        """What was pulled, and is still what the source offers under that name."""
        await self._open()
        return tuple(
            unquoted(path.name) for path in visible(self._images) if not self._outdated(path)
        )

    async def pull(self, image: str) -> None:
        """Copy it from the source; it appears when it is complete."""
        await self._open()
        target = self._images / quoted(image)
        source = self._source / quoted(image)
        if target.is_dir() and not self._outdated(target):
            return
        if not (source / "boot.sh").is_file():
            raise ImageMissing(f"there is no image {image} with a boot.sh in {self._source}")
        with full_disk_is_told():
            async with Fresh(target) as fresh:
                await copy(source, fresh.path)
                await away(target)  # an outdated one; VMs have their own copies
                fresh.appear()

    def _outdated(self, held: Path) -> bool:
        """Whether the source has another image under this name by now."""
        offered = image_id(self._source / held.name)
        return bool(offered) and offered != image_id(held)

    async def remove_image(self, image: str) -> None:
        """Remove its directory; VMs have their own copies."""
        await self._open()
        await away(self._images / quoted(image))

    async def disk_usage(self, name: str) -> float | None:
        """What the VM has written, of what it may write."""
        place = Place(self._vms / vm_name(name))
        used = place.disk_bytes()
        if used is None or not self.limits.disk_mb or place.pulse() is not Pulse.RUNNING:
            return None
        return min(100.0, 100.0 * used / (self.limits.disk_mb << 20))

    # ── starting and ending ─────────────────────────────────────────────────────────────────────

    def _give_order(self, place: Place, kept: Kept) -> None:
        cgroup = self._make_cgroup(place, kept)
        order = sandbox.order(
            place, self.isolation, users=kept.users, limits=self.limits, cgroup=cgroup
        )
        fresh = place.state / "order.new"
        fresh.unlink(missing_ok=True)
        staging.private(fresh, msgspec.json.encode(order))
        fresh.replace(place.state / "order.json")

    def _cgroup(self, place: Place) -> Path:
        digest = hashlib.sha256(str(place.path).encode()).hexdigest()[:16]
        return Path(self.isolation.cgroup) / f"runyard-{digest}"

    def _make_cgroup(self, place: Place, kept: Kept) -> str:
        if not self.isolation.cgroup:
            return ""
        group = self._cgroup(place)
        memory = self.limits.memory_mb or kept.memory_mb
        wanted = {"memory": ("memory.max", memory << 20), "pids": ("pids.max", self.limits.pids)}
        try:
            group.mkdir(exist_ok=True)
            for controller in self.isolation.controllers:
                name, value = wanted[controller]
                if value:
                    (group / name).write_text(str(value), encoding="ascii")
        except OSError as error:
            raise DriverFailed(f"no control group for {place.name}: {error}") from error
        return str(group)

    async def _start_keeper(self, place: Place, lock: int) -> None:
        """The keeper inherits the lock and the pipe that tells that it lives: there is no moment without a holder."""
        ready, starting = os.pipe()
        alive = os.open(place.state / "alive", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        log = os.open(
            place.state / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            handles = (lock, alive, starting)
            numbers = [str(handle) for handle in handles]
            argv = [*_KEEPER, "keep", str(place.state), *numbers]
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_ENV,
                cwd="/",
                pass_fds=handles,
            )
            os.close(starting)
            starting = -1
            await child.wait()
            await _closed(ready, self._clock, within=_START_PATIENCE)
        finally:
            for handle in (ready, starting, alive, log):
                if handle >= 0:
                    os.close(handle)
        if place.pulse() is Pulse.STOPPED:
            said = (place.state / "keeper.log").read_text(encoding="utf-8", errors="replace")
            raise DriverFailed(f"{place.name} was not started: {said[-500:].strip()}")

    async def _order(self, place: Place, what: bytes) -> None:
        """Tell the keeper, as soon as it listens."""
        while place.alive():
            try:
                handle = os.open(
                    place.state / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
                )
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise DriverFailed(f"{place.name} cannot be told: {error}") from error
                await self._clock.sleep(0.01)
                continue
            try:
                os.write(handle, what)
            finally:
                os.close(handle)
            return

    async def _gone(self, place: Place, *, within: float) -> bool:
        """Whether its keeper has ended, waiting for that; it ends last of all."""
        try:
            handle = place.listen()
        except OSError:
            return True
        try:
            return await _closed(handle, self._clock, within=within)
        finally:
            os.close(handle)

    async def ended(self, name: str) -> None:
        """Return when this VM is not alive (any more)."""
        place = Place(self._vms / vm_name(name))
        while not await self._gone(place, within=3600.0):
            pass

    async def stop_all(self, *, grace: float) -> None:
        """Stop every VM at once, for an orderly end of the host's agent."""
        async with asyncio.TaskGroup() as group:
            for view in await self.list():
                group.create_task(self.stop(view.name, grace=grace))

    async def _bury(self, place: Place) -> None:
        async with _locked(place, self._clock) as lock:
            if lock is None or place.pulse() is not Pulse.ORPHANED:
                return
            argv = [*_KEEPER, "bury", str(place.state)]
            try:
                done = await proc.run(argv, timeout=POWER_OFF_PATIENCE, env=_ENV, cwd="/")
            except proc.ProcError as error:
                raise DriverFailed(f"{place.name} cannot be buried: {error}") from error
            if done.code != 0:
                said = done.stderr.decode(errors="replace")[-500:]
                raise DriverFailed(f"{place.name} cannot be buried: {said}")

    # ── directories ─────────────────────────────────────────────────────────────────────────────

    def _places(self) -> tuple[Place, ...]:
        return tuple(Place(path) for path in visible(self._vms))

    async def _open(self) -> None:
        """Make the folders; once, sweep away what a killed agent has left half made or half removed."""
        if self._swept:
            return
        self._swept = True
        self._vms.mkdir(parents=True, exist_ok=True)
        self._vms.chmod(0o711)  # a VM's own user must get through, and need not look around
        self._images.mkdir(mode=0o700, exist_ok=True)
        await sweep(self._vms)
        await sweep(self._images)


def _is_up(place: Place) -> bool:
    """Whether it lives; one that has ended never starts again."""
    pulse = place.pulse()
    if pulse in (Pulse.EXITED, Pulse.ORPHANED):
        raise DriverFailed(f"{place.name} has ended")
    return pulse is not Pulse.STOPPED


@contextlib.asynccontextmanager
async def _locked(place: Place, clock: Clock) -> AsyncIterator[int | None]:
    """The VM's lock as an open file, or None if a living keeper or somebody else at work has it.

    The two things that a dead keeper held are not freed in the same instant: it is worth a short wait.
    """
    try:
        handle = os.open(place.state / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise DriverFailed(f"{place.name} cannot be locked: {error}") from error
    try:
        mine = flock(handle)
        for _ in range(100):
            if mine or place.alive():
                break
            await clock.sleep(0.01)
            mine = flock(handle)
        yield handle if mine else None
    finally:
        os.close(handle)  # an heir of this open file keeps the lock


async def _closed(handle: int, clock: Clock, *, within: float) -> bool:
    """Whether the other end of this pipe is closed, waiting for that at most so long."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(handle, False)
        if os.read(handle, 1) == b"":
            return True
    closed: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, _settle, closed)
    try:
        async with clock.timeout(within):
            await closed
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True


def _settle(closed: asyncio.Future[None]) -> None:
    if not closed.done():
        closed.set_result(None)


def _take_work(made: Place) -> None:
    """The image's work folder is how the VM's own begins."""
    first = made.image / "work"
    if first.is_dir() and not first.is_symlink():
        made.work.rmdir()
        first.rename(made.work)
        made.work.chmod(0o700)
