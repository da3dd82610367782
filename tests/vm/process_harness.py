"""Runs VMs as processes for tests, with every isolation that works on this machine.

A home can be entered by any user. Tests follow a guest through named pipes: a line that arrives, or the end of a pipe
whose last writer is gone. The latter proves that no process of the guest is alive, even one that hides.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from runyard.clock import RealClock
from runyard.vm.contract import VmSpec, VmState, VmView
from runyard.vm.guest import image as guest_image
from runyard.vm.process import probe
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import VmDirectory, quoted
from runyard.vm.process.limits import Limits
from runyard.vm.shim import control
from runyard.vm.shim.orders import Pace

IMAGE = "registry.invalid/guest@sha256:1"
TIMEOUT = 60.0
Way = Literal["bwrap-users", "bwrap", "users", "one-user", "plain"]
WAYS: tuple[Way, ...] = ("bwrap-users", "bwrap", "users", "one-user", "plain")
_SHAPES = {
    "bwrap-users": ("bwrap", "pair"),
    "bwrap": ("bwrap", ""),
    "users": ("none", "pair"),
    "one-user": ("none", "one"),
    "plain": ("none", ""),
}


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A directory that a VM's own user can enter; pytest's own temporary ones are root's alone."""
    path = Path(tempfile.mkdtemp(prefix="runyard-vm-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@cache
def isolation(way: Way) -> Isolation | str:
    """The isolation of that kind, or why it does not work on this machine."""

    # One for all tests, also those that run at the same time: users are the machine's, so neither TMPDIR nor the
    # registry of a fleet on this machine may lead to the same ones. VMs that share a user kill each other.
    base = Isolation(registry="/tmp/runyard-test-users-of-vms", uid_base=300_000)

    async def find() -> Isolation | str:
        needs = {"bwrap": "bubblewrap", "bwrap-users": "bubblewrap and root"}
        failure = f"it needs {needs.get(way, 'root')}"
        for candidate in probe._candidates("auto", base):
            if (candidate.kind, candidate.users) == _SHAPES[way]:
                failure = await probe._trial(directory, candidate)
                if not failure:
                    return candidate
        return failure

    with home() as directory:
        return asyncio.run(find())


@cache
def networked(way: Way) -> Isolation | str:
    """That isolation with a network of its own for each VM, or why it does not work on this machine."""
    held = isolation(way)
    if isinstance(held, str):
        return held
    with home() as directory:
        found = asyncio.run(probe._with_network(directory, held, "auto"))
    return found if found.network == "own" else found.detail


class Pipe:
    """A named pipe that a guest may write to or hold open."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        path.chmod(0o666)
        self.path = path
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._received = b""

    async def line(self) -> str:
        """The next line that the guest writes."""
        async with asyncio.timeout(TIMEOUT):
            while b"\n" not in self._received:
                await self._readable()
                self._received += os.read(self._reader, 4096)
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def send(self, line: str) -> None:
        """Write a line to the guest and keep the pipe open: opening it for reading waits for a writer."""
        self._writer = os.open(self.path, os.O_WRONLY)
        os.write(self._writer, f"{line}\n".encode())

    def held(self) -> bool:
        """Whether a process has it open for writing now."""
        try:
            return os.read(self._reader, 1) != b""
        except BlockingIOError:
            return True

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        there = asyncio.Event()
        loop.add_reader(self._reader, there.set)
        try:
            await there.wait()
        finally:
            loop.remove_reader(self._reader)


class ProcessHarness:
    """A driver on a home, an image source, and the image's guest."""

    def __init__(self, root: Path, way: Isolation, limits: Limits | None = None) -> None:
        self.clock = RealClock()
        self.root = root
        self.isolation = way
        self.limits = limits or Limits()
        self.pace: Pace | None = None
        self.image, self.missing_image = IMAGE, "registry.invalid/none@sha256:2"
        self.home = root / "home"
        self.driver = self.reopened()

    def reopened(self) -> ProcessDriver:
        """A new driver on the same home, as after a restart of the agent."""
        return ProcessDriver(
            self.home,
            image_source=self.root / "source",
            clock=self.clock,
            limits=self.limits,
            isolation=self.isolation,
            pace=self.pace,
        )

    @property
    def quoted_image(self) -> str:
        return quoted(self.image)

    def put_image(self, boot: str, **files: str) -> None:
        """An image whose guest is this script."""
        folder = self.root / "source" / quoted(self.image)
        folder.mkdir(parents=True)
        for name, text in {"boot.sh": boot, **files}.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "boot.sh").chmod(0o755)

    def put_guest_image(self, runner: str) -> None:
        """An image of the packaged scripts around this runner."""
        source = self.root / "runner"
        source.mkdir()
        (source / "run.sh").write_text(runner, encoding="utf-8")
        guest_image.build_image(self.root / "source" / quoted(self.image), runner=source)

    def directory(self, name: str) -> VmDirectory:
        return VmDirectory(self.home / "vms" / name)

    async def create(self, name: str, *, token: str = "", **env: str) -> VmDirectory:
        """Pull and create."""
        await self.driver.pull(self.image)
        spec = VmSpec(
            name=name,
            image=self.image,
            cpu_milli=1000,
            memory_mb=256,
            env=tuple(env.items()),
            token=token,
        )
        await self.driver.create(spec)
        return self.directory(name)

    def pipe(self, name: str, label: str) -> Pipe:
        """A pipe in the VM's status folder: its poller can open it."""
        return Pipe(self.directory(name).status / label)

    async def view(self, name: str) -> VmView:
        return next(view for view in await self.driver.list() if view.name == name)

    async def gone(self, name: str) -> None:
        """Wait for the end of its shim."""
        assert await control.wait_gone(self.directory(name), self.clock, within=TIMEOUT)

    async def exited(self, name: str) -> VmView:
        """Wait for its end; returns its last state."""
        await self.gone(name)
        view = await self.view(name)
        assert view.state is VmState.EXITED
        return view

    async def clear(self) -> None:
        """End and remove every VM."""
        ours = [view for view in await self.driver.list() if view.owned]
        for view in ours:
            await self.driver.stop(view.name, grace=0)
            await self.driver.delete(view.name)


Scenario = Callable[[ProcessHarness], Awaitable[None]]


def run_on(way: Isolation, scenario: Scenario, limits: Limits | None = None) -> None:
    """Run a scenario with a new harness, then remove every VM."""

    async def main(root: Path) -> None:
        async with _cleared(ProcessHarness(root, way, limits)) as harness:
            await scenario(harness)

    with home() as root:
        asyncio.run(main(root))


@contextlib.asynccontextmanager
async def _cleared(harness: ProcessHarness) -> AsyncIterator[ProcessHarness]:
    try:
        yield harness
    finally:
        await harness.clear()
