"""A tart driver on the stand-in for tart, in a folder of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from tests.standins.tart.helper import StandIn
from tests.vm.process_harness import home

from runyard.clock import RealClock
from runyard.vm.contract import ResolvedImage, VmSpec, VmState, VmView
from runyard.vm.oci.registry import Download
from runyard.vm.shim import control
from runyard.vm.tart.directory import TartDirectory
from runyard.vm.tart.driver import TartDriver
from runyard.vm.tart.golden import golden_name
from runyard.vm.tart.settings import Deadlines, Settings

TAG = "registry.test/runner:one"
NAME = "pod-1-uid-1"
TIMEOUT = 60.0
QUICK = Settings(
    backoff=0.01,
    pull_ending=5.0,
    start_window=0.0,
    ask_again=0.05,
    power_off=5.0,
    address_retry=0.02,
    address_again=60.0,
)

# Its `boot` does what the variable GUEST in the environment says, and remembers what was shared with it.
BOOT = """#!/bin/sh
env="$STANDIN_SHARES/env/tuist.env"
behaviour=$(sed -n 's/^GUEST=//p' "$env")
status="$STANDIN_SHARES/status"
case $behaviour in
"exit "*)
    echo "${behaviour#exit }" >"$status/runner-rc"
    exit 0
    ;;
handles-term) trap 'echo 0 >"$status/runner-rc"; exit 0' TERM ;;
*) trap '' TERM ;;
esac
: >"$status/listening"
while :; do sleep 3600 & wait; done
"""


class Registry:
    """Answers what references mean from a table."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    async def resolve(self, image: str) -> ResolvedImage:
        return ResolvedImage(reference=self.known.get(image, image))

    async def download(self, image: str) -> Download:
        return Download()


class TartHarness:
    """One host: the stand-in, its images, and a driver."""

    def __init__(self, root: Path, settings: Settings = QUICK) -> None:
        self.root = root
        self.clock = RealClock()
        self.tart = StandIn(root)
        self.registry = Registry()
        self.settings = msgspec.structs.replace(settings, binary=str(self.tart.program))
        self.image = ""
        self.driver = self.reopened()

    def reopened(self) -> TartDriver:
        """A new driver on the same state, as after a restart of the agent."""
        return TartDriver(
            self.root / "agent",
            registry=self.registry,
            clock=self.clock,
            settings=self.settings,
            environ=self.tart.environment,
        )

    def with_deadlines(self, **deadlines: float) -> TartDriver:
        """A driver with other deadlines on the same state."""
        changed = msgspec.structs.replace(self.settings.deadlines, **deadlines)
        self.settings = msgspec.structs.replace(self.settings, deadlines=changed)
        self.driver = self.reopened()
        return self.driver

    def put_image(self, files: Mapping[str, str] | None = None) -> str:
        """An image that has been pulled."""
        self.image = self.tart.image(TAG, files if files is not None else {"boot": BOOT})
        return self.image

    def spec(
        self, behaviour: str = "handles-term", *, name: str = NAME, token: str = "", **env: str
    ) -> VmSpec:
        return VmSpec(
            name=name,
            image=self.image,
            cpu_milli=4000,
            memory_mb=8192,
            env=(("GUEST", behaviour), *env.items()),
            token=token,
        )

    def directory(self, name: str = NAME) -> TartDirectory:
        return TartDirectory(self.root / "agent" / "vms" / name)

    def golden(self, image: str) -> str:
        """The name of the image's golden VM."""
        return golden_name(image, self.root / "agent" / "goldens")

    async def view(self, name: str = NAME) -> VmView | None:
        return next((each for each in await self.driver.list() if each.name == name), None)

    async def until(
        self, wanted: Callable[[VmView | None], bool], name: str = NAME
    ) -> VmView | None:
        async with self.clock.timeout(TIMEOUT):
            while not wanted(found := await self.view(name)):
                await self.clock.sleep(0.02)
        return found

    async def up(self, behaviour: str = "handles-term", *, name: str = NAME, **more: str) -> VmView:
        """A running VM with an address whose guest listens to its signals."""
        if not self.image:
            self.put_image()
        await self.driver.create(self.spec(behaviour, name=name, **more))
        await self.driver.start(name)
        await self.listening(name)
        found = await self.until(lambda vm: vm is not None and vm.state is VmState.RUNNING, name)
        assert found is not None
        return found

    async def listening(self, name: str = NAME) -> None:
        """Return when the guest handles or ignores TERM, or has ended."""
        directory = self.directory(name)
        async with self.clock.timeout(TIMEOUT):
            while not (directory.status / "listening").exists() and directory.ended() is None:
                await self.clock.sleep(0.01)

    async def exited(self, name: str = NAME) -> VmView:
        """The last state of a VM that ends by itself."""
        assert await control.wait_gone(self.directory(name), self.clock, within=TIMEOUT)
        found = await self.view(name)
        assert found is not None and found.state is VmState.EXITED
        return found

    async def clear(self) -> None:
        """End and remove every VM of ours, and every process of the stand-in."""
        self.tart.unset("hang-list")
        for knob in (self.tart.home / "knobs").iterdir():
            knob.unlink()
        driver = self.reopened()
        for view in await driver.list():
            if view.owned:
                await driver.stop(view.name, grace=0)
                await driver.delete(view.name)
        self.tart.close()


Scenario = Callable[[TartHarness], Awaitable[None]]


def run(scenario: Scenario, settings: Settings = QUICK) -> None:
    """Run a scenario on a new host, then remove every VM."""

    async def main(root: Path) -> None:
        async with cleared(TartHarness(root, settings)) as harness:
            await scenario(harness)

    with home() as root:
        asyncio.run(main(root))


@contextlib.asynccontextmanager
async def cleared(harness: TartHarness) -> AsyncIterator[TartHarness]:
    try:
        yield harness
    finally:
        await harness.clear()


def quick(**deadlines: float) -> Settings:
    """Settings with these deadlines."""
    return msgspec.structs.replace(QUICK, deadlines=Deadlines(**deadlines))
