"""The drivers of the contract suite: one harness each, and what a harness has to offer.

A driver is added by an entry in `DRIVERS`: a function that runs a scenario on a new harness (in virtual time where the
driver has it). An entry reports what is missing on this machine; a harness declares what its driver cannot do in
`lacks`, and the suite counts that as `lacks`, never as passed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
from tests.conftest import Absent
from tests.vm import process_harness, tart_harness

from runyard.clock import Clock
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.exec import Terminal
from runyard.sim.loop import run_virtual
from runyard.vm.contract import HostPolling, PullProgress, Stream, VmDriver, VmSpec
from runyard.vm.shim.orders import Pace

GUEST = "GUEST"  # the variable that sets the behaviour of a harness's guest
NAME = "pod-1-uid-1"
FLOOD = 100_000_000  # bytes


PACE = Pace(pause=0.01, timeout=5.0, boot=30.0)


class Capability(Enum):
    """What a case needs of a driver or its harness, where not every one has it."""

    REAL_PROCESSES = "processes that can be killed or stopped"
    OUTPUT = "a guest whose output is the console log"
    SERVICE = "a guest that serves a port"
    TERMINAL_SIZE = "a terminal that reports a change of its size"
    SLOW_PULL = "a pull that can be interrupted half-way"
    FULL_DISK = "a disk that can be filled"
    POLLING = "a host that polls on behalf of its guests"
    RESOLVE = "a reference without a digest"
    REGISTRY = "a registry that can be asked for an image that it does not have"
    IGNORES_TERM = "a guest that ignores being asked to shut down"


class Command(Enum):
    """A command in a guest, by what it does."""

    ECHO = "prints its input and ends with 7"
    FLOOD = "prints FLOOD bytes"
    SIZE = "prints the size of its terminal, and again at each change"
    STAY = "prints a line and stays"
    ERRORS = "prints out to its output and err to its errors"
    MISSING = "does not exist"


SHELL: dict[Command, tuple[str, ...]] = {
    Command.ECHO: ("sh", "-c", "cat; exit 7"),
    Command.FLOOD: ("head", "-c", str(FLOOD), "/dev/zero"),
    Command.SIZE: (
        *("sh", "-c"),
        'trap "stty size" WINCH; stty size; while read -r line; do echo "read $line"; done',
    ),
    Command.STAY: ("sh", "-c", "echo $$; exec sleep 3600"),
    Command.ERRORS: ("sh", "-c", "echo out; echo err >&2"),
    Command.MISSING: ("no-such-program",),
}


class DriverHarness(Protocol):
    """A driver with what the suite needs to use it."""

    clock: Clock
    driver: VmDriver
    image: str
    missing_image: str
    tag: str  # the image without its digest
    lacks: Mapping[Capability, str]
    commands: Mapping[Command, tuple[str, ...]]
    disk_steps: tuple[str, ...]  # the steps that need disk space

    def reopened(self) -> VmDriver:
        """A new driver on the same state, as after a restart of the agent."""
        ...

    async def listening(self, name: str) -> None:
        """Return when the guest handles or ignores TERM, or has ended."""
        ...

    def add_foreign(self, name: str) -> object:
        """Make a VM of that name that the driver did not create; returns what must not change."""
        ...

    def foreign(self, name: str) -> object:
        """What has become of it."""
        ...

    async def kill_all(self, name: str) -> None:
        """Kill every process of a VM at once, its shim included."""
        ...

    def stopped(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A VM whose processes do not react, not even to be asked for their end."""
        ...

    def write_log(self, name: str, text: bytes) -> None:
        """Have the guest print this."""
        ...

    def interruptible_pull(self) -> Awaitable[None]:
        """A pull of the image, of which less than the whole has arrived when this returns; it is cancelled then."""
        ...

    def full_disk(self, step: str) -> contextlib.AbstractContextManager[None]:
        """Leave too little space for this step."""
        ...

    def runs(self, name: str) -> int:
        """How often the guest was started."""
        ...

    def polled(self, runner: str, polling: HostPolling, *, token: str) -> VmSpec:
        """A VM of an image with this runner, for which the host polls without long pauses."""
        ...


def _polled(image: str, polling: HostPolling, token: str) -> VmSpec:
    return VmSpec(
        name=NAME,
        image=image,
        cpu_milli=4000,
        memory_mb=8192,
        env=(("TUIST_RUNNER_DISPATCH_URL", polling.url), ("RESULT", "42")),
        token=token,
        polling=polling,
    )


class Lacking:
    """The parts of a harness that only some have: each use of one is declared by a capability first."""

    lacks: ClassVar[Mapping[Capability, str]] = {}
    commands: ClassVar[Mapping[Command, tuple[str, ...]]] = SHELL
    disk_steps: ClassVar[tuple[str, ...]] = ("pull", "create", "start")

    async def kill_all(self, name: str) -> None:
        raise NotImplementedError

    def stopped(self, name: str) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def write_log(self, name: str, text: bytes) -> None:
        raise NotImplementedError

    async def interruptible_pull(self) -> None:
        raise NotImplementedError

    def full_disk(self, step: str) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def polled(self, runner: str, polling: HostPolling, *, token: str) -> VmSpec:
        raise NotImplementedError


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
        Capability.REAL_PROCESSES: "its VMs are coroutines",
        Capability.POLLING: "its guests' model polls, tests/sim has it",
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
        return self.driver

    async def listening(self, name: str) -> None:
        return

    def add_foreign(self, name: str) -> object:
        self.sim.add_foreign_vm(name)
        return self.foreign(name)

    def foreign(self, name: str) -> object:
        return self.sim.view(name)

    async def kill_all(self, name: str) -> None:
        self.sim.kill(name)

    def write_log(self, name: str, text: bytes) -> None:
        self.sim.write_log(name, text)

    async def interruptible_pull(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with self.clock.timeout(1.0):
                await self.driver.pull(self.image)

    @contextlib.contextmanager
    def full_disk(self, step: str) -> Iterator[None]:
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
        os.kill(self._shim(name), signal.SIGKILL)
        await self.gone(name)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        os.kill(self._shim(name), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._shim(name), signal.SIGCONT)

    def write_log(self, name: str, text: bytes) -> None:
        status = self.directory(name).status
        (status / "new").write_bytes(text)
        (status / "new").chmod(0o644)
        (status / "new").rename(status / "say")

    async def interruptible_pull(self) -> None:
        # The first report comes before the first byte: the copy is cancelled at its very beginning.
        pull = asyncio.current_task()
        assert pull is not None

        def cancel(_: PullProgress) -> None:
            pull.cancel()

        try:
            await self.driver.pull(self.image, progress=cancel)
        except asyncio.CancelledError:
            pull.uncancel()

    @contextlib.contextmanager
    def full_disk(self, step: str) -> Iterator[None]:
        assert self._small is not None
        filler = self._small / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        try:
            yield
        finally:
            filler.unlink()

    def polled(self, runner: str, polling: HostPolling, *, token: str) -> VmSpec:
        folder = self.root / "source" / self.quoted_image / "work" / "runner"
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text(runner, encoding="utf-8")
        (folder / "run.sh").chmod(0o755)
        self.pace = PACE
        self.driver = self.reopened()
        return _polled(self.image, polling, token)

    def runs(self, name: str) -> int:
        return (self.directory(name).status / "starts").read_text().count("start")

    def _shim(self, name: str) -> int:
        return int((self.directory(name).state / "started").read_text())


# ── tart, on the stand-in ───────────────────────────────────────────────────────────────────────


class TartVmHarness(Lacking, tart_harness.TartHarness):
    """The tart driver on the stand-in for tart."""

    lacks: ClassVar[Mapping[Capability, str]] = {
        Capability.SLOW_PULL: "tests/vm/tart/test_tart_pulling.py interrupts pulls of a real registry",
        Capability.RESOLVE: "tests/vm/oci asks real registries",
        Capability.REGISTRY: "tests/vm/tart/test_tart_pulling.py has each error of a pull",
        Capability.IGNORES_TERM: "tests/vm/tart/test_tart_driver.py has a guest without an agent",
        Capability.SERVICE: "tests/vm/tart/test_tart_driver.py connects to an address of a guest",
        Capability.OUTPUT: "tests/vm/tart/test_tart_driver.py reads what `tart run` prints",
        Capability.TERMINAL_SIZE: "tests/vm/tart/test_tart_driver.py has the terminal of `tart exec`",
        Capability.FULL_DISK: "tests/vm/tart/test_tart_driver.py has a disk that is full at each step",
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.put_image()
        self.missing_image = f"registry.test/none@sha256:{'0' * 64}"
        self.tag = tart_harness.TAG

    def add_foreign(self, name: str) -> object:
        self.tart.create(name)
        return self.foreign(name)

    def foreign(self, name: str) -> object:
        folder = self.tart.home / "vms" / name
        return sorted((path.name, path.stat().st_size) for path in folder.iterdir())

    async def kill_all(self, name: str) -> None:
        shim = int((self.directory(name).state / "started").read_text())
        victims = [shim, *self.tart.pids(name).values()]
        for pid in filter(None, victims):  # an image without a program has no process for it
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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

    def polled(self, runner: str, polling: HostPolling, *, token: str) -> VmSpec:
        self.put_image({"actions-runner/run.sh": runner})
        self.settings = msgspec.structs.replace(self.settings, pace=PACE)
        self.driver = self.reopened()
        return _polled(self.image, polling, token)

    def runs(self, name: str) -> int:
        return self.tart.runs(name)


# ── the entries ─────────────────────────────────────────────────────────────────────────────────

Scenario = Callable[[DriverHarness], Coroutine[Any, Any, None]]


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
        harness = TartVmHarness(root)
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
