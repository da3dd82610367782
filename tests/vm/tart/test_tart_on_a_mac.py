"""The tart driver's contract with the `tart` that there is: the stand-in, and on a Mac the real one.

`tools/prove_on_a_mac.sh` runs this file on a Mac with RUNYARD_MAC_IMAGE, an image that has been pulled; names of its
VMs begin with `runyard-proof`. The same cases run on the stand-in everywhere, so that a case which fails on a Mac shows
a difference between the two.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.standins.tart import locks
from tests.standins.tart.helper import StandIn
from tests.vm.tart_harness import Registry

from runyard.clock import RealClock
from runyard.vm.contract import DriverFailed, SlotsFull, Stream, VmError, VmSpec, VmState, VmView
from runyard.vm.tart.driver import TartDriver
from runyard.vm.tart.settings import Settings

MAC_IMAGE = os.environ.get("RUNYARD_MAC_IMAGE", "")
ONE, TWO, THREE = (f"runyard-proof-case-{number}" for number in (1, 2, 3))
FOREIGN = "runyard-proof-foreign"
BOOT = 300.0  # seconds that a real guest may take


class Host:
    """A tart with an image, and the driver on it."""

    def __init__(self, folder: Path, environ: dict[str, str], image: str) -> None:
        self.folder = folder
        self.environ = environ
        self.image = image
        self.clock = RealClock()
        self.driver = self.reopened()

    def reopened(self) -> TartDriver:
        return TartDriver(
            self.folder / "agent",
            registry=Registry(),
            clock=self.clock,
            settings=Settings(),
            environ=self.environ,
        )

    def tart(self, *argv: str) -> None:
        subprocess.run(["tart", *argv], env=self.environ, capture_output=True, check=True)

    def path(self, name: str) -> Path:
        home = self.environ.get("TART_HOME") or str(Path(self.environ["HOME"]) / ".tart")
        return Path(home) / "vms" / name

    async def create(self, name: str) -> None:
        digest = await self.digest()
        await self.driver.create(
            VmSpec(name=name, image=digest, cpu_milli=4000, memory_mb=8192, env=(("A", "b"),))
        )

    async def digest(self) -> str:
        repository = self.image.partition("@")[0].rpartition(":")[0]
        return next(
            each.reference
            for each in await self.driver.images()
            if each.reference.startswith(f"{repository}@")
        )

    async def view(self, name: str) -> VmView | None:
        return next((each for each in await self.driver.list() if each.name == name), None)

    async def until(self, name: str, state: VmState) -> VmView:
        async with self.clock.timeout(BOOT):
            while (found := await self.view(name)) is None or found.state is not state:
                await self.clock.sleep(0.05)
        return found

    async def up(self, name: str) -> None:
        """A VM whose guest answers."""
        await self.create(name)
        await self.driver.start(name)
        await self.until(name, VmState.RUNNING)
        async with self.clock.timeout(BOOT):
            while (await self.run(name, "true"))[1] != 0:
                await self.clock.sleep(0.05)

    async def run(self, name: str, *argv: str) -> tuple[dict[Stream, bytes], int]:
        """A command's output and exit code; -1 while the guest does not answer."""
        found: dict[Stream, bytes] = {}
        try:
            async with self.driver.exec(name, argv) as session:
                while (piece := await session.read()) is not None:
                    found[piece[0]] = found.get(piece[0], b"") + piece[1]
                return found, await session.wait()
        except VmError:
            return found, -1

    async def clear(self) -> None:
        for name in (ONE, TWO, THREE):
            with suppress(VmError):
                await self.driver.stop(name, grace=0)
                await self.driver.delete(name)
                await self.driver.forget(name)
        subprocess.run(
            ["tart", "delete", FOREIGN], env=self.environ, capture_output=True, check=False
        )


Case = Callable[[Host], Awaitable[None]]
Play = Callable[[Case], None]


@pytest.fixture(params=["stand-in", "real"])
def play(
    request: pytest.FixtureRequest, tmp_path: Path, absent: Absent, monkeypatch
) -> Iterator[Play]:
    """Runs a case, then removes its VMs."""
    if request.param == "real":
        if not MAC_IMAGE:
            absent("a Mac with tart", "run tools/prove_on_a_mac.sh there")
        yield player(tmp_path, dict(os.environ), MAC_IMAGE)
        return
    if MAC_IMAGE:
        pytest.skip("the real tart is tested")
    standin = StandIn(tmp_path)
    standin.image("registry.test/acme/macos:one", {})
    monkeypatch.setenv("PATH", standin.environment["PATH"])
    yield player(tmp_path, standin.environment, "registry.test/acme/macos:one")
    standin.close()


def player(folder: Path, environ: dict[str, str], image: str) -> Play:
    @asynccontextmanager
    async def host() -> AsyncIterator[Host]:
        found = Host(folder, environ, image)
        try:
            yield found
        finally:
            await found.clear()

    def run(case: Case) -> None:
        async def main() -> None:
            async with host() as found:
                await case(found)

        asyncio.run(main())

    return run


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_vm_loses_its_result_or_runs_twice(play: Play) -> None:
    async def case(host: Host) -> None:
        await host.up(ONE)
        await host.create(ONE)
        await host.driver.start(ONE)
        output, code = await host.run(ONE, "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (output, code) == ({Stream.STDOUT: b"out\n", Stream.STDERR: b"err\n"}, 7)
        host.driver = host.reopened()
        assert (await host.until(ONE, VmState.RUNNING)).address
        await host.driver.stop(ONE, grace=60)
        await host.until(ONE, VmState.EXITED)
        with pytest.raises(DriverFailed):
            await host.driver.start(ONE)
        await host.driver.delete(ONE)
        await host.driver.delete(ONE)
        assert await host.view(ONE) is None

    play(case)


def test_input_and_output_of_10_megabytes_are_cut(play: Play) -> None:
    async def case(host: Host) -> None:
        await host.up(ONE)
        count = 10_000_000
        async with host.driver.exec(ONE, ("sh", "-c", "wc -c; echo $?")) as session:
            await session.write(b"x" * count)
            await session.close_input()
            output = b""
            while (piece := await session.read()) is not None:
                output += piece[1]
            assert output.split() == [str(count).encode(), b"0"]
        output, code = await host.run(ONE, "head", "-c", str(count), "/dev/zero")
        assert (len(output[Stream.STDOUT]), code) == (count, 0)

    play(case)


def test_a_vm_whose_run_was_killed_is_started_again(play: Play) -> None:
    async def case(host: Host) -> None:
        await host.up(ONE)
        pid = locks.holder(str(host.path(ONE) / "config.json"))
        assert pid
        os.kill(pid, signal.SIGKILL)
        await host.until(ONE, VmState.EXITED)
        with pytest.raises(DriverFailed):
            await host.reopened().start(ONE)
        assert not locks.holder(str(host.path(ONE) / "config.json"))

    play(case)


def test_a_vm_whose_shim_was_killed_goes_on_or_is_started_again(play: Play) -> None:
    async def case(host: Host) -> None:
        await host.up(ONE)
        started = host.folder / "agent" / "vms" / ONE / "state" / "started"
        os.kill(int(started.read_text()), signal.SIGKILL)
        ended = await host.until(ONE, VmState.EXITED)
        assert ended.exit_reason
        assert not locks.holder(str(host.path(ONE) / "config.json"))
        with pytest.raises(DriverFailed):
            await host.reopened().start(ONE)

    play(case)


def test_a_foreign_vm_is_taken_over_or_forgotten(play: Play) -> None:
    async def case(host: Host) -> None:
        host.tart("clone", await host.digest(), FOREIGN)
        view = await host.view(FOREIGN)
        assert view is not None and not view.owned
        with pytest.raises(DriverFailed):
            await host.create(FOREIGN)
        assert (host.path(FOREIGN) / "disk.img").exists()

    play(case)


def test_a_third_vm_is_tried(play: Play) -> None:
    async def case(host: Host) -> None:
        for name in (ONE, TWO):
            await host.create(name)
            await host.driver.start(name)
            await host.until(name, VmState.RUNNING)
        await host.create(THREE)
        with pytest.raises(SlotsFull):
            await host.driver.start(THREE)
        capacity = await host.driver.capacity()
        assert (capacity.slots, capacity.slots_used) == (2, 2)

    play(case)
