"""The drivers of the contract suite: one harness each; `offers.py` says what a harness has to offer.

A driver is added by an entry in `DRIVERS`: a function that runs a scenario on a new harness (in virtual time where the
driver has it). An entry reports what is missing on this machine; a harness declares what its driver cannot do in
`lacks`, and the suite counts that as `lacks`, never as passed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec
from tests.conftest import Absent
from tests.vm import process_harness, tart_harness
from tests.vm.contract.offers import (
    COPIES,
    FLOOD,
    GUEST,
    GUEST_BOOT,
    LOG_LINE,
    PACE,
    Capability,
    Command,
    Lacking,
    Poller,
    Scenario,
    cancelled_half_way,
    family,
    files_with,
    filled,
    kill_each,
    polled_spec,
)

from runyard.clock import Clock
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.exec import Terminal
from runyard.sim.loop import run_virtual
from runyard.vm.contract import Stream, VmDriver, VmSpec
from runyard.vm.guest import image

# ── the simulator ───────────────────────────────────────────────────────────────────────────────


async def _echo(terminal: Terminal) -> int:
    while data := await terminal.receive():
        await terminal.send(data)
    return 7


async def _flood(terminal: Terminal) -> int:
    for _ in range(FLOOD // 100_000):
        await terminal.send(bytes(100_000))
    return 0


async def _stay(terminal: Terminal) -> int:
    await terminal.send(b"0\n")
    await asyncio.get_running_loop().create_future()
    return 0


async def _errors(terminal: Terminal) -> int:
    await terminal.send(b"out\n")
    await terminal.send(b"err\n", Stream.STDERR)
    return 0


class SimHarness(Lacking):
    """The simulator's driver."""

    lacks: ClassVar[Mapping[Capability, str]] = {
        Capability.POLLING: "its guests are coroutines; their model of a poller is in tests/sim",
        Capability.SERVICE: "its services are the tests' own coroutines",
        Capability.TERMINAL_SIZE: "its programs have no signals",
    }
    commands: ClassVar[Mapping[Command, tuple[str, ...]]] = {each: (each.name,) for each in Command}
    disk_steps = ("pull", "create")  # a start writes nothing

    def __init__(self) -> None:
        self.clock: Clock = VirtualClock()
        self.image, self.missing_image = "image@sha256:1", "image@sha256:none"
        programs = {
            Command.ECHO.name: _echo,
            Command.FLOOD.name: _flood,
            Command.STAY.name: _stay,
            Command.ERRORS.name: _errors,
        }
        self.sim = SimDriver(
            self.clock,
            host=Host(boot_seconds=3),
            guest=self._guest,
            registry={self.image: 1e9},
            tags={"image:tag": self.image},
            programs=programs,
        )
        self.driver: VmDriver = self.sim
        self.tag = "image:tag"

    def reopened(self) -> VmDriver:
        self.sim = self.sim.reopened()
        return self.sim

    async def listening(self, name: str) -> None:
        return

    def add_foreign(self, name: str) -> object:
        self.sim.add_foreign_vm(name)
        return self.foreign(name)

    def foreign(self, name: str) -> object:
        return self.sim.view(name)

    async def kill_all(self, name: str) -> None:
        self.sim.kill(name)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        self.sim.freeze(name)
        try:
            yield
        finally:
            self.sim.freeze(name, False)

    def write_log(self, name: str) -> bytes:
        self.sim.write_log(name, LOG_LINE)
        return LOG_LINE

    def offer_image(self) -> None:
        return

    async def interruptible_pull(self) -> None:
        seen: list[float] = []

        async def pull() -> None:
            await self.driver.pull(self.image, progress=lambda each: seen.append(each.percent))

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(pull())
            while not any(0 < percent < 100 for percent in seen):
                await self.clock.sleep(0.1)
            assert not task.done()
            task.cancel()

    @contextlib.contextmanager
    def full_disk(self, step: str, *, free: int = 0) -> Iterator[None]:
        before = self.sim.host
        self.sim.host = msgspec.structs.replace(before, disk=0.0)
        yield
        self.sim.host = before

    def runs(self, name: str) -> int:
        return self.sim.history.count(name)

    async def _guest(self, spec: VmSpec, address: str) -> int:
        behaviour = dict(spec.env)[GUEST]
        if behaviour.startswith("exit "):
            await self.clock.sleep(2)
            return int(behaviour.removeprefix("exit "))
        try:
            await self.clock.sleep(3600)
        except asyncio.CancelledError:
            if behaviour != "handles-term":
                await self.clock.sleep(3600)  # only the power-off ends this
        return 0


# ── VMs as processes ────────────────────────────────────────────────────────────────────────────


class ProcessVmHarness(Lacking, process_harness.ProcessHarness):
    """VMs as processes. Their guest creates a file once TERM is handled or ignored, and counts its starts."""

    BOOT = """#!/bin/sh
behaviour=$(sed -n 's/^GUEST=//p' "$RUNYARD_ENV_DIR/tuist.env")
echo start >>"$RUNYARD_STATUS_DIR/starts"
case $behaviour in
"exit "*)
    echo "${behaviour#exit }" >"$RUNYARD_STATUS_DIR/runner-rc"
    exit 0
    ;;
handles-term) trap 'echo 0 >"$RUNYARD_STATUS_DIR/runner-rc"; exit 0' TERM ;;
*) trap '' TERM ;;
esac
while :; do
    if [ -f "$RUNYARD_STATUS_DIR/say" ]; then
        cat "$RUNYARD_STATUS_DIR/say"
        rm "$RUNYARD_STATUS_DIR/say"
    fi
    : >"$RUNYARD_STATUS_DIR/listening"
    sleep 0.05 & wait
done
"""

    def __init__(
        self, root: Path, way: process_harness.Isolation, *, small: Path | None = None
    ) -> None:
        super().__init__(root, way)
        self.tag = self.image.partition("@")[0]
        self._small = small

    async def listening(self, name: str) -> None:
        directory = self.directory(name)
        async with self.clock.timeout(60):
            while not (directory.status / "listening").exists() and directory.ended() is None:
                await self.clock.sleep(0.01)

    def add_foreign(self, name: str) -> object:
        folder = self.home / "vms" / name
        folder.mkdir(parents=True)
        (folder / "theirs").write_text("precious", encoding="utf-8")
        return self.foreign(name)

    def foreign(self, name: str) -> object:
        folder = self.home / "vms" / name
        return sorted((path.name, path.read_text()) for path in folder.iterdir())

    async def kill_all(self, name: str) -> None:
        kill_each(*family(self._shim(name)))
        await self.gone(name)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        os.kill(self._shim(name), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._shim(name), signal.SIGCONT)

    def write_log(self, name: str) -> bytes:
        status = self.directory(name).status
        (status / "new").write_bytes(LOG_LINE)
        (status / "new").chmod(0o644)
        (status / "new").rename(status / "say")
        return LOG_LINE

    def offer_image(self) -> None:
        return  # a pull is a copy of the source

    async def interruptible_pull(self) -> None:
        for number in range(300):  # so many files that the copy is not over at once
            (self.root / "source" / self.quoted_image / f"layer-{number}").write_bytes(b"a layer")

        def part() -> bool:
            layers = (self.home / "images").glob(".*/made/layer-*")
            return any(path.stat().st_size for path in layers)

        while not await cancelled_half_way(self.driver, self.image, part):
            await self.driver.remove_image(self.image)  # this process had to wait: again

    @contextlib.contextmanager
    def full_disk(self, step: str, *, free: int = 0) -> Iterator[None]:
        assert self._small is not None
        with filled(self._small, free):
            yield

    def polled(self, runner: str, url: str, *, who: Poller, token: str) -> VmSpec:
        folder = self.root / "source" / self.quoted_image
        self.put_guest_image(runner)
        if who == "tart-kubelet":
            (folder / "boot.sh").write_text(COPIES, encoding="utf-8")
        self.pace = PACE
        self.driver = self.reopened()
        return polled_spec(self.image, url, who, token)

    def tokens(self, name: str, token: str) -> list[str]:
        return files_with(self.home, token)

    def runs(self, name: str) -> int:
        return (self.directory(name).status / "starts").read_text().count("start")

    def _shim(self, name: str) -> int:
        return int((self.directory(name).state / "started").read_text())


# ── tart, on the stand-in ───────────────────────────────────────────────────────────────────────


class TartVmHarness(Lacking, tart_harness.TartHarness):
    """The tart driver on the stand-in for tart."""

    disk_steps = ("pull", "create", "clone", "start")

    def __init__(self, root: Path, *, small: Path | None = None) -> None:
        if small is not None:  # the records and logs are on the small disk, tart's folder is not
            (root / "agent").symlink_to(small)
        super().__init__(root)
        self._small = small
        self._offered = root / "registry"
        self._offered.mkdir()
        self.tart.set("registry-directory", self._offered)
        self.tart.set("shutdown-seconds", 3600)  # a guest that ignores it runs on
        self.put_image()
        self.missing_image = f"registry.test/none@sha256:{'0' * 64}"
        self.tag = tart_harness.TAG
        self.registry.known[self.tag] = self.image

    def add_foreign(self, name: str) -> object:
        self.tart.create(name)
        return self.foreign(name)

    def foreign(self, name: str) -> object:
        folder = self.tart.home / "vms" / name
        return sorted((path.name, path.stat().st_size) for path in folder.iterdir())

    async def kill_all(self, name: str) -> None:
        shim = int((self.directory(name).state / "started").read_text())
        kill_each(*family(shim), *self.tart.pids(name).values())
        assert await tart_harness.control.wait_gone(
            self.directory(name), self.clock, within=tart_harness.TIMEOUT
        )

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        shim = int((self.directory(name).state / "started").read_text())
        os.kill(shim, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(shim, signal.SIGCONT)

    def write_log(self, name: str) -> bytes:
        os.kill(
            self.tart.pids(name)["run"], signal.SIGUSR2
        )  # a guest of macOS ignores what it asks for
        return b"Requesting guest OS to stop...\n"

    def offer_image(self) -> None:
        image = self.tart.create("made", {"boot": tart_harness.BOOT}, disk_bytes=1 << 20)
        with Path(image.file("disk.img")).open("r+b") as disk:
            disk.seek(1 << 19)
            disk.write(os.urandom(1 << 19))  # or it would be compressed to nothing
        self.tart.set("layer-bytes", 1 << 17)
        assert self.tart.call("push", "made", tart_harness.TAG).code == 0
        manifests = (self._offered / "registry.test" / "runner" / "manifests").iterdir()
        digest = next(path.name for path in manifests if path.name.startswith("sha256:"))
        self.image = f"registry.test/runner@{digest}"

    async def interruptible_pull(self) -> None:
        self.tart.set("pull-stall-after", 1 << 18)  # it stands still there

        def part() -> bool:
            disks = (self.tart.home / "tmp").glob("*/disk.img")
            return any(path.stat().st_size for path in disks)

        assert await cancelled_half_way(self.driver, self.image, part)
        self.tart.unset("pull-stall-after")

    @contextlib.contextmanager
    def full_disk(self, step: str, *, free: int = 0) -> Iterator[None]:
        knob = {"pull": "no-space-pull", "clone": "no-space-clone"}.get(step)
        if (
            knob is None
        ):  # what the driver writes itself: the record and the staged files, the order
            assert self._small is not None
            with filled(self._small, free):
                yield
            return
        self.tart.set(knob)
        try:
            yield
        finally:
            self.tart.unset(knob)

    def polled(self, runner: str, url: str, *, who: Poller, token: str) -> VmSpec:
        files = {"actions-runner/run.sh": runner}
        if who != "host":
            scripts = image.SCRIPTS.iterdir()
            files = {
                path.name: path.read_text() for path in scripts if path.suffix in (".sh", ".py")
            }
            files |= {"work/runner/run.sh": runner, "boot": GUEST_BOOT}
        if who == "tart-kubelet":
            files["boot.sh"] = COPIES
        self.put_image(files)
        self.settings = msgspec.structs.replace(self.settings, pace=PACE)
        self.driver = self.reopened()
        return polled_spec(self.image, url, who, token)

    def tokens(self, name: str, token: str) -> list[str]:
        return files_with(self.root / "agent", token)

    def runs(self, name: str) -> int:
        return self.tart.runs(name)


# ── the entries ─────────────────────────────────────────────────────────────────────────────────


def on_sim(scenario: Scenario, absent: Absent) -> None:
    async def main() -> None:
        await scenario(SimHarness())

    run_virtual(main())


def on_processes(way: process_harness.Way, scenario: Scenario, absent: Absent) -> None:
    isolation = process_harness.isolation(way)
    if isinstance(isolation, str):
        absent(f"a machine for VMs as processes, {way}", isolation)

    async def main(harness: process_harness.ProcessHarness) -> None:
        small = getattr(scenario, "small_disk", None)
        root = harness.root if small is None else small
        made = ProcessVmHarness(root, harness.isolation, small=small)
        made.put_image(ProcessVmHarness.BOOT)
        try:
            await scenario(made)
        finally:
            await made.clear()

    process_harness.run_on(isolation, main)


def on_tart(scenario: Scenario, absent: Absent) -> None:
    async def main(root: Path) -> None:
        harness = TartVmHarness(root, small=getattr(scenario, "small_disk", None))
        try:
            await scenario(harness)
        finally:
            await harness.clear()

    with process_harness.home() as root:
        asyncio.run(main(root))


DRIVERS: dict[str, Callable[[Scenario, Absent], None]] = {
    "sim": on_sim,
    **{f"process-{way}": partial(on_processes, way) for way in process_harness.WAYS},
    "tart": on_tart,
}


@contextlib.contextmanager
def small_disk(absent: Absent) -> Iterator[Path]:
    """A file system of a few mebibytes, for harnesses that can be put there."""
    if os.geteuid() != 0:
        absent("root", "run the tests as root too: a small disk must be mounted")
    with process_harness.home() as directory:
        argv = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0711", "tmpfs", str(directory)]
        if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            absent("a mountable tmpfs", "run the tests where mounting is allowed")
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], check=True)
